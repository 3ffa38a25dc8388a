package dial.pinot;

import java.time.Clock;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.commons.lang3.tuple.Pair;
import org.apache.helix.model.ExternalView;
import org.apache.helix.model.IdealState;
import org.apache.helix.store.zk.ZkHelixPropertyStore;
import org.apache.helix.zookeeper.datamodel.ZNRecord;
import org.apache.pinot.broker.routing.adaptiveserverselector.AdaptiveServerSelector;
import org.apache.pinot.broker.routing.adaptiveserverselector.ServerSelectionContext;
import org.apache.pinot.broker.routing.instanceselector.BalancedInstanceSelector;
import org.apache.pinot.broker.routing.instanceselector.InstanceSelectorConfig;
import org.apache.pinot.broker.routing.instanceselector.SegmentInstanceCandidate;
import org.apache.pinot.broker.routing.instanceselector.SegmentStates;
import org.apache.pinot.common.metrics.BrokerMeter;
import org.apache.pinot.common.metrics.BrokerMetrics;
import org.apache.pinot.core.transport.ServerInstance;
import org.apache.pinot.spi.config.table.TableConfig;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Chooses a replica for each segment of a query by the weights that DIAL gives.
 *
 * <p><b>Problem.</b> Server i is to get the share w_i / sum w of the work, over whichever replicas
 * of a segment are online, decided for each query in microseconds.
 *
 * <p><b>Formula.</b> With u in [0, 1) from {@link Draw}, a segment goes to the first of its
 * replicas, in order of name, whose weights sum up to more than u times the weight of all its
 * replicas: the inverse of their distribution.
 *
 * <p><b>Modes</b>, by {@code dial.mode} in the table's custom configuration:
 *
 * <ul>
 *   <li>{@code query} (default): one u for the whole query. Segments with the same replicas go to
 *       the same one, so where each replica can serve all segments, a query meets one server, and a
 *       server with 5 % of the weight takes part in 5 % of the queries.
 *   <li>{@code segment}: a u for each segment. A query is spread over all replicas; a server with 5
 *       % of the weight takes part in 60 % of all queries of 12 segments, which are as slow as
 *       their slowest server.
 * </ul>
 *
 * <p><b>Regimes.</b> Weights in force: as above. None yet, or expired: the same with even weights,
 * so that what a query meets does not change with the controller's health. Where all of a segment's
 * replicas have weight 0: even among them. Where the plugin is misconfigured, a query asks for a
 * fixed replica, or anything at all goes wrong: Pinot's own balanced routing, counted, and said in
 * the log. A selector that failed to construct would take its table down.
 *
 * <p><b>Source.</b> Javadi and Gandhi, IEEE TCC 2019, 5.1, which changes routing tables; here there
 * are none to change.
 */
public class DialInstanceSelector extends BalancedInstanceSelector {
  private static final Logger LOGGER = LoggerFactory.getLogger(DialInstanceSelector.class);
  private static final String MODE = "dial.mode";

  private final DialRuntime given;
  /** Null until {@link #init}, and for ever under a Pinot that calls another one. */
  private DialRuntime runtime;

  private boolean perSegment;
  private boolean complained;

  /** For Pinot, which makes selectors by class name. */
  public DialInstanceSelector() {
    this(null);
  }

  DialInstanceSelector(DialRuntime given) {
    this.given = given;
  }

  @Override
  public void init(
      TableConfig tableConfig,
      ZkHelixPropertyStore<ZNRecord> propertyStore,
      BrokerMetrics brokerMetrics,
      AdaptiveServerSelector adaptiveServerSelector,
      Clock clock,
      InstanceSelectorConfig config,
      Set<String> enabledInstances,
      Map<String, ServerInstance> enabledServers,
      IdealState idealState,
      ExternalView externalView,
      Set<String> onlineSegments) {
    runtime = given != null ? given : DialRuntime.ofThisBroker(propertyStore, brokerMetrics);
    perSegment = isPerSegment(tableConfig);
    super.init(
        tableConfig,
        propertyStore,
        brokerMetrics,
        adaptiveServerSelector,
        clock,
        config,
        enabledInstances,
        enabledServers,
        idealState,
        externalView,
        onlineSegments);
  }

  private static boolean isPerSegment(TableConfig table) {
    Map<String, String> custom =
        table.getCustomConfig() == null ? null : table.getCustomConfig().getCustomConfigs();
    String mode = custom == null ? null : custom.get(MODE);
    if (mode != null && !mode.equals("query") && !mode.equals("segment")) {
      LOGGER.warn(
          "table {}: {} = '{}': must be 'query' or 'segment'; going on with 'query'",
          table.getTableName(),
          MODE,
          mode);
    }
    return "segment".equals(mode);
  }

  @Override
  public Pair<Map<String, String>, Map<String, String>> select(
      List<String> segments, int requestId, SegmentStates states, Map<String, String> options) {
    DialRuntime now = runtime;
    if (now == null) {
      complainOfInit();
    } else if (!now.isBalanced()) {
      try {
        if (!isPinots(options)) {
          return choose(now, segments, requestId, states, options);
        }
      } catch (RuntimeException | LinkageError error) {
        now.countFallback(_tableNameWithType, error);
      }
    }
    return super.select(segments, requestId, states, options);
  }

  private void complainOfInit() {
    if (!complained) {
      complained = true; // or twice, from two threads
      LOGGER.error(
          "DIAL: this Pinot initialises selectors in a way that the plugin does not know; routing"
              + " is Pinot's balanced");
    }
  }

  /** Whether options ask for a fixed replica, or are wrong, which Pinot tells the client. */
  private boolean isPinots(Map<String, String> options) {
    try {
      return new ServerSelectionContext(options, _config).isUseFixedReplica();
    } catch (IllegalArgumentException wrong) {
      return true;
    }
  }

  private Pair<Map<String, String>, Map<String, String>> choose(
      DialRuntime now,
      List<String> segments,
      int requestId,
      SegmentStates states,
      Map<String, String> options) {
    Weights weights = now.weights();
    long state = now.draw().query(requestId);
    Map<String, String> chosen = new HashMap<>((int) (segments.size() / 0.75f) + 1);
    // New segments only, for which no replica need be online yet.
    Map<String, String> optional = null;
    List<SegmentInstanceCandidate> lastReplicas = null;
    double[] upTo = null;
    int last = 0;
    int lastPool = 0;
    int inLastPool = 0;
    // Pools but the last one, where there are several: their metric costs more than the choice.
    Map<Integer, Integer> inPool = null;
    for (String segment : segments) {
      List<SegmentInstanceCandidate> replicas = states.getCandidates(segment);
      if (replicas == null) {
        continue; // reported as unavailable by the caller
      }
      boolean isOther = !sameServers(replicas, lastReplicas);
      if (isOther) {
        upTo = upTo(replicas, weights);
        lastReplicas = replicas;
      }
      if (perSegment) {
        state = Draw.next(state);
      }
      // With one u for all segments the same replicas give the same choice.
      if (perSegment || isOther) {
        last = pick(upTo, Draw.unit(state));
      }
      SegmentInstanceCandidate replica = replicas.get(last);
      if (replica.getPool() != lastPool && inLastPool > 0) {
        inPool = inPool == null ? new HashMap<>() : inPool;
        inPool.merge(lastPool, inLastPool, Integer::sum);
        inLastPool = 0;
      }
      lastPool = replica.getPool();
      inLastPool++;
      if (replica.isOnline()) {
        chosen.put(segment, replica.getInstance());
      } else {
        optional = optional == null ? new HashMap<>() : optional;
        optional.put(segment, replica.getInstance());
      }
    }
    if (inPool != null) {
      inPool.merge(lastPool, inLastPool, Integer::sum);
      inPool.forEach((pool, count) -> countPool(pool, count, options));
    } else if (inLastPool > 0) {
      countPool(lastPool, inLastPool, options);
    }
    return Pair.of(chosen, optional == null ? new HashMap<>() : optional);
  }

  private void countPool(int pool, int segments, Map<String, String> options) {
    _brokerMetrics.addMeteredValue(
        BrokerMeter.POOL_SEG_QUERIES,
        segments,
        BrokerMetrics.getTagForPreferredPool(options),
        String.valueOf(pool));
  }

  private static boolean sameServers(
      List<SegmentInstanceCandidate> replicas, List<SegmentInstanceCandidate> others) {
    if (others == null || replicas.size() != others.size()) {
      return false;
    }
    for (int i = 0; i < replicas.size(); i++) {
      if (!replicas.get(i).getInstance().equals(others.get(i).getInstance())) {
        return false;
      }
    }
    return true;
  }

  /**
   * Sums of the replicas' weights, each with all before it; of even ones where all are 0.
   *
   * @param weights in force, or {@code null} for even ones
   */
  static double[] upTo(List<SegmentInstanceCandidate> replicas, Weights weights) {
    double[] upTo = new double[replicas.size()];
    double sum = 0.0;
    if (weights != null) {
      for (int i = 0; i < upTo.length; i++) {
        sum += weights.of(replicas.get(i).getInstance());
        upTo[i] = sum;
      }
    }
    if (!(sum > 0.0)) {
      for (int i = 0; i < upTo.length; i++) {
        upTo[i] = i + 1;
      }
    }
    return upTo;
  }

  /**
   * Index of the replica that u falls to.
   *
   * @param upTo of the replicas
   * @param u in [0, 1)
   */
  static int pick(double[] upTo, double u) {
    int last = upTo.length - 1;
    double sum = upTo[last];
    double wanted = u * sum;
    for (int i = 0; i < last; i++) {
      if (wanted < upTo[i]) {
        return i;
      }
    }
    // Rounding: u times the sum may come to the whole sum, and the last one may have weight 0.
    while (last > 0 && wanted >= sum && upTo[last - 1] == sum) {
      last--;
    }
    return last;
  }
}
