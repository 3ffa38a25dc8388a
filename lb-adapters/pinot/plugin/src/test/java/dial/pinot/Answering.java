package dial.pinot;

import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URI;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/** A controller that answers what a test tells it to. */
final class Answering implements AutoCloseable {
  private final HttpServer server;
  private final ExecutorService threads = Executors.newCachedThreadPool();
  private final CountDownLatch thaw = new CountDownLatch(1);
  private volatile int status = 200;
  private volatile byte[] body = new byte[0];
  private volatile boolean frozen;
  volatile String lastTarget;
  volatile String lastAuthorization;
  volatile byte[] lastBody;

  Answering() throws IOException {
    server = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
    server.setExecutor(threads);
    server.createContext(
        "/",
        exchange -> {
          lastTarget = exchange.getRequestURI().toString();
          lastAuthorization = exchange.getRequestHeaders().getFirst("Authorization");
          lastBody = exchange.getRequestBody().readAllBytes();
          if (frozen) {
            try {
              thaw.await();
            } catch (InterruptedException stop) {
              Thread.currentThread().interrupt();
            }
          }
          exchange.sendResponseHeaders(status, body.length == 0 ? -1 : body.length);
          try {
            exchange.getResponseBody().write(body);
          } catch (IOException gone) {
            // the client did not want that much
          }
          exchange.close();
        });
    server.start();
  }

  URI uri(String path) {
    return URI.create("http://127.0.0.1:" + server.getAddress().getPort() + path);
  }

  void answer(int withStatus, byte[] withBody) {
    status = withStatus;
    body = withBody;
  }

  void freeze() {
    frozen = true;
  }

  @Override
  public void close() {
    thaw.countDown();
    server.stop(0);
    threads.shutdownNow();
  }
}
