package dial.pinot;

import java.io.IOException;
import java.io.InputStream;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Locale;
import java.util.function.UnaryOperator;

/**
 * What the operator says to the plugin, once for the whole broker.
 *
 * <p>A selector sees its table's configuration, never the broker's, so these come as JVM properties
 * ({@code -Ddial.weights=...} in {@code JAVA_OPTS}) or from the environment ({@code DIAL_WEIGHTS}):
 *
 * <table>
 *   <caption>Settings</caption>
 *   <tr><td>{@code dial.weights}</td><td>{@code http://host:9180/v1/weights} (or https),
 *     {@code zookeeper:/DIAL/weights} (a path in Pinot's property store) or {@code file:/path};
 *     required</td></tr>
 *   <tr><td>{@code dial.telemetry}</td><td>{@code http://host:9181/v1/queries}: where lines of the
 *     query log go, without the query; nowhere if not given</td></tr>
 *   <tr><td>{@code dial.token.file}</td><td>file that holds the token for both</td></tr>
 *   <tr><td>{@code dial.seed}</td><td>whole number; the same choices for the same
 *   requests</td></tr>
 * </table>
 */
final class Settings {
  /** Where weights come from. */
  enum Source {
    HTTP,
    ZOOKEEPER,
    FILE
  }

  /** Of a file with a token; longer is another file. */
  private static final int MAX_TOKEN_BYTES = 4_096;

  final Source source;
  final URI weights;
  final URI telemetry;
  final String token;
  final long seed;

  /** A setting that cannot be used: names it, its value and what is allowed. */
  static final class Wrong extends Exception {
    private static final long serialVersionUID = 1L;

    Wrong(String message) {
      super(message);
    }
  }

  private Settings(Source source, URI weights, URI telemetry, String token, long seed) {
    this.source = source;
    this.weights = weights;
    this.telemetry = telemetry;
    this.token = token;
    this.seed = seed;
  }

  /**
   * Reads and checks the settings.
   *
   * @param read the value of a name such as {@code dial.weights}, or {@code null}
   * @param defaultSeed where none is set
   * @throws Wrong if one cannot be used
   */
  static Settings of(UnaryOperator<String> read, long defaultSeed) throws Wrong {
    String weights = read.apply("dial.weights");
    if (weights == null || weights.isEmpty()) {
      throw new Wrong(
          "dial.weights is not set; allowed: http://HOST:PORT/v1/weights, zookeeper:/PATH,"
              + " file:/PATH");
    }
    URI uri = uri("dial.weights", weights);
    Source source;
    switch (String.valueOf(uri.getScheme()).toLowerCase(Locale.ROOT)) {
      case "http":
      case "https":
        source = Source.HTTP;
        break;
      case "zookeeper":
        source = Source.ZOOKEEPER;
        break;
      case "file":
        source = Source.FILE;
        break;
      default:
        throw new Wrong(
            "dial.weights = '" + weights + "': must begin with http:, https:, zookeeper: or file:");
    }
    if (source == Source.HTTP ? uri.getHost() == null : !isPath(uri)) {
      throw new Wrong(
          "dial.weights = '" + weights + "': must name a host, or an absolute path as file:/PATH");
    }
    String telemetryText = read.apply("dial.telemetry");
    URI telemetry = null;
    if (telemetryText != null && !telemetryText.isEmpty()) {
      telemetry = uri("dial.telemetry", telemetryText);
      if (telemetry.getHost() == null || !String.valueOf(telemetry.getScheme()).matches("https?")) {
        throw new Wrong("dial.telemetry = '" + telemetryText + "': must be http://HOST:PORT/PATH");
      }
    }
    return new Settings(source, uri, telemetry, token(read), seed(read, defaultSeed));
  }

  /** JVM property, else environment: {@code dial.token.file} and {@code DIAL_TOKEN_FILE}. */
  static String fromProcess(String name) {
    String value = System.getProperty(name);
    return value != null ? value : System.getenv(name.toUpperCase(Locale.ROOT).replace('.', '_'));
  }

  private static boolean isPath(URI uri) {
    return uri.getAuthority() == null && uri.getPath() != null && uri.getPath().matches("/.*[^/]");
  }

  private static URI uri(String name, String value) throws Wrong {
    try {
      return URI.create(value);
    } catch (IllegalArgumentException error) {
      throw new Wrong(name + " = '" + value + "': not an address");
    }
  }

  private static String token(UnaryOperator<String> read) throws Wrong {
    String file = read.apply("dial.token.file");
    if (file == null || file.isEmpty()) {
      return null;
    }
    byte[] content;
    try {
      Path path = Path.of(file);
      if (Files.exists(path) && !Files.isRegularFile(path)) {
        throw new Wrong("dial.token.file = '" + file + "': must be a regular file");
      }
      try (InputStream stream = Files.newInputStream(path)) {
        content = stream.readNBytes(MAX_TOKEN_BYTES + 1);
      }
    } catch (IOException | RuntimeException error) {
      throw new Wrong("dial.token.file = '" + file + "': cannot be read");
    }
    String token = new String(content, StandardCharsets.ISO_8859_1).trim();
    if (content.length > MAX_TOKEN_BYTES || !token.matches("[\\x21-\\x7e]+")) {
      throw new Wrong("dial.token.file = '" + file + "': holds no single printable token");
    }
    return token;
  }

  private static long seed(UnaryOperator<String> read, long defaultSeed) throws Wrong {
    String text = read.apply("dial.seed");
    try {
      return text == null || text.isEmpty() ? defaultSeed : Long.parseLong(text);
    } catch (NumberFormatException error) {
      throw new Wrong("dial.seed = '" + text + "': must be a whole number");
    }
  }
}
