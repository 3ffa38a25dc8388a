package dial.pinot;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.StreamReadFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;

/**
 * One document of the weight feed, checked; the same format over HTTP, ZooKeeper and a file.
 *
 * <pre>
 * {"format": 1, "version": 1795211945123456, "at_s": 1795211950.5, "valid_s": 30,
 *  "weights": {"Server_10.0.0.1_8098": 24, "Server_10.0.0.2_8098": 138}}
 * </pre>
 *
 * <p>{@code docs/wire-formats.md} has the fields. Members that are not known are ignored, so that a
 * controller may be newer than its brokers.
 */
final class Weights {
  static final int FORMAT = 1;

  /** Ten thousand servers take 400 kB; whatever is longer is no document of ours. */
  static final int MAX_BYTES = 1 << 20;

  private static final int MAX_SERVERS = 10_000;
  private static final double MAX_VALID_S = 86_400.0;
  private static final double MAX_WEIGHT = 1e6;
  private static final ObjectMapper JSON =
      new ObjectMapper(
          JsonFactory.builder().enable(StreamReadFeature.STRICT_DUPLICATE_DETECTION).build());

  private final long version;
  private final double atS;
  private final double validS;
  private final Map<String, Weight> byServer;
  private final double mean;

  /** A number without a box around it. */
  private static final class Weight {
    private final double value;

    private Weight(double value) {
      this.value = value;
    }
  }

  /** Not a document that can be used; the message says what is wrong, and where. */
  static final class Malformed extends Exception {
    private static final long serialVersionUID = 1L;

    Malformed(String message) {
      super(message);
    }
  }

  private Weights(long version, double atS, double validS, Map<String, Weight> byServer) {
    this.version = version;
    this.atS = atS;
    this.validS = validS;
    this.byServer = byServer;
    double sum = 0.0;
    for (Weight weight : byServer.values()) {
      sum += weight.value;
    }
    this.mean = sum / byServer.size();
  }

  /**
   * Reads a document.
   *
   * @throws Malformed if it is anything but a document of this format with sound values
   */
  static Weights parse(byte[] document) throws Malformed {
    if (document.length > MAX_BYTES) {
      throw new Malformed(document.length + " bytes; at most " + MAX_BYTES + " are read");
    }
    JsonNode root;
    try {
      root = JSON.readTree(document);
    } catch (IOException | StackOverflowError error) {
      throw new Malformed("not JSON");
    }
    if (root == null || !root.isObject()) {
      throw new Malformed("not a JSON object");
    }
    if (!root.path("format").isInt() || root.path("format").intValue() != FORMAT) {
      throw new Malformed("format: must be " + FORMAT);
    }
    JsonNode version = root.path("version");
    if (!version.isIntegralNumber() || !version.canConvertToLong() || version.longValue() < 0) {
      throw new Malformed("version: must be a whole number from 0 on");
    }
    return new Weights(
        version.longValue(),
        number(root, "at_s", 0.0, 1e12),
        number(root, "valid_s", 0.001, MAX_VALID_S),
        servers(root.path("weights")));
  }

  private static double number(JsonNode node, String name, double least, double most)
      throws Malformed {
    double value = node.path(name).isNumber() ? node.path(name).doubleValue() : Double.NaN;
    if (!(value >= least && value <= most)) {
      throw new Malformed(name + ": must be a number from " + least + " to " + most);
    }
    return value;
  }

  private static Map<String, Weight> servers(JsonNode weights) throws Malformed {
    if (!weights.isObject() || weights.size() == 0 || weights.size() > MAX_SERVERS) {
      throw new Malformed("weights: must be an object of 1 to " + MAX_SERVERS + " servers");
    }
    Map<String, Weight> byServer = new HashMap<>(2 * weights.size());
    for (Iterator<String> names = weights.fieldNames(); names.hasNext(); ) {
      String name = names.next();
      try {
        byServer.put(name, new Weight(number(weights, name, 0.0, MAX_WEIGHT)));
      } catch (Malformed error) {
        throw new Malformed("weights: a weight must be a number from 0 to " + MAX_WEIGHT);
      }
    }
    return byServer;
  }

  /** Grows with each change of the weights. */
  long version() {
    return version;
  }

  /** When the controller last stood by these weights, seconds since the epoch by its clock. */
  double atS() {
    return atS;
  }

  /** For how long they hold from then on. */
  double validS() {
    return validS;
  }

  /**
   * Weight of a server; of one that is not named, the mean of those that are.
   *
   * <p>A server that has just joined is as good as any until something is known of it; 0 would keep
   * it idle until the controller's next word, which may never come.
   */
  double of(String server) {
    Weight weight = byServer.get(server);
    return weight == null ? mean : weight.value;
  }
}
