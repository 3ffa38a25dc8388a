package dial.pinot;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayDeque;
import java.util.Deque;
import org.apache.helix.AccessOption;
import org.apache.helix.zookeeper.datamodel.ZNRecord;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class WeightFeedTest {
  private static final String WEIGHTS = "{\"a\":1,\"b\":3}";
  private final HeldWeights held = new HeldWeights();

  private WeightFeed feed(WeightFeed.Source source) {
    return new WeightFeed(source, "test", held, () -> System.currentTimeMillis() / 1e3);
  }

  @Test
  void garbageAndFailuresAreCountedAndLeaveTheLastGoodWeights() throws Exception {
    Deque<byte[]> documents = new ArrayDeque<>();
    documents.add(Documents.now(7, WEIGHTS));
    documents.add("garbage".getBytes(StandardCharsets.UTF_8));
    documents.add(Documents.now(6, WEIGHTS));
    WeightFeed feed =
        feed(
            version -> {
              if (documents.isEmpty()) {
                throw new IOException("gone");
              }
              return documents.poll();
            });
    assertTrue(feed.turn());
    assertFalse(feed.turn());
    assertFalse(feed.turn());
    assertFalse(feed.turn());
    assertEquals(2, feed.refused());
    assertEquals(1, feed.failures());
    assertEquals(7, held.current(System.nanoTime()).version());
  }

  @Test
  void aSourceThatThrowsAnythingDoesNotEndTheFeed() throws Exception {
    WeightFeed feed =
        feed(
            version -> {
              throw new IllegalStateException("a defect");
            });
    assertFalse(feed.turn());
    assertEquals(1, feed.failures());
  }

  @Test
  void anErrorOfTheJvmDoesNotEndTheFeed() throws Exception {
    WeightFeed feed =
        feed(
            version -> {
              throw new OutOfMemoryError("somebody else's");
            });
    assertFalse(feed.turn());
    assertEquals(1, feed.failures());
  }

  @Test
  void aDocumentThatStaysWrongIsWrongEachTime() throws Exception {
    Deque<byte[]> documents = new ArrayDeque<>();
    documents.add("garbage".getBytes(StandardCharsets.UTF_8));
    WeightFeed feed = feed(version -> documents.poll());
    assertFalse(feed.turn());
    assertFalse(feed.turn());
    assertEquals(1, feed.refused()); // it is one document
    documents.add(Documents.now(1, WEIGHTS));
    assertTrue(feed.turn());
    assertTrue(feed.turn());
  }

  @Test
  void aFileIsTakenWhenItIsReplacedAndSurvivesBeingWrong(@TempDir Path folder) throws Exception {
    Path file = folder.resolve("weights.json");
    WeightFeed feed = feed(new FileSource(file));
    assertFalse(feed.turn()); // not there yet
    replace(file, Documents.now(1, WEIGHTS));
    assertTrue(feed.turn());
    assertEquals(1, held.current(System.nanoTime()).version());
    assertTrue(feed.turn()); // unchanged
    replace(file, "{".getBytes(StandardCharsets.UTF_8));
    assertFalse(feed.turn());
    assertTrue(Files.deleteIfExists(file));
    assertFalse(feed.turn());
    replace(file, Documents.now(2, WEIGHTS));
    assertTrue(feed.turn());
    assertEquals(2, held.current(System.nanoTime()).version());
  }

  private static void replace(Path file, byte[] content) throws IOException {
    Path next = file.resolveSibling("next");
    Files.write(next, content);
    Files.move(next, file, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
  }

  @Test
  void aFileThatADeadControllerLeftIsNotTaken(@TempDir Path folder) throws Exception {
    Path file = folder.resolve("weights.json");
    double anHourAgoS = System.currentTimeMillis() / 1e3 - 3_600.0;
    Files.write(file, Documents.document(1, anHourAgoS, 30.0, WEIGHTS));
    assertFalse(feed(new FileSource(file)).turn());
    assertNull(held.current(System.nanoTime()));
  }

  @Test
  void whatIsNoRegularFileIsNotOpened() throws Exception {
    // To read of a device, or a pipe, may take for ever.
    WeightFeed feed = feed(new FileSource(Path.of("/dev/zero")));
    assertFalse(feed.turn());
    assertEquals(1, feed.failures());
  }

  @Test
  void aNodeOfThePropertyStoreIsTakenAndItsChangesToo(@TempDir Path folder) throws Exception {
    try (EmbeddedZooKeeper zooKeeper = new EmbeddedZooKeeper(folder)) {
      WeightFeed feed = feed(new ZooKeeperSource(zooKeeper.store, "/DIAL/weights"));
      assertFalse(feed.turn()); // no such node
      put(zooKeeper, Documents.now(1, WEIGHTS));
      assertTrue(feed.turn());
      assertEquals(1, held.current(System.nanoTime()).version());
      put(zooKeeper, Documents.now(2, WEIGHTS));
      assertTrue(feed.turn());
      assertEquals(2, held.current(System.nanoTime()).version());
      put(zooKeeper, "garbage".getBytes(StandardCharsets.UTF_8));
      assertFalse(feed.turn());
      zooKeeper.store.remove("/DIAL/weights", AccessOption.PERSISTENT);
      assertFalse(feed.turn());
      assertEquals(2, held.current(System.nanoTime()).version());
    }
  }

  private static void put(EmbeddedZooKeeper zooKeeper, byte[] document) {
    ZNRecord node = new ZNRecord("weights");
    node.setSimpleField(ZooKeeperSource.FIELD, new String(document, StandardCharsets.UTF_8));
    assertTrue(zooKeeper.store.set("/DIAL/weights", node, AccessOption.PERSISTENT));
  }

  @Test
  void aLongPollSendsTheTokenAndTheVersionInForce() throws Exception {
    try (Answering server = new Answering()) {
      server.answer(200, Documents.now(7, WEIGHTS));
      WeightFeed feed = feed(new HttpSource(server.uri("/v1/weights"), "secret"));
      assertTrue(feed.turn());
      assertEquals("/v1/weights", server.lastTarget);
      assertEquals("Bearer secret", server.lastAuthorization);
      server.answer(200, Documents.now(8, WEIGHTS));
      assertTrue(feed.turn());
      assertEquals("/v1/weights?after=7", server.lastTarget);
      assertEquals(8, held.current(System.nanoTime()).version());
    }
  }

  @Test
  void theSameQuestionIsAskedOnceASecondAtMost() throws Exception {
    try (Answering server = new Answering()) {
      server.answer(200, Documents.now(7, WEIGHTS)); // at once, whatever the version asked for
      WeightFeed feed = feed(new HttpSource(server.uri("/v1/weights"), null));
      assertTrue(feed.turn()); // without a version
      long beganNanos = System.nanoTime();
      assertTrue(feed.turn()); // after 7
      assertTrue(feed.turn()); // and again
      long tookNanos = System.nanoTime() - beganNanos;
      assertTrue(tookNanos >= HttpSource.SAME_QUESTION_MS * 1_000_000L, tookNanos + " ns");
    }
  }

  @Test
  void noProxyOfTheJvmIsAsked() throws Exception {
    String[] names = {"http.proxyHost", "http.proxyPort", "http.nonProxyHosts"};
    String[] values = {"127.0.0.1", "9", ""};
    String[] before = new String[3];
    try (Answering server = new Answering()) {
      server.answer(200, Documents.now(7, WEIGHTS));
      for (int i = 0; i < 3; i++) {
        before[i] = System.getProperty(names[i]);
        System.setProperty(names[i], values[i]);
      }
      assertTrue(feed(new HttpSource(server.uri("/"), "secret")).turn());
    } finally {
      for (int i = 0; i < 3; i++) {
        if (before[i] == null) {
          System.clearProperty(names[i]);
        } else {
          System.setProperty(names[i], before[i]);
        }
      }
    }
  }

  @Test
  void aControllerThatAnswersGarbageErrorsOrTooMuchLeavesTheWeights() throws Exception {
    try (Answering server = new Answering()) {
      server.answer(200, Documents.now(7, WEIGHTS));
      WeightFeed feed = feed(new HttpSource(server.uri("/"), null));
      assertTrue(feed.turn());
      server.answer(200, "<html>".getBytes(StandardCharsets.UTF_8));
      assertFalse(feed.turn());
      server.answer(503, Documents.now(8, WEIGHTS));
      assertFalse(feed.turn());
      server.answer(302, Documents.now(8, WEIGHTS));
      assertFalse(feed.turn());
      server.answer(200, new byte[Weights.MAX_BYTES + 10]);
      assertFalse(feed.turn());
      assertEquals(7, held.current(System.nanoTime()).version());
    }
  }

  @Test
  void anUnreachableControllerIsAFailure() throws Exception {
    Answering server = new Answering();
    java.net.URI nobody = server.uri("/");
    server.close();
    WeightFeed feed = feed(new HttpSource(nobody, null));
    assertFalse(feed.turn());
    assertEquals(1, feed.failures());
  }

  @Test
  void aFrozenControllerIsGivenUp() throws Exception {
    try (Answering server = new Answering()) {
      server.freeze();
      assertThrows(IOException.class, () -> Http.exchange(server.uri("/"), null, null, 200, 1_000));
    }
  }

  @Test
  void theThreadTakesWeightsUntilItIsInterrupted() throws Exception {
    WeightFeed feed = feed(version -> Documents.now(version + 1, WEIGHTS));
    Thread thread = new Thread(feed);
    thread.start();
    for (int i = 0; i < 500 && held.current(System.nanoTime()) == null; i++) {
      Thread.sleep(10);
    }
    assertNotNull(held.current(System.nanoTime()));
    thread.interrupt();
    thread.join(5_000);
    assertFalse(thread.isAlive());
  }
}
