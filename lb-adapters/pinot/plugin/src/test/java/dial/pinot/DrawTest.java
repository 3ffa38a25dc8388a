package dial.pinot;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

class DrawTest {
  @Test
  void theSameSeedAndRequestGiveTheSameNumber() {
    assertEquals(new Draw(7).query(123), new Draw(7).query(123));
  }

  @Test
  void numbersLieInTheUnitInterval() {
    assertEquals(0.0, Draw.unit(0L));
    assertEquals(0.5, Draw.unit(Long.MIN_VALUE)); // the highest bit alone
    assertTrue(Draw.unit(-1L) < 1.0); // all bits
  }

  @Test
  void threeHundredRequestsInARowSplitIntoThirdsWithinTwo() {
    // A Weyl sequence of the golden ratio: an interval's count is off by about log n / n of n.
    for (int first : new int[] {0, 1, 999, 123_456_789}) {
      Draw draw = new Draw(0x5eed * first);
      int[] count = new int[3];
      for (int k = 0; k < 300; k++) {
        count[(int) (3 * Draw.unit(draw.query(first + k)))]++;
      }
      for (int n : count) {
        assertTrue(Math.abs(n - 100) <= 3, "thirds of 300: " + java.util.Arrays.toString(count));
      }
    }
  }

  @Test
  void requestIdsInStepsOfTenSplitAsEvenly() {
    // As where every tenth query is the table's, in a broker that numbers all of them.
    Draw draw = new Draw(1);
    int first = 0;
    for (int k = 0; k < 1_000; k++) {
      first += Draw.unit(draw.query(10 * k)) < 0.05 ? 1 : 0;
    }
    assertTrue(Math.abs(first - 50) <= 5, "5 % of 1,000: " + first);
  }

  @Test
  void segmentsOfOneQuerySpreadEvenly() {
    int[] count = new int[3];
    long state = new Draw(3).query(17);
    for (int segment = 0; segment < 300; segment++) {
      state = Draw.next(state);
      count[(int) (3 * Draw.unit(state))]++;
    }
    for (int n : count) {
      assertTrue(Math.abs(n - 100) <= 4, java.util.Arrays.toString(count));
    }
  }
}
