package dial.pinot;

import java.time.Clock;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.helix.model.ExternalView;
import org.apache.helix.model.IdealState;
import org.apache.helix.model.InstanceConfig;
import org.apache.pinot.broker.routing.instanceselector.InstanceSelector;
import org.apache.pinot.broker.routing.instanceselector.InstanceSelectorConfig;
import org.apache.pinot.broker.routing.instanceselector.InstanceSelectorFactory;
import org.apache.pinot.common.metrics.BrokerMetrics;
import org.apache.pinot.common.request.BrokerRequest;
import org.apache.pinot.common.request.PinotQuery;
import org.apache.pinot.common.utils.config.InstanceUtils;
import org.apache.pinot.core.transport.ServerInstance;
import org.apache.pinot.spi.config.table.RoutingConfig;
import org.apache.pinot.spi.config.table.TableConfig;
import org.apache.pinot.spi.config.table.TableCustomConfig;
import org.apache.pinot.spi.config.table.TableType;
import org.apache.pinot.spi.env.PinotConfiguration;
import org.apache.pinot.spi.metrics.PinotMetricUtils;
import org.apache.pinot.spi.utils.builder.TableConfigBuilder;

/** A table as the broker sees it: Helix's own objects, with segments placed as a test says. */
final class Table {
  static final String NAME = "events_OFFLINE";
  static final List<String> SERVERS =
      List.of("Server_127.0.0.2_8098", "Server_127.0.0.3_8098", "Server_127.0.0.4_8098");

  final IdealState idealState = new IdealState(NAME);
  final ExternalView externalView = new ExternalView(NAME);
  final Set<String> enabled = new HashSet<>();
  private final Map<String, String> custom = new HashMap<>();
  private final Map<String, ServerInstance> pools = new HashMap<>();
  BrokerMetrics brokerMetrics = metrics();

  /** Segments s0, s1, ... on all of the three servers. */
  static Table replicated(int segments) {
    Table table = new Table();
    for (int i = 0; i < segments; i++) {
      table.place("s" + i, SERVERS, SERVERS);
    }
    return table;
  }

  /** One segment: where it should be, and where it is online. */
  void place(String segment, List<String> ideal, List<String> online) {
    Map<String, String> wanted = new TreeMap<>();
    Map<String, String> there = new TreeMap<>();
    ideal.forEach(server -> wanted.put(server, "ONLINE"));
    online.forEach(server -> there.put(server, "ONLINE"));
    idealState.getRecord().setMapField(segment, wanted);
    externalView.getRecord().setMapField(segment, there);
    enabled.addAll(ideal);
  }

  Table mode(String mode) {
    custom.put("dial.mode", mode);
    return this;
  }

  List<String> segments() {
    return new ArrayList<>(idealState.getRecord().getMapFields().keySet());
  }

  Set<String> online() {
    return new HashSet<>(idealState.getRecord().getMapFields().keySet());
  }

  TableConfig config(String selector) {
    return new TableConfigBuilder(TableType.OFFLINE)
        .setTableName("events")
        .setNumReplicas(3)
        .setRoutingConfig(new RoutingConfig(null, null, selector, false))
        .setCustomConfig(new TableCustomConfig(custom))
        .build();
  }

  static BrokerMetrics metrics() {
    return new BrokerMetrics(PinotMetricUtils.getPinotMetricsRegistry());
  }

  /** Each server in a pool of its own, as where there are replica groups. */
  Table inPools() {
    for (String server : SERVERS) {
      InstanceConfig config = new InstanceConfig(server);
      String pool = String.valueOf(pools.size() + 1);
      config.getRecord().setMapField(InstanceUtils.POOL_KEY, Map.of("DefaultTenant_OFFLINE", pool));
      pools.put(server, new ServerInstance(config));
    }
    return this;
  }

  Map<String, ServerInstance> servers() {
    return pools;
  }

  /** Ours, with the weights that {@code runtime} holds. */
  DialInstanceSelector selector(DialRuntime runtime, EmbeddedZooKeeper zooKeeper) {
    DialInstanceSelector selector = new DialInstanceSelector(runtime);
    init(selector, zooKeeper);
    return selector;
  }

  void init(InstanceSelector selector, EmbeddedZooKeeper zooKeeper) {
    selector.init(
        config(DialInstanceSelector.class.getName()),
        zooKeeper.store,
        brokerMetrics,
        null,
        Clock.systemUTC(),
        new InstanceSelectorConfig(false, 300, false),
        enabled,
        servers(),
        idealState,
        externalView,
        online());
  }

  /** Whatever Pinot makes of the table's configuration. */
  InstanceSelector fromPinot(String selector, EmbeddedZooKeeper zooKeeper) {
    return InstanceSelectorFactory.getInstanceSelector(
        config(selector),
        zooKeeper.store,
        metrics(),
        new PinotConfiguration(),
        enabled,
        servers(),
        idealState,
        externalView,
        online());
  }

  /** Segment to server, of the segments that a query must have. */
  static Map<String, String> select(InstanceSelector selector, List<String> segments, long id) {
    return select(selector, segments, id, Map.of()).getSegmentToInstanceMap();
  }

  static InstanceSelector.SelectionResult select(
      InstanceSelector selector, List<String> segments, long id, Map<String, String> options) {
    PinotQuery query = new PinotQuery();
    query.setQueryOptions(options);
    BrokerRequest request = new BrokerRequest();
    request.setPinotQuery(query);
    return selector.select(request, segments, id);
  }
}
