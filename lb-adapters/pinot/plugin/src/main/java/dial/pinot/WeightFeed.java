package dial.pinot;

import java.io.IOException;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.DoubleSupplier;
import org.apache.helix.store.zk.ZkHelixPropertyStore;
import org.apache.helix.zookeeper.datamodel.ZNRecord;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Follows the controller's weights for ever: one thread, one source, whatever happens to it.
 *
 * <p>A source blocks until it has something; what it gives is checked and offered to {@link
 * HeldWeights}. Whatever goes wrong is counted, said once until it gets better, and tried again,
 * later each time up to {@link #LONGEST_PAUSE_MS}.
 */
final class WeightFeed implements Runnable {
  /** Where documents come from. Called by one thread. */
  interface Source {
    /**
     * Waits for the next document, for a while.
     *
     * @param held version in force, or -1
     * @return the document, or {@code null} if there is nothing new
     * @throws IOException if there is no way to know; it says why
     */
    byte[] next(long held) throws IOException, InterruptedException;
  }

  private static final Logger LOGGER = LoggerFactory.getLogger(WeightFeed.class);

  /** Between two looks, so that no answer, however wrong, makes this a busy loop. */
  static final long SHORTEST_PAUSE_MS = 50;

  /** A controller that was restarted is heard again within this time. */
  static final long LONGEST_PAUSE_MS = 1_000;

  private final Source source;
  private final String name;
  private final HeldWeights held;
  private final DoubleSupplier wallS;
  private final AtomicLong refused = new AtomicLong();
  private final AtomicLong failures = new AtomicLong();
  private String complaint = "";
  private String verdict = "";
  private boolean inForce;

  WeightFeed(Source source, String name, HeldWeights held, DoubleSupplier wallS) {
    this.source = source;
    this.name = name;
    this.held = held;
    this.wallS = wallS;
  }

  static WeightFeed of(
      Settings settings, ZkHelixPropertyStore<ZNRecord> propertyStore, HeldWeights held) {
    Source source;
    switch (settings.source) {
      case HTTP:
        source = new HttpSource(settings.weights, settings.token);
        break;
      case ZOOKEEPER:
        source = new ZooKeeperSource(propertyStore, settings.weights.getPath());
        break;
      default:
        source = new FileSource(java.nio.file.Path.of(settings.weights.getPath()));
    }
    return new WeightFeed(
        source, settings.weights.toString(), held, () -> System.currentTimeMillis() / 1e3);
  }

  void start() {
    Thread thread = new Thread(this, "dial-weights");
    thread.setDaemon(true);
    thread.start();
  }

  @Override
  public void run() {
    long pauseMs = SHORTEST_PAUSE_MS;
    while (!Thread.currentThread().isInterrupted()) {
      try {
        pauseMs = safeTurn() ? SHORTEST_PAUSE_MS : Math.min(2 * pauseMs, LONGEST_PAUSE_MS);
        Thread.sleep(pauseMs);
      } catch (InterruptedException stop) {
        return;
      }
    }
  }

  private boolean safeTurn() throws InterruptedException {
    try {
      return turn();
    } catch (RuntimeException | Error error) {
      failures.incrementAndGet(); // no memory even to say so, maybe: a later turn will
      return false;
    }
  }

  /** One look at the source; false if it did not go well. */
  boolean turn() throws InterruptedException {
    String wrong;
    try {
      Weights before = held.current(System.nanoTime());
      byte[] document = source.next(before == null ? -1 : before.version());
      if (document == null) {
        wrong = verdict; // a document that stays is no better than it was
      } else {
        wrong = take(document);
        verdict = wrong;
        if (!wrong.isEmpty()) {
          refused.incrementAndGet();
        }
      }
    } catch (IOException error) {
      failures.incrementAndGet();
      wrong = String.valueOf(error.getMessage());
    } catch (RuntimeException | Error error) {
      // An OutOfMemoryError is some query's, and over with it; nobody would start a thread anew.
      failures.incrementAndGet();
      wrong = error.toString();
    }
    say(wrong);
    return wrong.isEmpty();
  }

  /** What is wrong with a document, or nothing. */
  private String take(byte[] document) {
    try {
      Weights weights = Weights.parse(document);
      switch (held.offer(weights, System.nanoTime(), wallS.getAsDouble())) {
        case STALE:
          return "version " + weights.version() + " is older than what is in force";
        case UNTIMELY:
          return String.format(
              "stood by at %.1f s for %.1f s, which is not now: is the controller alive, and do the"
                  + " clocks agree?",
              weights.atS(), weights.validS());
        default:
          return "";
      }
    } catch (Weights.Malformed error) {
      return error.getMessage();
    }
  }

  private void say(String wrong) {
    // Numbers in it change each time; what is wrong does not.
    if (!wrong.replaceAll("[0-9.]+", "").equals(complaint.replaceAll("[0-9.]+", ""))) {
      if (!wrong.isEmpty()) {
        LOGGER.warn("DIAL: weights from {}: {}", name, wrong);
      } else {
        LOGGER.info("DIAL: weights from {} are well again", name);
      }
    }
    complaint = wrong;
    Weights weights = held.current(System.nanoTime());
    if ((weights != null) != inForce) {
      inForce = weights != null;
      if (inForce) {
        LOGGER.info("DIAL: weights in force, version {}", weights.version());
      } else {
        LOGGER.info("DIAL: no weights in force: even ones");
      }
    }
  }

  /** The weights in force, or {@code null}. */
  Weights weights() {
    return held.current(System.nanoTime());
  }

  /** Documents that were not taken. */
  long refused() {
    return refused.get();
  }

  /** Looks at the source that failed. */
  long failures() {
    return failures.get();
  }
}
