package dial.pinot;

/**
 * Numbers in [0, 1) that tell which replica a query, or one of its segments, goes to.
 *
 * <p><b>Problem.</b> Hand out queries by weight, without a lock, the same way for the same request
 * id, and as evenly as a weighted round robin would: independent draws send two queries in a row to
 * one server far too often, and a queue pays for that.
 *
 * <p><b>Formula.</b> A Weyl sequence, u = frac(seed + k g): request k, g the golden ratio's
 * fraction. Of any n successive requests the share that falls into an interval differs from its
 * length by O(log n / n), where independent draws differ by O(1 / sqrt n). Segment j of a query
 * adds j h with h = sqrt 2 - 1, the next best step, so that a query's segments spread nearly as
 * evenly.
 *
 * <p><b>Regimes.</b> Ids are the broker's, for all tables. Where queries come in a fixed cycle of 8
 * or 13, those of one kind are spread as evenly in the long run, but some ten in a row to one server.
 *
 * <p><b>Source.</b> Niederreiter, "Random Number Generation and Quasi-Monte Carlo Methods", 3
 * (Kronecker sequences).
 */
final class Draw {
  /** 2^64 times (sqrt 5 - 1) / 2, the step that is hardest to approximate by a fraction. */
  private static final long GOLDEN = 0x9E3779B97F4A7C15L;

  /** 2^64 times sqrt 2 - 1. */
  private static final long SILVER = 0x6A09E667F3BCC909L;

  /** 2^-53: what a double has room for. */
  private static final double UNIT = 0x1p-53;

  private final long seed;

  Draw(long seed) {
    this.seed = seed;
  }

  /** The state of one query's draws. */
  long query(int requestId) {
    return seed + GOLDEN * requestId;
  }

  /** The state for the next segment of the same query. */
  static long next(long state) {
    return state + SILVER;
  }

  /** The state as a number in [0, 1). */
  static double unit(long state) {
    return (state >>> 11) * UNIT;
  }
}
