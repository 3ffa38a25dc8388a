import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.apache.pinot.common.utils.TarCompressionUtils;
import org.apache.pinot.segment.local.segment.creator.impl.SegmentIndexCreationDriverImpl;
import org.apache.pinot.segment.local.segment.readers.GenericRowRecordReader;
import org.apache.pinot.segment.spi.creator.SegmentGeneratorConfig;
import org.apache.pinot.spi.config.table.TableConfig;
import org.apache.pinot.spi.data.Schema;
import org.apache.pinot.spi.data.readers.GenericRow;
import org.apache.pinot.spi.utils.JsonUtils;

/**
 * Makes segments: {@code java -cp JARS Segments.java TABLE.json SCHEMA.json FOLDER SEGMENTS ROWS}.
 *
 * <p>Views of members' pages, as in the paper's ProfileView table (5.3): a member, a country, a
 * duration.
 */
public final class Segments {
  private Segments() {}

  public static void main(String[] arguments) throws Exception {
    TableConfig table =
        JsonUtils.stringToObject(Files.readString(Path.of(arguments[0])), TableConfig.class);
    Schema schema = Schema.fromString(Files.readString(Path.of(arguments[1])));
    File folder = new File(arguments[2]);
    int rows = Integer.parseInt(arguments[4]);
    for (int segment = 0; segment < Integer.parseInt(arguments[3]); segment++) {
      Random random = new Random(segment);
      List<GenericRow> made = new ArrayList<>(rows);
      for (int i = 0; i < rows; i++) {
        GenericRow row = new GenericRow();
        row.putValue("member", random.nextInt(50_000));
        row.putValue("country", "c" + random.nextInt(40));
        row.putValue("duration_ms", random.nextInt(60_000));
        made.add(row);
      }
      SegmentGeneratorConfig config = new SegmentGeneratorConfig(table, schema);
      config.setOutDir(folder.getPath());
      config.setSegmentName("views_" + segment);
      SegmentIndexCreationDriverImpl driver = new SegmentIndexCreationDriverImpl();
      driver.init(config, new GenericRowRecordReader(made));
      driver.build();
      TarCompressionUtils.createCompressedTarFile(
          new File(folder, "views_" + segment), new File(folder, "views_" + segment + ".tar.gz"));
    }
  }
}
