package dial.pinot;

import static dial.pinot.Table.SERVERS;
import static dial.pinot.Table.select;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.pinot.broker.routing.instanceselector.BalancedInstanceSelector;
import org.apache.pinot.broker.routing.instanceselector.InstanceSelector;
import org.apache.pinot.common.metrics.BrokerMeter;
import org.apache.pinot.common.metrics.BrokerMetrics;
import org.apache.pinot.spi.metrics.PinotMeter;
import org.apache.pinot.spi.metrics.PinotMetricUtils;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class DialInstanceSelectorTest {
  private static final int QUERIES = 3_000;
  private static final String UNEVEN =
      String.format(
          "{\"%s\":5,\"%s\":50,\"%s\":45}", SERVERS.get(0), SERVERS.get(1), SERVERS.get(2));

  @TempDir static Path folder;
  private static EmbeddedZooKeeper zooKeeper;

  @BeforeAll
  static void start() throws Exception {
    zooKeeper = new EmbeddedZooKeeper(folder);
  }

  @AfterAll
  static void stop() {
    zooKeeper.close();
  }

  static DialRuntime runtime(String weights) {
    HeldWeights held = new HeldWeights();
    if (weights != null) {
      Weights parsed = Documents.parse(Documents.now(1, weights));
      held.offer(parsed, System.nanoTime(), parsed.atS());
    }
    return new DialRuntime(held, new Draw(42));
  }

  /** How many segments, or queries, each server gets over many queries. */
  private static Map<String, Integer> segmentsOf(InstanceSelector selector, List<String> segments) {
    Map<String, Integer> count = new TreeMap<>();
    for (int id = 0; id < QUERIES; id++) {
      select(selector, segments, id)
          .values()
          .forEach(server -> count.merge(server, 1, Integer::sum));
    }
    return count;
  }

  private static Map<String, Integer> queriesOf(InstanceSelector selector, List<String> segments) {
    Map<String, Integer> count = new TreeMap<>();
    for (int id = 0; id < QUERIES; id++) {
      new HashSet<>(select(selector, segments, id).values())
          .forEach(server -> count.merge(server, 1, Integer::sum));
    }
    return count;
  }

  @Test
  void aQueryMeetsOneServerAndServersMeetQueriesByWeight() {
    Table table = Table.replicated(12);
    DialInstanceSelector selector = table.selector(runtime(UNEVEN), zooKeeper);
    for (int id = 0; id < 100; id++) {
      Map<String, String> chosen = select(selector, table.segments(), id);
      assertEquals(12, chosen.size());
      assertEquals(1, new HashSet<>(chosen.values()).size());
    }
    Map<String, Integer> queries = queriesOf(selector, table.segments());
    // 5, 50 and 45 % of 3,000; a Weyl sequence is off by a few.
    assertEquals(150, queries.get(SERVERS.get(0)), 8);
    assertEquals(1_500, queries.get(SERVERS.get(1)), 8);
    assertEquals(1_350, queries.get(SERVERS.get(2)), 8);
  }

  @Test
  void perSegmentTheSegmentsFollowTheWeightsAndTheQueriesDoNot() {
    Table table = Table.replicated(12).mode("segment");
    DialInstanceSelector selector = table.selector(runtime(UNEVEN), zooKeeper);
    Map<String, Integer> segments = segmentsOf(selector, table.segments());
    assertEquals(0.05 * 36_000, segments.get(SERVERS.get(0)), 60);
    assertEquals(0.50 * 36_000, segments.get(SERVERS.get(1)), 60);
    // Independent draws would meet 1 - 0.95^12 = 46 % of the queries.  Of 12 steps of sqrt 2 - 1 no
    // two come closer than 0.07, so none falls twice into an interval of 0.05: 12 x 5 = 60 %.
    int queries = queriesOf(selector, table.segments()).get(SERVERS.get(0));
    assertEquals(0.60 * QUERIES, queries, 60);
  }

  @Test
  void withSegmentsOnSomeServersOnlyEachSegmentFollowsTheWeightsOfItsOwn() {
    Table table = new Table();
    table.place("ab", SERVERS.subList(0, 2), SERVERS.subList(0, 2));
    table.place("bc", SERVERS.subList(1, 3), SERVERS.subList(1, 3));
    DialInstanceSelector selector = table.selector(runtime(UNEVEN), zooKeeper);
    int abToA = 0;
    int bcToB = 0;
    for (int id = 0; id < QUERIES; id++) {
      Map<String, String> chosen = select(selector, table.segments(), id);
      abToA += chosen.get("ab").equals(SERVERS.get(0)) ? 1 : 0;
      bcToB += chosen.get("bc").equals(SERVERS.get(1)) ? 1 : 0;
    }
    assertEquals(QUERIES * 5.0 / 55.0, abToA, 8);
    assertEquals(QUERIES * 50.0 / 95.0, bcToB, 8);
  }

  @Test
  void theSameSeedGivesTheSameChoices() {
    Table table = Table.replicated(12);
    DialInstanceSelector one = table.selector(runtime(UNEVEN), zooKeeper);
    DialInstanceSelector other = table.selector(runtime(UNEVEN), zooKeeper);
    for (int id = 0; id < 200; id++) {
      assertEquals(select(one, table.segments(), id), select(other, table.segments(), id));
    }
  }

  @Test
  void withoutWeightsTheServersShareEvenly() {
    Table table = Table.replicated(12);
    Map<String, Integer> queries =
        queriesOf(table.selector(runtime(null), zooKeeper), table.segments());
    for (String server : SERVERS) {
      assertEquals(QUERIES / 3.0, queries.get(server), 8);
    }
  }

  @Test
  void aServerOfWeightZeroGetsNothing() {
    Table table = Table.replicated(12);
    String weights = UNEVEN.replace(":5,", ":0,");
    Map<String, Integer> queries =
        queriesOf(table.selector(runtime(weights), zooKeeper), table.segments());
    assertEquals(2, queries.size());
    assertTrue(!queries.containsKey(SERVERS.get(0)));
  }

  @Test
  void whereAllReplicasHaveWeightZeroTheyShareEvenly() {
    Table table = Table.replicated(12);
    String weights = UNEVEN.replaceAll(":\\d+", ":0");
    Map<String, Integer> queries =
        queriesOf(table.selector(runtime(weights), zooKeeper), table.segments());
    for (String server : SERVERS) {
      assertEquals(QUERIES / 3.0, queries.get(server), 8);
    }
  }

  @Test
  void aLostReplicaLeavesItsShareToTheOthersInProportion() {
    Table table = Table.replicated(12);
    DialInstanceSelector selector = table.selector(runtime(UNEVEN), zooKeeper);
    table.enabled.remove(SERVERS.get(1));
    selector.onInstancesChange(table.enabled, List.of(SERVERS.get(1)));
    Map<String, Integer> queries = queriesOf(selector, table.segments());
    assertEquals(2, queries.size());
    assertEquals(QUERIES * 5.0 / 50.0, queries.get(SERVERS.get(0)), 8);
  }

  @Test
  void theLastReplicaServesWhateverItsWeight() {
    Table table = Table.replicated(12);
    String weights = UNEVEN.replace(":5,", ":0,");
    DialInstanceSelector selector = table.selector(runtime(weights), zooKeeper);
    table.enabled.removeAll(SERVERS.subList(1, 3));
    selector.onInstancesChange(table.enabled, SERVERS.subList(1, 3));
    assertEquals(
        Map.of(SERVERS.get(0), QUERIES * 12), segmentsOf(selector, table.segments()));
  }

  @Test
  void aServerThatWasAddedGetsTheMeanWeight() {
    Table table = new Table();
    List<String> four = List.of(SERVERS.get(0), SERVERS.get(1), SERVERS.get(2), "Server_new_8098");
    table.place("s0", four, four);
    Map<String, Integer> queries =
        queriesOf(table.selector(runtime(UNEVEN), zooKeeper), table.segments());
    assertEquals(QUERIES / 4.0, queries.get("Server_new_8098"), 8); // 33.3 of 133.3
  }

  @Test
  void aNewSegmentThatIsNotOnlineYetIsOptional() {
    Table table = Table.replicated(3);
    DialInstanceSelector selector = table.selector(runtime(UNEVEN), zooKeeper);
    table.place("new", SERVERS, SERVERS.subList(1, 2));
    selector.onAssignmentChange(table.idealState, table.externalView, table.online());
    int served = 0;
    int optional = 0;
    for (int id = 0; id < QUERIES; id++) {
      InstanceSelector.SelectionResult result =
          select(selector, table.segments(), id, Map.of());
      assertTrue(result.getUnavailableSegments().isEmpty());
      assertEquals(
          4,
          result.getSegmentToInstanceMap().size()
              + result.getOptionalSegmentToInstanceMap().size());
      served += result.getSegmentToInstanceMap().containsKey("new") ? 1 : 0;
      optional += result.getOptionalSegmentToInstanceMap().containsKey("new") ? 1 : 0;
    }
    assertEquals(0.50 * QUERIES, served, 8);
    assertEquals(QUERIES, served + optional);
  }

  @Test
  void aSegmentThatIsNowhereIsReportedAsPinotDoes() {
    Table table = Table.replicated(2);
    table.place("lost", SERVERS, List.of());
    table.externalView.getRecord().getMapFields().get("lost").put(SERVERS.get(0), "ERROR");
    DialInstanceSelector selector = table.selector(runtime(UNEVEN), zooKeeper);
    InstanceSelector.SelectionResult result = select(selector, table.segments(), 1, Map.of());
    assertEquals(List.of("lost"), result.getUnavailableSegments());
    assertEquals(2, result.getSegmentToInstanceMap().size());
  }

  @Test
  void anEmptyQueryGivesAnEmptyChoice() {
    Table table = Table.replicated(2);
    DialInstanceSelector selector = table.selector(runtime(UNEVEN), zooKeeper);
    assertEquals(Map.of(), select(selector, List.of(), 1));
  }

  @Test
  void aQueryThatAsksForAFixedReplicaGetsIt() {
    Table table = Table.replicated(12);
    DialInstanceSelector selector = table.selector(runtime(UNEVEN), zooKeeper);
    InstanceSelector balanced = table.fromPinot("balanced", zooKeeper);
    Map<String, String> fixed = Map.of("useFixedReplica", "true");
    for (int id = 0; id < 50; id++) {
      assertEquals(
          select(balanced, table.segments(), id, fixed).getSegmentToInstanceMap(),
          select(selector, table.segments(), id, fixed).getSegmentToInstanceMap());
    }
  }

  @Test
  void withoutSettingsPinotsFactoryGetsASelectorThatRoutesAsBalancedDoes() {
    Table table = Table.replicated(12);
    InstanceSelector ours = table.fromPinot(DialInstanceSelector.class.getName(), zooKeeper);
    InstanceSelector balanced = table.fromPinot("balanced", zooKeeper);
    assertInstanceOf(DialInstanceSelector.class, ours);
    assertEquals(BalancedInstanceSelector.class, balanced.getClass());
    for (int id = 0; id < 200; id++) {
      assertEquals(select(balanced, table.segments(), id), select(ours, table.segments(), id));
    }
  }

  @Test
  void eachPoolIsMeteredOnceAQuery() {
    Map<String, Long> metered = new TreeMap<>();
    List<Long> all = new java.util.ArrayList<>();
    Table table = Table.replicated(100).mode("segment").inPools();
    table.brokerMetrics =
        new BrokerMetrics(PinotMetricUtils.getPinotMetricsRegistry()) {
          @Override
          public PinotMeter addMeteredValue(BrokerMeter meter, long count, String... tags) {
            metered.merge(tags[1], count, Long::sum);
            all.add(count);
            return null;
          }
        };
    DialInstanceSelector selector = table.selector(runtime(UNEVEN), zooKeeper);
    Map<String, String> chosen = select(selector, table.segments(), 1);
    for (int i = 0; i < SERVERS.size(); i++) {
      String server = SERVERS.get(i);
      long segments = chosen.values().stream().filter(server::equals).count();
      assertEquals(segments, metered.get(String.valueOf(i + 1)));
    }
    assertEquals(3, all.size());
  }

  @Test
  void aSelectorThatWasNeverInitialisedAsPinot15DoesRoutesAsBalancedDoes() throws Exception {
    Table table = Table.replicated(12);
    DialInstanceSelector selector = table.selector(runtime(UNEVEN), zooKeeper);
    // What a later Pinot leaves, whose init has a parameter more.
    java.lang.reflect.Field runtime = DialInstanceSelector.class.getDeclaredField("runtime");
    runtime.setAccessible(true);
    runtime.set(selector, null);
    InstanceSelector balanced = table.fromPinot("balanced", zooKeeper);
    for (int id = 0; id < 20; id++) {
      assertEquals(select(balanced, table.segments(), id), select(selector, table.segments(), id));
    }
  }

  @Test
  void anOptionThatIsWrongIsTheClientsErrorAndNoFailureOfTheChoice() {
    Table table = Table.replicated(12);
    DialRuntime runtime = runtime(UNEVEN);
    DialInstanceSelector selector = table.selector(runtime, zooKeeper);
    Map<String, String> wrong = Map.of("orderedPreferredPools", "first");
    assertThrows(
        NumberFormatException.class, () -> select(selector, table.segments(), 1, wrong));
    assertEquals(0, runtime.fallbacks());
  }

  @Test
  void aModeThatDoesNotExistIsTakenAsPerQuery() {
    Table table = Table.replicated(12).mode("sometimes");
    DialInstanceSelector selector = table.selector(runtime(UNEVEN), zooKeeper);
    assertEquals(1, new HashSet<>(select(selector, table.segments(), 3).values()).size());
  }

  @Test
  void whateverFailsInTheChoiceBalancedRoutingTakesOverAndIsCounted() {
    Table table = Table.replicated(12);
    DialRuntime broken = new DialRuntime(new HeldWeights(), null);
    DialInstanceSelector selector = table.selector(broken, zooKeeper);
    InstanceSelector balanced = table.fromPinot("balanced", zooKeeper);
    for (int id = 0; id < 20; id++) {
      assertEquals(select(balanced, table.segments(), id), select(selector, table.segments(), id));
    }
    assertEquals(20, broken.fallbacks());
  }
}
