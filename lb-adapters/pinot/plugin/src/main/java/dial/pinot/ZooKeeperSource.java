package dial.pinot;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.apache.helix.AccessOption;
import org.apache.helix.store.zk.ZkHelixPropertyStore;
import org.apache.helix.zookeeper.datamodel.ZNRecord;
import org.apache.helix.zookeeper.zkclient.IZkDataListener;

/**
 * Weights from a node of Pinot's own property store: its simple field {@code document} holds the
 * JSON.
 *
 * <p>A change wakes the reader; it looks every few seconds all the same, for a watch can be lost
 * with ZooKeeper's session.
 */
final class ZooKeeperSource implements WeightFeed.Source, IZkDataListener {
  static final String FIELD = "document";
  private static final long LOOK_MS = 2_000;

  private final ZkHelixPropertyStore<ZNRecord> store;
  private final String path;
  private final Semaphore changed = new Semaphore(1);
  private boolean subscribed;
  private String seen = "";

  ZooKeeperSource(ZkHelixPropertyStore<ZNRecord> store, String path) {
    this.store = store;
    this.path = path;
  }

  @Override
  public byte[] next(long held) throws IOException, InterruptedException {
    if (!subscribed) {
      store.subscribeDataChanges(path, this);
      subscribed = true;
    }
    changed.tryAcquire(LOOK_MS, TimeUnit.MILLISECONDS);
    changed.drainPermits();
    ZNRecord node = store.get(path, null, AccessOption.PERSISTENT);
    String document = node == null ? null : node.getSimpleField(FIELD);
    if (document == null) {
      seen = "";
      throw new IOException("no such node, or no field '" + FIELD + "' in it");
    }
    if (document.equals(seen)) {
      return null;
    }
    seen = document;
    return document.getBytes(StandardCharsets.UTF_8);
  }

  @Override
  public void handleDataChange(String changedPath, Object data) {
    changed.release();
  }

  @Override
  public void handleDataDeleted(String changedPath) {
    changed.release();
  }
}
