package dial.pinot;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class SettingsTest {
  private static Settings of(String... namesAndValues) throws Settings.Wrong {
    Map<String, String> map = new HashMap<>();
    for (int i = 0; i < namesAndValues.length; i += 2) {
      map.put(namesAndValues[i], namesAndValues[i + 1]);
    }
    return Settings.of(map::get, 42);
  }

  @ParameterizedTest
  @CsvSource({
    "http://127.0.0.1:9180/v1/weights, HTTP",
    "https://dial/v1/weights, HTTP",
    "zookeeper:/DIAL/weights, ZOOKEEPER",
    "file:/run/dial/weights.json, FILE"
  })
  void eachSourceIsTakenByItsScheme(String weights, Settings.Source source) throws Exception {
    Settings settings = of("dial.weights", weights);
    assertEquals(source, settings.source);
    assertNull(settings.telemetry);
    assertNull(settings.token);
    assertEquals(42, settings.seed);
  }

  @ParameterizedTest
  @CsvSource({
    "dial.weights, ''",
    "dial.weights, ftp://x/y",
    "dial.weights, http:/nohost",
    "dial.weights, zookeeper://host/path",
    "dial.weights, file:relative",
    "dial.weights, file:/folder/",
    "dial.weights, 'a b'",
    "dial.telemetry, tcp://x:1",
    "dial.token.file, /no/such/file",
    "dial.token.file, /dev/zero",
    "dial.seed, seven"
  })
  void aSettingThatCannotBeUsedIsNamedWithItsValue(String name, String value) {
    Settings.Wrong wrong =
        assertThrows(
            Settings.Wrong.class,
            () -> of("dial.weights", "file:/w", name, value.isEmpty() ? null : value));
    assertTrue(wrong.getMessage().startsWith(name), wrong.getMessage());
    assertTrue(wrong.getMessage().contains(value), wrong.getMessage());
  }

  @Test
  void aTokenIsReadFromItsFileAndNeverShown(@TempDir Path folder) throws Exception {
    Path file = Files.writeString(folder.resolve("token"), "secret-token\n");
    assertEquals(
        "secret-token", of("dial.weights", "file:/w", "dial.token.file", file.toString()).token);
    Files.writeString(file, "long-secret".repeat(1_000));
    assertThrows(
        Settings.Wrong.class,
        () -> of("dial.weights", "file:/w", "dial.token.file", file.toString()));
    Files.writeString(file, "two lines\nof secret");
    Settings.Wrong wrong =
        assertThrows(
            Settings.Wrong.class,
            () -> of("dial.weights", "file:/w", "dial.token.file", file.toString()));
    assertTrue(!wrong.getMessage().contains("secret"), wrong.getMessage());
  }
}
