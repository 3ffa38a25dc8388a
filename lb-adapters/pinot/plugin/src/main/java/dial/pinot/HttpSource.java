package dial.pinot;

import java.io.IOException;
import java.net.URI;
import java.util.concurrent.TimeUnit;

/**
 * Weights by long poll: {@code GET /v1/weights?after=VERSION} is answered when there are newer
 * ones, or when the controller stands by those in force once more.
 *
 * <p>The controller keeps an answer back for 5 s at most; {@link #ANSWER_MS} bounds what a frozen
 * one can take of this thread.
 */
final class HttpSource implements WeightFeed.Source {
  static final int ANSWER_MS = 10_000;

  /**
   * Between two questions that are the same: a controller with too many followers, or a proxy that
   * does not pass the version on, answers at once that there is nothing new.
   */
  static final int SAME_QUESTION_MS = 1_000;

  private final URI address;
  private final String token;
  private long answeredFor = -1;
  private long askedNanos;

  HttpSource(URI address, String token) {
    this.address = address;
    this.token = token;
  }

  @Override
  public byte[] next(long held) throws IOException, InterruptedException {
    if (held >= 0 && held == answeredFor) {
      TimeUnit.NANOSECONDS.sleep(askedNanos + SAME_QUESTION_MS * 1_000_000L - System.nanoTime());
    }
    answeredFor = -1;
    askedNanos = System.nanoTime();
    String separator = address.getQuery() == null ? "?" : "&";
    URI asked = held < 0 ? address : URI.create(address + separator + "after=" + held);
    byte[] document = Http.exchange(asked, token, null, ANSWER_MS, Weights.MAX_BYTES);
    answeredFor = held;
    return document;
  }
}
