package dial.pinot;

import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.helix.store.zk.ZkHelixPropertyStore;
import org.apache.helix.zookeeper.datamodel.ZNRecord;
import org.apache.pinot.common.metrics.BrokerMetrics;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What all selectors of one broker share: settings, weights, telemetry, metrics.
 *
 * <p>Pinot makes a new selector whenever a table's configuration changes and never tells the old
 * one, so nothing that has a thread or a connection may belong to a selector. This is made with the
 * first of them and lives as long as the process; its threads are daemons.
 */
final class DialRuntime {
  private static final Logger LOGGER = LoggerFactory.getLogger(DialRuntime.class);
  private static final long COMPLAIN_EVERY_NANOS = 60_000_000_000L;
  private static DialRuntime ofThisBroker;

  private final HeldWeights held;
  private final Draw draw;
  private final boolean balanced;
  private final AtomicLong fallbacks = new AtomicLong();
  private final AtomicLong complainedNanos =
      new AtomicLong(System.nanoTime() - COMPLAIN_EVERY_NANOS);

  /**
   * Made by {@link #ofThisBroker}, and by tests.
   *
   * @param held where the feed puts weights, or {@code null} for Pinot's balanced routing
   */
  DialRuntime(HeldWeights held, Draw draw) {
    this.held = held;
    this.draw = draw;
    this.balanced = held == null;
  }

  /** The one of this process, made and started when it is first asked for; never fails. */
  static synchronized DialRuntime ofThisBroker(
      ZkHelixPropertyStore<ZNRecord> propertyStore, BrokerMetrics metrics) {
    if (ofThisBroker == null) {
      ofThisBroker = start(propertyStore, metrics);
    }
    return ofThisBroker;
  }

  private static DialRuntime start(
      ZkHelixPropertyStore<ZNRecord> propertyStore, BrokerMetrics metrics) {
    DialRuntime runtime;
    WeightFeed feed = null;
    Telemetry telemetry = null;
    try {
      Settings settings =
          Settings.of(Settings::fromProcess, ThreadLocalRandom.current().nextLong());
      HeldWeights held = new HeldWeights();
      feed = WeightFeed.of(settings, propertyStore, held);
      runtime = new DialRuntime(held, new Draw(settings.seed));
      feed.start();
      LOGGER.info("DIAL: weights from {}", settings.weights);
      telemetry = Telemetry.startIfSet(settings, feed);
    } catch (Settings.Wrong wrong) {
      LOGGER.error(
          "DIAL: {}; routing is Pinot's balanced until the broker is restarted",
          wrong.getMessage());
      runtime = new DialRuntime(null, new Draw(0));
    } catch (RuntimeException | Error error) {
      // Errors too (no memory for a thread): what leaves this takes the table down.
      LOGGER.error("DIAL: cannot start; routing is Pinot's balanced", error);
      runtime = new DialRuntime(null, new Draw(0));
    }
    Gauges.register(metrics, runtime, feed, telemetry);
    return runtime;
  }

  /** Whether routing is left to Pinot. */
  boolean isBalanced() {
    return balanced;
  }

  /** The weights in force, or {@code null}: even ones. */
  Weights weights() {
    return held == null ? null : held.current(System.nanoTime());
  }

  Draw draw() {
    return draw;
  }

  /** One query was routed by Pinot's balanced routing because ours failed. */
  void countFallback(String table, Throwable error) {
    fallbacks.incrementAndGet();
    long now = System.nanoTime();
    long last = complainedNanos.get();
    if (now - last >= COMPLAIN_EVERY_NANOS && complainedNanos.compareAndSet(last, now)) {
      LOGGER.error(
          "DIAL: choice failed for table {}; Pinot's balanced routing took over", table, error);
    }
  }

  long fallbacks() {
    return fallbacks.get();
  }
}
