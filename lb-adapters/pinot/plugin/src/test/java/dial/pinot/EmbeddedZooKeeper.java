package dial.pinot;

import java.io.File;
import java.net.InetSocketAddress;
import java.nio.file.Path;
import org.apache.helix.store.zk.ZkHelixPropertyStore;
import org.apache.helix.zookeeper.datamodel.ZNRecord;
import org.apache.helix.zookeeper.datamodel.serializer.ZNRecordSerializer;
import org.apache.zookeeper.server.NIOServerCnxnFactory;
import org.apache.zookeeper.server.ZooKeeperServer;

/** A real ZooKeeper on the loopback address, and Helix's property store on it. */
final class EmbeddedZooKeeper implements AutoCloseable {
  private final NIOServerCnxnFactory server = new NIOServerCnxnFactory();
  final ZkHelixPropertyStore<ZNRecord> store;

  EmbeddedZooKeeper(Path folder) throws Exception {
    File data = folder.toFile();
    server.configure(new InetSocketAddress("127.0.0.1", 0), 100);
    server.startup(new ZooKeeperServer(data, data, 500));
    store =
        new ZkHelixPropertyStore<>(
            "127.0.0.1:" + server.getLocalPort(),
            new ZNRecordSerializer(),
            "/cluster/PROPERTYSTORE");
  }

  @Override
  public void close() {
    store.stop();
    server.shutdown();
  }
}
