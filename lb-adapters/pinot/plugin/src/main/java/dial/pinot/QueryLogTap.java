package dial.pinot;

import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.core.LogEvent;
import org.apache.logging.log4j.core.LoggerContext;
import org.apache.logging.log4j.core.appender.AbstractAppender;
import org.apache.logging.log4j.core.config.Configuration;
import org.apache.logging.log4j.core.config.LoggerConfig;
import org.apache.logging.log4j.core.config.Property;
import org.apache.pinot.broker.querylog.QueryLogger;

/**
 * Listens to the broker's query logger, whatever the operator's log4j2.xml does with its lines, and
 * without changing where they go.
 */
final class QueryLogTap extends AbstractAppender {
  private static final String NAME = "dial-query-log";

  /** Where messages go. */
  interface Sink {
    void take(long atMs, String message);
  }

  private final Sink sink;

  private QueryLogTap(Sink sink) {
    super(NAME, null, null, true, Property.EMPTY_ARRAY);
    this.sink = sink;
  }

  /** Attaches to Pinot's query logger; again after log4j2 has read its configuration anew. */
  static void attach(Sink sink) {
    // The context of Pinot's own class loader: a plugin's may be another.
    attach(LoggerContext.getContext(QueryLogger.class.getClassLoader(), false, null), sink);
  }

  static void attach(LoggerContext context, Sink sink) {
    QueryLogTap tap = new QueryLogTap(sink);
    tap.addTo(context);
    context.addPropertyChangeListener(event -> tap.addTo(context));
  }

  private void addTo(LoggerContext context) {
    start();
    Configuration configuration = context.getConfiguration();
    String name = QueryLogger.class.getName();
    LoggerConfig logger = configuration.getLoggerConfig(name);
    boolean isNew = !logger.getName().equals(name);
    if (isNew) {
      // Where nobody configured the query logger, log4j2's own way of adding an appender makes a
      // logger that is no more additive than its parent; the root of Pinot's log4j2.xml is not, and
      // the broker's log would have lost its queries.
      logger = new LoggerConfig(name, null, true);
      configuration.addLogger(name, logger);
    }
    if (!logger.getAppenders().containsKey(NAME)) {
      logger.addAppender(this, null, null);
    }
    if (isNew) {
      context.updateLoggers(); // which tells listeners, and so comes here again
    }
  }

  @Override
  public void append(LogEvent event) {
    if (event.getLevel().isMoreSpecificThan(Level.INFO)) {
      sink.take(event.getTimeMillis(), event.getMessage().getFormattedMessage());
    }
  }
}
