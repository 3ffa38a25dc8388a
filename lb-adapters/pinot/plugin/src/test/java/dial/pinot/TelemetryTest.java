package dial.pinot;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.List;
import org.apache.pinot.broker.querylog.QueryLogger;
import org.junit.jupiter.api.Test;
import org.slf4j.LoggerFactory;

class TelemetryTest {
  /** As a broker of 1.5.1 writes it. */
  private static final String LINE =
      "requestId=91,table=events_OFFLINE,queryHash=unknown,timeMs=7,docs=1200/9600,entries=0/1200,"
          + "segments(queried/processed/matched/consumingQueried/consumingProcessed/"
          + "consumingMatched/unavailable):12/12/12/0/0/0/0,consumingFreshnessTimeMs=0,"
          + "servers=1/1,groupsTrimmed=false,groupLimitReached=false,"
          + "groupWarningLimitReached=false,brokerReduceTimeMs=0,exceptions=0,"
          + "serverStats=(Server=SubmitDelayMs,ResponseDelayMs,ResponseSize,DeserializationTimeMs,"
          + "RequestSentDelayMs);127.0.0.2_O=0,6,482,0,0,"
          + "offlineThreadCpuTimeNs(total/thread/sysActivity/resSer):0/0/0/0,"
          + "realtimeThreadCpuTimeNs(total/thread/sysActivity/resSer):0/0/0/0,clientIp=10.1.2.3,"
          + "queryEngine=singleStage,query=SELECT secret FROM events";

  private static final String SENT =
      LINE.substring(0, LINE.indexOf(",offlineThreadCpuTimeNs"));

  @Test
  void neitherTheQueryNorItsClientLeavesTheBroker() {
    String sent = Telemetry.withoutQuery(LINE);
    assertEquals(SENT, sent);
    assertTrue(sent.endsWith(";127.0.0.2_O=0,6,482,0,0"), sent);
    assertFalse(sent.contains("secret") || sent.contains("10.1.2.3"), sent);
  }

  @Test
  void whatIsNoFinishedQueryIsNotSent() {
    assertNull(Telemetry.withoutQuery("SQL query for request 91: SELECT 1,serverStats=x"));
    assertNull(Telemetry.withoutQuery("3 logs were dropped. (log max rate per second: 10)"));
    assertNull(Telemetry.withoutQuery("requestId=1,timeMs=2,query=SELECT ',serverStats='"));
    assertNull(Telemetry.withoutQuery("requestId=1\n,serverStats=x,offlineThreadCpuTimeNs(t):0"));
  }

  @Test
  void aPostCarriesTheLinesAndTheVersionInForce() throws Exception {
    try (Answering controller = new Answering()) {
      HeldWeights held = new HeldWeights();
      Weights weights = Documents.parse(Documents.now(7, "{\"a\":1}"));
      held.offer(weights, System.nanoTime(), weights.atS());
      WeightFeed feed = new WeightFeed(version -> null, "test", held, () -> 0.0);
      Telemetry telemetry = new Telemetry(controller.uri("/v1/queries"), "secret", feed);
      telemetry.offer(1_795_211_945_545L, LINE);
      assertTrue(telemetry.post());
      JsonNode body = new ObjectMapper().readTree(controller.lastBody);
      assertEquals("Bearer secret", controller.lastAuthorization);
      assertEquals(1, body.get("format").intValue());
      assertEquals(7, body.get("weights_version").longValue());
      assertEquals(0, body.get("dropped").longValue());
      assertEquals("1795211945545 " + SENT, body.get("lines").get(0).textValue());
      assertEquals(1, body.get("lines").size());
    }
  }

  @Test
  void linesThatCannotBeDeliveredOrHeldAreDroppedAndCounted() throws Exception {
    Answering controller = new Answering();
    java.net.URI nobody = controller.uri("/");
    controller.close();
    WeightFeed feed = new WeightFeed(version -> null, "test", new HeldWeights(), () -> 0.0);
    Telemetry telemetry = new Telemetry(nobody, null, feed);
    int chars = SENT.length() + 17; // its time, a space, quotation marks, a comma
    int held = Telemetry.MAX_QUEUED_CHARS / chars;
    for (int i = 0; i < held + 5; i++) {
      telemetry.offer(1_795_211_945_545L, LINE);
    }
    assertEquals(5, telemetry.dropped());
    assertFalse(telemetry.post());
    assertEquals(5 + Telemetry.MAX_POST_CHARS / chars, telemetry.dropped());
  }

  @Test
  void noPostIsLongerThanAProxyLetsThrough() throws Exception {
    String answer = ";127.0.0.2_O=0,6,482,0,0";
    String longLine = LINE.replace(answer, answer.repeat(100));
    try (Answering controller = new Answering()) {
      WeightFeed feed = new WeightFeed(version -> null, "test", new HeldWeights(), () -> 0.0);
      Telemetry telemetry = new Telemetry(controller.uri("/"), null, feed);
      for (int i = 0; i < 600; i++) {
        telemetry.offer(i, longLine);
      }
      telemetry.offer(1, longLine.replace(";127", ";127".repeat(1_000))); // of itself too long
      assertEquals(1, telemetry.dropped());
      int lines = 0;
      for (int post = 0; post < 2; post++) {
        assertTrue(telemetry.post());
        assertTrue(controller.lastBody.length < 1 << 20);
        lines += new ObjectMapper().readTree(controller.lastBody).get("lines").size();
      }
      assertEquals(600, lines);
    }
  }

  @Test
  void aDefectCostsAPostItsLinesAndNothingElse() {
    WeightFeed feed = new WeightFeed(version -> null, "test", new HeldWeights(), () -> 0.0);
    // An IllegalArgumentException, where an IOException is what to expect.
    Telemetry telemetry = new Telemetry(java.net.URI.create("no-address"), null, feed);
    telemetry.offer(1, LINE);
    assertFalse(telemetry.post());
    assertEquals(1, telemetry.dropped());
  }

  @Test
  void pinotsQueryLoggerIsListenedTo() {
    List<String> heard = new ArrayList<>();
    QueryLogTap.attach((atMs, message) -> heard.add(message));
    LoggerFactory.getLogger(QueryLogger.class).info("requestId={}", 5);
    assertEquals(List.of("requestId=5"), heard);
  }
}
