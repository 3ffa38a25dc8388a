package dial.pinot;

import java.util.function.LongSupplier;
import org.apache.pinot.common.metrics.BrokerMetrics;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What the plugin does, among the broker's own metrics.
 *
 * <table>
 *   <caption>Gauges</caption>
 *   <tr><td>{@code dial.weightsInForce}</td><td>1 while the controller's weights are in force, 0
 *     while weights are even, -1 where routing is Pinot's balanced for want of settings</td></tr>
 *   <tr><td>{@code dial.weightsVersion}</td><td>version in force, or -1</td></tr>
 *   <tr><td>{@code dial.documentsRefused}</td><td>documents of the feed that were not
 *   taken</td></tr>
 *   <tr><td>{@code dial.feedFailures}</td><td>looks at the feed that failed</td></tr>
 *   <tr><td>{@code dial.fallbackQueries}</td><td>queries that Pinot's balanced routing took over
 *     because ours failed</td></tr>
 *   <tr><td>{@code dial.telemetryDropped}</td><td>lines of the query log that were not delivered
 *     </td></tr>
 * </table>
 */
final class Gauges {
  private static final Logger LOGGER = LoggerFactory.getLogger(Gauges.class);

  private Gauges() {}

  /** Registers them; the broker goes on without them if it cannot. */
  static void register(
      BrokerMetrics metrics, DialRuntime runtime, WeightFeed feed, Telemetry telemetry) {
    try {
      gauge(metrics, "dial.weightsInForce", () -> inForce(runtime));
      gauge(
          metrics,
          "dial.weightsVersion",
          () -> {
            Weights weights = runtime.weights();
            return weights == null ? -1L : weights.version();
          });
      gauge(metrics, "dial.fallbackQueries", runtime::fallbacks);
      if (feed != null) {
        gauge(metrics, "dial.documentsRefused", feed::refused);
        gauge(metrics, "dial.feedFailures", feed::failures);
      }
      if (telemetry != null) {
        gauge(metrics, "dial.telemetryDropped", telemetry::dropped);
      }
    } catch (RuntimeException | LinkageError error) {
      LOGGER.warn("DIAL: metrics are not available: {}", error.toString());
    }
  }

  private static void gauge(BrokerMetrics metrics, String name, LongSupplier value) {
    metrics.setOrUpdateGauge(name, value);
  }

  private static long inForce(DialRuntime runtime) {
    return runtime.isBalanced() ? -1L : runtime.weights() == null ? 0L : 1L;
  }
}
