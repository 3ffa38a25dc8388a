package dial.pinot;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.HttpURLConnection;
import java.net.Proxy;
import java.net.URI;

/**
 * One exchange with the controller, bounded in time and size, past any proxy of the JVM.
 *
 * <p>The time is that of the answer's whole body, and of each read before it: who sends headers byte
 * by byte holds the thread, but the controller is whom the operator named.
 */
final class Http {
  private static final int CONNECT_MS = 2_000;

  private Http() {}

  /**
   * Sends a request and reads its answer.
   *
   * @param body JSON to post, or {@code null} to get
   * @param answerMs until the whole answer must be there
   * @param maxBytes of the answer
   * @throws IOException if there is none, it is no success, or it is too long
   */
  static byte[] exchange(URI uri, String token, byte[] body, int answerMs, int maxBytes)
      throws IOException {
    long deadlineNanos = System.nanoTime() + answerMs * 1_000_000L;
    HttpURLConnection connection = (HttpURLConnection) uri.toURL().openConnection(Proxy.NO_PROXY);
    try {
      connection.setConnectTimeout(CONNECT_MS);
      connection.setReadTimeout(answerMs);
      connection.setInstanceFollowRedirects(false); // the token is for this address only
      connection.setUseCaches(false);
      if (token != null) {
        connection.setRequestProperty("Authorization", "Bearer " + token);
      }
      if (body != null) {
        connection.setRequestMethod("POST");
        connection.setRequestProperty("Content-Type", "application/json");
        connection.setDoOutput(true);
        connection.setFixedLengthStreamingMode(body.length);
        connection.getOutputStream().write(body);
      }
      int status = connection.getResponseCode();
      if (status < 200 || status > 299) {
        throw new IOException("answered " + status);
      }
      try (InputStream stream = connection.getInputStream()) {
        return read(stream, deadlineNanos, maxBytes);
      }
    } catch (RuntimeException error) {
      throw new IOException(error.toString());
    } finally {
      connection.disconnect();
    }
  }

  private static byte[] read(InputStream stream, long deadlineNanos, int maxBytes)
      throws IOException {
    ByteArrayOutputStream all = new ByteArrayOutputStream();
    byte[] chunk = new byte[8192];
    for (int n = stream.read(chunk); n >= 0; n = stream.read(chunk)) {
      all.write(chunk, 0, n);
      if (all.size() > maxBytes) {
        throw new IOException("answered more than " + maxBytes + " bytes");
      }
      if (System.nanoTime() - deadlineNanos > 0) {
        throw new IOException("answers too slowly");
      }
    }
    return all.toByteArray();
  }
}
