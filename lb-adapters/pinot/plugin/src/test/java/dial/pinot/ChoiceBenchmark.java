package dial.pinot;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.commons.io.FileUtils;
import org.apache.pinot.broker.routing.instanceselector.InstanceSelector;
import org.apache.pinot.common.request.BrokerRequest;
import org.apache.pinot.common.request.PinotQuery;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Fork;
import org.openjdk.jmh.annotations.Level;
import org.openjdk.jmh.annotations.Measurement;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;
import org.openjdk.jmh.annotations.Warmup;

/** What a choice costs a query over 100 segments with 3 replicas, beside Pinot's own. */
@State(Scope.Benchmark)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.MICROSECONDS)
@Warmup(iterations = 3, time = 1)
@Measurement(iterations = 5, time = 1)
@Fork(
    value = 3,
    jvmArgsAppend = {
      "--add-opens=java.base/java.nio=ALL-UNNAMED",
      "--add-opens=java.base/java.lang=ALL-UNNAMED"
    })
public class ChoiceBenchmark {
  private static final int SEGMENTS = 100;

  @Param({"balanced", "query", "segment", "query-mixed-placement"})
  public String routing;

  private EmbeddedZooKeeper zooKeeper;
  private Path folder;
  private InstanceSelector selector;
  private List<String> segments;
  private final BrokerRequest request = new BrokerRequest();
  private long id;

  /** A table as the broker would have it, weights in force. */
  @Setup(Level.Trial)
  public void start() throws Exception {
    folder = Files.createTempDirectory("dial-jmh");
    zooKeeper = new EmbeddedZooKeeper(folder);
    Table table = routing.endsWith("placement") ? mixed() : Table.replicated(SEGMENTS);
    if (routing.equals("balanced")) {
      selector = table.fromPinot("balanced", zooKeeper);
    } else {
      String weights =
          String.format(
              "{\"%s\":5,\"%s\":50,\"%s\":45}",
              Table.SERVERS.get(0), Table.SERVERS.get(1), Table.SERVERS.get(2));
      table.mode(routing.startsWith("query") ? "query" : "segment");
      selector = table.selector(DialInstanceSelectorTest.runtime(weights), zooKeeper);
    }
    segments = table.segments();
    request.setPinotQuery(new PinotQuery());
  }

  /** Each segment on three of six servers, never the same three as its neighbour in the list. */
  private static Table mixed() {
    List<String> six =
        List.of("Server_a_1", "Server_b_1", "Server_c_1", "Server_d_1", "Server_e_1", "Server_f_1");
    Table table = new Table();
    for (int i = 0; i < SEGMENTS; i++) {
      List<String> three =
          List.of(six.get(i % 6), six.get((i + 1 + i % 2) % 6), six.get((i + 3 + i % 2) % 6));
      table.place("s" + i, three, three);
    }
    return table;
  }

  @TearDown(Level.Trial)
  public void stop() throws Exception {
    zooKeeper.close();
    FileUtils.deleteDirectory(folder.toFile());
  }

  /** One query. */
  @Benchmark
  public Object choose() {
    return selector.select(request, segments, id++);
  }
}
