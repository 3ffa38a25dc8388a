package dial.pinot;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.core.LoggerContext;
import org.apache.pinot.broker.querylog.QueryLogger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class QueryLogTapTest {
  @TempDir Path folder;
  private final List<String> heard = new ArrayList<>();

  /** Loggers of a broker's log4j2.xml, with a file that each line is written to at once. */
  private LoggerContext context(String loggers) throws Exception {
    String configuration =
        "<Configuration><Appenders><File name='pinotLog' fileName='"
            + folder.resolve("pinotBroker.log")
            + "'><PatternLayout pattern='%m%n'/></File></Appenders><Loggers>"
            + loggers
            + "</Loggers></Configuration>";
    Path file = Files.writeString(folder.resolve("log4j2.xml"), configuration);
    // Not by Configurator: its context is one for all tests, with the taps of those before.
    LoggerContext context = new LoggerContext("broker", null, file.toUri());
    context.start();
    return context;
  }

  private List<String> written() throws Exception {
    return Files.readAllLines(folder.resolve("pinotBroker.log"));
  }

  /** As in Pinot's own conf/log4j2.xml: the query logger is not named, and Root is not additive. */
  private static final String PINOTS =
      "<Root level='info' additivity='false'><AppenderRef ref='pinotLog'/></Root>";

  @Test
  void theBrokersOwnLogKeepsItsQueries() throws Exception {
    try (LoggerContext context = context(PINOTS)) {
      QueryLogTap.attach(context, (atMs, message) -> heard.add(message));
      context.getLogger(QueryLogger.class.getName()).info("requestId={}", 5);
      assertEquals(List.of("requestId=5"), heard);
      assertEquals(List.of("requestId=5"), written());
    }
  }

  @Test
  void aLoggerThatTheOperatorKeepsToItselfStaysSo() throws Exception {
    String own = "<Logger name='%s' level='info' additivity='false'/>";
    try (LoggerContext context = context(PINOTS + String.format(own, QueryLogger.class.getName()))) {
      QueryLogTap.attach(context, (atMs, message) -> heard.add(message));
      context.getLogger(QueryLogger.class.getName()).info("requestId={}", 5);
      assertEquals(List.of("requestId=5"), heard);
      assertEquals(List.of(), written());
    }
  }

  @Test
  void afterANewConfigurationEachLineIsStillHeardOnce() throws Exception {
    try (LoggerContext context = context(PINOTS)) {
      QueryLogTap.attach(context, (atMs, message) -> heard.add(message));
      for (int i = 0; i < 3; i++) {
        context.reconfigure();
        context.getLogger(QueryLogger.class.getName()).info("requestId={}", i);
      }
      assertEquals(List.of("requestId=0", "requestId=1", "requestId=2"), heard);
      assertEquals(heard, written());
    }
  }

  @Test
  void whatIsLoggedForDebuggingIsNotHeard() throws Exception {
    try (LoggerContext context = context(PINOTS.replace("'info'", "'debug'"))) {
      QueryLogTap.attach(context, (atMs, message) -> heard.add(message));
      context.getLogger(QueryLogger.class.getName()).debug("Broker Response: secret");
      assertTrue(context.getLogger(QueryLogger.class.getName()).isEnabled(Level.DEBUG));
      assertEquals(List.of(), heard);
    }
  }
}
