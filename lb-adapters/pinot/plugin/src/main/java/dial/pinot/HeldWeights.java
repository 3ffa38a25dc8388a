package dial.pinot;

/**
 * The last good weights: what is taken, in which order, and until when it holds.
 *
 * <ul>
 *   <li>A document is newer if its version is higher, or if it is of the same version and stands by
 *       it later: that renews. An older one is refused; versions never go backwards.
 *   <li>Weights hold for {@code valid_s} from the moment the controller stood by them. Then they
 *       are forgotten, order included: a controller whose clock was set back would be refused for
 *       ever otherwise.
 *   <li>A document that is past its time when it comes (a file that a dead controller left, an
 *       answer that was stuck on its way) is refused, and so is one from a future as far away: both
 *       clocks must agree to within {@code valid_s}.
 * </ul>
 *
 * <p>Expiry goes by the monotonic clock, so that setting the broker's clock neither ends nor
 * prolongs weights. Reading is one volatile read.
 */
final class HeldWeights {
  /** What became of a document. */
  enum Offer {
    /** Other weights than before are in force now. */
    TAKEN,
    /** The same, for longer. */
    RENEWED,
    /** The document in force, seen again. */
    UNCHANGED,
    /** Older than what is in force. */
    STALE,
    /** Past its time, or from the future. */
    UNTIMELY
  }

  private static final class Held {
    private final Weights weights;
    private final long expiresNanos;

    private Held(Weights weights, long expiresNanos) {
      this.weights = weights;
      this.expiresNanos = expiresNanos;
    }
  }

  private volatile Held held;

  /**
   * Takes a document if it is newer.
   *
   * @param nowNanos monotonic clock
   * @param wallS seconds since the epoch by this machine's clock
   */
  synchronized Offer offer(Weights weights, long nowNanos, double wallS) {
    double ageS = wallS - weights.atS();
    if (Math.abs(ageS) >= weights.validS()) {
      return Offer.UNTIMELY;
    }
    Weights before = current(nowNanos);
    if (before != null) {
      if (weights.version() < before.version()) {
        return Offer.STALE;
      }
      if (weights.version() == before.version() && weights.atS() <= before.atS()) {
        return weights.atS() == before.atS() ? Offer.UNCHANGED : Offer.STALE;
      }
    }
    double leftS = weights.validS() - Math.max(0.0, ageS);
    held = new Held(weights, nowNanos + (long) (leftS * 1e9));
    return before != null && weights.version() == before.version() ? Offer.RENEWED : Offer.TAKEN;
  }

  /** The weights in force, or {@code null} where there are none or they have expired. */
  Weights current(long nowNanos) {
    Held now = held;
    return now == null || nowNanos - now.expiresNanos >= 0 ? null : now.weights;
  }
}
