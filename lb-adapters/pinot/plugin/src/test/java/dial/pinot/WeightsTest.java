package dial.pinot;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class WeightsTest {
  private static final String GOOD =
      "{\"format\":1,\"version\":7,\"at_s\":1000.5,\"valid_s\":30,\"weights\":{\"a\":1,\"b\":2}}";

  @Test
  void aDocumentIsReadAsItsFieldsSay() throws Exception {
    Weights weights = Weights.parse(GOOD.getBytes(StandardCharsets.UTF_8));
    assertEquals(7, weights.version());
    assertEquals(1000.5, weights.atS());
    assertEquals(30.0, weights.validS());
    assertEquals(2.0, weights.of("b"));
  }

  @Test
  void aServerThatIsNotNamedHasTheMeanWeight() {
    assertEquals(1.5, Documents.weights("{\"a\":1,\"b\":2}").of("new"));
  }

  @Test
  void membersOfANewerFormatAreIgnored() throws Exception {
    String newer = GOOD.replace("\"version\"", "\"service\":\"t\",\"more\":[1],\"version\"");
    assertEquals(7, Weights.parse(newer.getBytes(StandardCharsets.UTF_8)).version());
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "",
        "null",
        "[]",
        "<html>502 Bad Gateway</html>",
        "{\"format\":2,\"version\":7,\"at_s\":1,\"valid_s\":30,\"weights\":{\"a\":1}}",
        "{\"format\":1,\"version\":-1,\"at_s\":1,\"valid_s\":30,\"weights\":{\"a\":1}}",
        "{\"format\":1,\"version\":1.5,\"at_s\":1,\"valid_s\":30,\"weights\":{\"a\":1}}",
        "{\"format\":1,\"version\":99999999999999999999,\"at_s\":1,\"valid_s\":3,"
            + "\"weights\":{\"a\":1}}",
        "{\"format\":1,\"version\":7,\"at_s\":\"1\",\"valid_s\":30,\"weights\":{\"a\":1}}",
        "{\"format\":1,\"version\":7,\"at_s\":1e999,\"valid_s\":30,\"weights\":{\"a\":1}}",
        "{\"format\":1,\"version\":7,\"at_s\":1,\"valid_s\":0,\"weights\":{\"a\":1}}",
        "{\"format\":1,\"version\":7,\"at_s\":1,\"valid_s\":1e9,\"weights\":{\"a\":1}}",
        "{\"format\":1,\"version\":7,\"at_s\":1,\"valid_s\":30,\"weights\":{}}",
        "{\"format\":1,\"version\":7,\"at_s\":1,\"valid_s\":30,\"weights\":{\"a\":-1}}",
        "{\"format\":1,\"version\":7,\"at_s\":1,\"valid_s\":30,\"weights\":{\"a\":NaN}}",
        "{\"format\":1,\"version\":7,\"at_s\":1,\"valid_s\":30,\"weights\":{\"a\":null}}",
        "{\"format\":1,\"version\":7,\"at_s\":1,\"valid_s\":30,\"weights\":{\"a\":1,\"a\":2}}",
        "{\"format\":1,\"version\":7,\"at_s\":1,\"valid_s\":30}"
      })
  void whatIsNoDocumentIsRefusedWithOneLine(String text) {
    Weights.Malformed refusal =
        assertThrows(
            Weights.Malformed.class, () -> Weights.parse(text.getBytes(StandardCharsets.UTF_8)));
    assertFalse(refusal.getMessage().contains("\n"));
  }

  @Test
  void aDocumentOfMoreThanAMegabyteIsRefusedUnread() {
    assertThrows(Weights.Malformed.class, () -> Weights.parse(new byte[Weights.MAX_BYTES + 1]));
  }

  @Test
  void nestingADeepDocumentIsRefused() {
    String deep = "[".repeat(100_000);
    assertThrows(
        Weights.Malformed.class, () -> Weights.parse(deep.getBytes(StandardCharsets.UTF_8)));
  }

  @Test
  void anyBytesAreTakenSoundlyOrRefused() {
    Random random = new Random(20261121);
    int taken = 0;
    for (int i = 0; i < 20_000; i++) {
      byte[] bytes = GOOD.getBytes(StandardCharsets.UTF_8);
      for (int change = 0; change <= random.nextInt(3); change++) {
        bytes[random.nextInt(bytes.length)] = (byte) (32 + random.nextInt(96));
      }
      try {
        Weights weights = Weights.parse(bytes);
        assertTrue(weights.version() >= 0);
        assertTrue(weights.of("a") >= 0.0 && weights.of("a") < 1e7);
        assertTrue(weights.validS() > 0.0);
        taken++;
      } catch (Weights.Malformed refusal) {
        assertFalse(refusal.getMessage().isEmpty());
      }
    }
    assertTrue(taken > 100 && taken < 19_900, "both happen: " + taken);
  }
}
