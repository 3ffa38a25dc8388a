package dial.pinot;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicLong;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Posts the broker's query log to the controller, a few times a second, without the queries.
 *
 * <p>A query never waits for it: lines go into a bounded queue, and what does not fit, or cannot be
 * delivered at the first attempt, is forgotten and counted. Old times are worth nothing to a
 * controller that looks at the last second.
 *
 * <p>A post also says which weights are in force here; {@code docs/wire-formats.md} has its format.
 */
final class Telemetry implements Runnable {
  private static final Logger LOGGER = LoggerFactory.getLogger(Telemetry.class);

  /** A third of a tick of one second. */
  private static final long POST_EVERY_MS = 300;

  /** After a post that failed. */
  private static final long PAUSE_MS = 2_000;

  private static final int ANSWER_MS = 2_000;
  private static final int MAX_ANSWER_BYTES = 65_536;

  /** Of one line, as in the adapter: a query that met four thousand servers. */
  static final int MAX_LINE_CHARS = 262_000;

  /** Twenty seconds of a thousand queries a second that meet a server each, at 400 a line. */
  static final int MAX_QUEUED_CHARS = 8_000_000;

  /** Of one post: with what is around the lines less than 1 MiB, the usual limit of a proxy. */
  static final int MAX_POST_CHARS = 1_000_000;

  /** Of one post, as in the adapter. */
  private static final int MAX_LINES = 10_000;

  /** Around each line: its quotation marks and a comma. */
  private static final int AROUND = 3;

  private static final ObjectMapper JSON = new ObjectMapper();

  private final URI address;
  private final String token;
  private final WeightFeed feed;
  private final String sender = ManagementFactory.getRuntimeMXBean().getName();
  private final long startedMs = ManagementFactory.getRuntimeMXBean().getStartTime();
  private final Queue<String> queue = new ConcurrentLinkedQueue<>();
  private final AtomicLong queuedChars = new AtomicLong();
  private final AtomicLong dropped = new AtomicLong();
  private boolean failing;

  Telemetry(URI address, String token, WeightFeed feed) {
    this.address = address;
    this.token = token;
    this.feed = feed;
  }

  /** Begins to post if the settings say where to; otherwise, or if it cannot, there is none. */
  static Telemetry startIfSet(Settings settings, WeightFeed feed) {
    if (settings.telemetry == null) {
      return null;
    }
    Telemetry telemetry = new Telemetry(settings.telemetry, settings.token, feed);
    try {
      QueryLogTap.attach(telemetry::offer);
    } catch (RuntimeException | LinkageError error) {
      LOGGER.error("DIAL: the query log cannot be listened to; no telemetry", error);
      return null;
    }
    Thread thread = new Thread(telemetry, "dial-telemetry");
    thread.setDaemon(true);
    thread.start();
    LOGGER.info("DIAL: query log to {}", settings.telemetry);
    return telemetry;
  }

  /** Takes a message of the query log, or forgets it; never waits. */
  void offer(long atMs, String message) {
    String line = withoutQuery(message);
    if (line == null) {
      return;
    }
    String stamped = atMs + " " + line;
    int chars = stamped.length() + AROUND;
    if (chars > MAX_LINE_CHARS) {
      dropped.incrementAndGet();
    } else if (queuedChars.addAndGet(chars) > MAX_QUEUED_CHARS) {
      queuedChars.addAndGet(-chars);
      dropped.incrementAndGet();
    } else {
      queue.add(stamped);
    }
  }

  /**
   * What of a message is sent: everything before the CPU times, the client's address and the query.
   *
   * @return {@code null} for what is no finished query
   */
  static String withoutQuery(String message) {
    int stats = message.indexOf(",serverStats=");
    if (!message.startsWith("requestId=") || stats < 0) {
      return null;
    }
    int end = message.indexOf(",offlineThreadCpuTimeNs", stats);
    if (end < 0) {
      return null;
    }
    String line = message.substring(0, end);
    return line.indexOf('\n') < 0 && line.indexOf('\r') < 0 ? line : null;
  }

  @Override
  public void run() {
    while (!Thread.currentThread().isInterrupted()) {
      try {
        Thread.sleep(safePost() ? POST_EVERY_MS : PAUSE_MS);
      } catch (InterruptedException stop) {
        return;
      }
    }
  }

  private boolean safePost() {
    try {
      return post();
    } catch (RuntimeException | Error error) {
      return false; // an OutOfMemoryError is some query's, and over with it
    }
  }

  /** One post, of nothing too: that tells which weights are in force. False if it failed. */
  boolean post() {
    List<String> lines = take();
    try {
      byte[] body = JSON.writeValueAsBytes(body(lines));
      Http.exchange(address, token, body, ANSWER_MS, MAX_ANSWER_BYTES);
      if (failing) {
        LOGGER.info("DIAL: telemetry to {} is well again", address);
      }
      failing = false;
    } catch (IOException | RuntimeException | Error error) {
      dropped.addAndGet(lines.size());
      if (!failing) {
        LOGGER.warn("DIAL: telemetry to {}: {}; lines are dropped", address, error.toString());
      }
      failing = true;
    }
    return !failing;
  }

  /** As many of the oldest lines as one post may hold. */
  private List<String> take() {
    List<String> lines = new ArrayList<>();
    long chars = 0;
    for (String line = queue.peek(); line != null; line = queue.peek()) {
      chars += line.length() + AROUND;
      if (chars > MAX_POST_CHARS || lines.size() == MAX_LINES) {
        break;
      }
      lines.add(queue.remove());
      queuedChars.addAndGet(-(line.length() + AROUND));
    }
    return lines;
  }

  private ObjectNode body(List<String> lines) {
    ObjectNode body = JSON.createObjectNode();
    body.put("format", 1);
    body.put("sender", sender);
    body.put("started_ms", startedMs);
    body.put("dropped", dropped.get());
    Weights weights = feed.weights();
    if (weights == null) {
      body.putNull("weights_version");
    } else {
      body.put("weights_version", weights.version());
    }
    ArrayNode array = body.putArray("lines");
    lines.forEach(array::add);
    return body;
  }

  /** Lines that were never delivered. */
  long dropped() {
    return dropped.get();
  }
}
