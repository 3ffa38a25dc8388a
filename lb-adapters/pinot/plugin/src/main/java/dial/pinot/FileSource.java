package dial.pinot;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;

/**
 * Weights from a file, looked at a few times a second: watching would need its directory, and
 * misses network mounts. The writer replaces the file (rename), so that half of one is never read.
 */
final class FileSource implements WeightFeed.Source {
  private static final long POLL_MS = 200;

  private final Path path;
  private String seen = "";

  FileSource(Path path) {
    this.path = path;
  }

  @Override
  public byte[] next(long held) throws IOException, InterruptedException {
    Thread.sleep(POLL_MS);
    try {
      BasicFileAttributes now = Files.readAttributes(path, BasicFileAttributes.class);
      String stamp = now.fileKey() + " " + now.size() + " " + now.lastModifiedTime();
      if (stamp.equals(seen)) {
        return null;
      }
      if (!now.isRegularFile()) {
        throw new IOException("no regular file");
      }
      try (InputStream file = Files.newInputStream(path)) {
        byte[] document = file.readNBytes(Weights.MAX_BYTES + 1);
        seen = stamp;
        return document;
      }
    } catch (NoSuchFileException error) {
      seen = "";
      throw new IOException("no such file");
    } catch (IOException error) {
      throw new IOException("cannot be read: " + error);
    }
  }
}
