package dial.pinot;

import static dial.pinot.HeldWeights.Offer.RENEWED;
import static dial.pinot.HeldWeights.Offer.STALE;
import static dial.pinot.HeldWeights.Offer.TAKEN;
import static dial.pinot.HeldWeights.Offer.UNCHANGED;
import static dial.pinot.HeldWeights.Offer.UNTIMELY;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;

import org.junit.jupiter.api.Test;

class HeldWeightsTest {
  private static final long SECOND = 1_000_000_000L;
  private final HeldWeights held = new HeldWeights();

  /** Offers a document valid for 30 s; {@code at} is both clocks' seconds. */
  private HeldWeights.Offer offer(long version, double stoodByAtS, long at) {
    Weights weights =
        Documents.parse(Documents.document(version, stoodByAtS, 30.0, "{\"a\":1,\"b\":3}"));
    return held.offer(weights, at * SECOND, at);
  }

  @Test
  void atFirstThereAreNone() {
    assertNull(held.current(0));
  }

  @Test
  void weightsHoldUntilTheirTimeAndNoLonger() {
    assertEquals(TAKEN, offer(5, 100.0, 100));
    assertNotNull(held.current(130 * SECOND - 1));
    assertNull(held.current(130 * SECOND));
  }

  @Test
  void timeOnTheWayIsPartOfTheirTime() {
    assertEquals(TAKEN, offer(5, 90.0, 100)); // stood by 10 s ago: 20 s are left
    assertNotNull(held.current(120 * SECOND - 1));
    assertNull(held.current(120 * SECOND));
  }

  @Test
  void standingByTheSameVersionRenewsIt() {
    offer(5, 100.0, 100);
    assertEquals(RENEWED, offer(5, 120.0, 120));
    assertNotNull(held.current(149 * SECOND));
  }

  @Test
  void theSameDocumentSeenAgainRenewsNothing() {
    offer(5, 100.0, 100);
    assertEquals(UNCHANGED, offer(5, 100.0, 120));
    assertNull(held.current(130 * SECOND));
  }

  @Test
  void versionsNeverGoBackwardsWhileWeightsHold() {
    offer(5, 100.0, 100);
    assertEquals(STALE, offer(4, 110.0, 110));
    assertEquals(STALE, offer(5, 99.0, 110));
    assertEquals(5, held.current(110 * SECOND).version());
    assertEquals(TAKEN, offer(6, 90.0, 111)); // the version decides, not the stamp
  }

  @Test
  void afterExpiryAControllerWhoseClockWasSetBackIsHeardAgain() {
    offer(5_000, 100.0, 100);
    assertEquals(STALE, offer(4, 129.0, 129));
    assertEquals(TAKEN, offer(4, 131.0, 131));
  }

  @Test
  void whatADeadControllerLeftIsNotTaken() {
    assertEquals(UNTIMELY, offer(5, 69.0, 100));
    assertEquals(UNTIMELY, offer(5, 131.0, 100)); // nor what comes from the future
    assertNull(held.current(100 * SECOND));
  }

  @Test
  void aMonotonicClockThatIsNegativeOrWrapsDoesNoHarm() {
    Weights weights = Documents.parse(Documents.document(1, 100.0, 30.0, "{\"a\":1}"));
    long start = Long.MAX_VALUE - SECOND;
    held.offer(weights, start, 100.0);
    assertNotNull(held.current(start + 29 * SECOND));
    assertNull(held.current(start + 30 * SECOND));
  }
}
