import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;

/**
 * Starts one role of a Pinot cluster: {@code java -cp JARS Role.java ROLE FILE.properties}.
 *
 * <p>Pinot's own start commands are in pinot-tools; this needs the roles' jars only. Run from its
 * source, so that there is nothing to build. It says {@code ready} once the role has started.
 */
public final class Role {
  private static final Map<String, String> STARTERS =
      Map.of(
          "controller", "org.apache.pinot.controller.ControllerStarter",
          "broker", "org.apache.pinot.broker.broker.helix.HelixBrokerStarter",
          "server", "org.apache.pinot.server.starter.helix.HelixServerStarter");

  private Role() {}

  public static void main(String[] arguments) throws Exception {
    if (arguments[0].equals("zookeeper")) {
      System.setProperty("zookeeper.admin.enableServer", "false");
      Class<?> main = Class.forName("org.apache.zookeeper.server.ZooKeeperServerMain");
      System.out.println("ready");
      main.getMethod("main", String[].class)
          .invoke(null, (Object) new String[] {arguments[1]});
      return;
    }
    Properties properties = new Properties();
    try (var reader = Files.newBufferedReader(Path.of(arguments[1]))) {
      properties.load(reader);
    }
    Map<String, Object> map = new HashMap<>();
    properties.forEach((name, value) -> map.put((String) name, value));
    Class<?> configuration = Class.forName("org.apache.pinot.spi.env.PinotConfiguration");
    Object given = configuration.getConstructor(Map.class).newInstance(map);
    Object role = Class.forName(STARTERS.get(arguments[0])).getConstructor().newInstance();
    role.getClass().getMethod("init", configuration).invoke(role, given);
    role.getClass().getMethod("start").invoke(role);
    Runtime.getRuntime()
        .addShutdownHook(
            new Thread(
                () -> {
                  try {
                    role.getClass().getMethod("stop").invoke(role);
                  } catch (ReflectiveOperationException error) {
                    error.printStackTrace();
                  }
                }));
    System.out.println("ready");
    Thread.currentThread().join();
  }
}
