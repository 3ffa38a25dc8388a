package dial.pinot;

import java.nio.charset.StandardCharsets;

/** Documents of the feed, for tests. */
final class Documents {
  private Documents() {}

  static byte[] document(long version, double atS, double validS, String weights) {
    return String.format(
            java.util.Locale.ROOT,
            "{\"format\": 1, \"version\": %d, \"at_s\": %.3f, \"valid_s\": %.3f, \"weights\": %s}",
            version,
            atS,
            validS,
            weights)
        .getBytes(StandardCharsets.UTF_8);
  }

  /** A document that is good now. */
  static byte[] now(long version, String weights) {
    return document(version, System.currentTimeMillis() / 1e3, 30.0, weights);
  }

  static Weights weights(String weights) {
    return parse(document(1, 1_000.0, 30.0, weights));
  }

  static Weights parse(byte[] document) {
    try {
      return Weights.parse(document);
    } catch (Weights.Malformed error) {
      throw new AssertionError(error);
    }
  }
}
