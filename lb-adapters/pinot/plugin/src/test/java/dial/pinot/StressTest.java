package dial.pinot;

import static dial.pinot.Table.SERVERS;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.pinot.broker.routing.instanceselector.InstanceSelector;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Queries while weights, servers, segments and the selector itself change. */
class StressTest {
  private static final int THREADS = 4;
  private static final int CHANGES = 2_000;

  @Test
  void noChoiceIsEverIncompleteOrTornWhileEverythingChanges(@TempDir Path folder) throws Exception {
    try (EmbeddedZooKeeper zooKeeper = new EmbeddedZooKeeper(folder)) {
      HeldWeights held = new HeldWeights();
      DialRuntime runtime = new DialRuntime(held, new Draw(1));
      Table table = Table.replicated(12);
      List<String> segments = table.segments();
      DialInstanceSelector[] selector = {table.selector(runtime, zooKeeper)};
      AtomicBoolean stop = new AtomicBoolean();
      AtomicLong queries = new AtomicLong();
      ExecutorService threads = Executors.newFixedThreadPool(THREADS);
      try {
        List<Future<?>> asking = new ArrayList<>();
        for (int thread = 0; thread < THREADS; thread++) {
          Callable<Void> ask =
              () -> {
                while (!stop.get()) {
                  InstanceSelector now;
                  synchronized (selector) {
                    now = selector[0];
                  }
                  InstanceSelector.SelectionResult result =
                      Table.select(now, segments, queries.incrementAndGet(), Map.of());
                  Map<String, String> chosen = result.getSegmentToInstanceMap();
                  // s0 to s11 always have two replicas or more: each has a server, and a query one.
                  assertEquals(12, chosen.size());
                  assertEquals(1, new HashSet<>(chosen.values()).size());
                  assertTrue(SERVERS.containsAll(chosen.values()));
                }
                return null;
              };
          asking.add(threads.submit(ask));
        }
        change(table, selector, held, runtime, zooKeeper);
        stop.set(true);
        for (Future<?> future : asking) {
          future.get();
        }
      } finally {
        stop.set(true);
        threads.shutdownNow();
      }
      assertEquals(0, runtime.fallbacks());
      assertTrue(queries.get() > CHANGES, queries + " queries");
    }
  }

  private static void change(
      Table table,
      DialInstanceSelector[] selector,
      HeldWeights held,
      DialRuntime runtime,
      EmbeddedZooKeeper zooKeeper) {
    for (int i = 1; i <= CHANGES; i++) {
      String weights =
          String.format(
              "{\"%s\":%d,\"%s\":%d,\"%s\":%d}",
              SERVERS.get(0), i % 3, SERVERS.get(1), i % 5, SERVERS.get(2), i % 7);
      Weights parsed = Documents.parse(Documents.now(i, weights));
      held.offer(parsed, System.nanoTime(), parsed.atS());
      String server = SERVERS.get(i % 3);
      if (i % 2 == 0) { // a server goes, and comes back
        HashSet<String> enabled = new HashSet<>(SERVERS);
        enabled.remove(server);
        selector[0].onInstancesChange(enabled, List.of(server));
        selector[0].onInstancesChange(new HashSet<>(SERVERS), List.of(server));
      }
      if (i % 50 == 0) { // a segment arrives
        table.place("new" + i, SERVERS, SERVERS.subList(0, 1));
        selector[0].onAssignmentChange(table.idealState, table.externalView, table.online());
      }
      if (i % 200 == 0) { // the table's configuration changes
        DialInstanceSelector next = table.selector(runtime, zooKeeper);
        synchronized (selector) {
          selector[0] = next;
        }
      }
    }
  }
}
