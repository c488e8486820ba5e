package io.github.posenc;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** A server of the binary that -Dposencd names, on a port of its own. */
final class Server implements AutoCloseable {
  final String address;
  private final Process process;

  Server(Path folder, String... flags) throws Exception {
    String binary = System.getProperty("posencd", "");
    if (binary.isEmpty()) throw new IllegalStateException("-Dposencd=PATH is missing");
    Path ready = Files.createTempDirectory(folder, "server").resolve("ready");
    List<String> command = new ArrayList<>(List.of(binary, "--ready-file", ready.toString()));
    if (!List.of(flags).contains("--listen")) command.addAll(List.of("--listen", "127.0.0.1:0"));
    command.addAll(List.of(flags));
    process = new ProcessBuilder(command)
        .redirectErrorStream(true)
        .redirectOutput(new File(ready + ".log"))
        .start();
    for (int look = 0; look < 1200 && !(Files.exists(ready) && Files.size(ready) > 0); look++) {
      if (process.waitFor(50, TimeUnit.MILLISECONDS)) {
        throw new IOException("posencd ended: " + Files.readString(Path.of(ready + ".log")));
      }
    }
    address = Files.readString(ready).strip().split("\\s+")[0];
  }

  @Override
  public void close() throws Exception {
    process.destroy();
    if (!process.waitFor(20, TimeUnit.SECONDS)) process.destroyForcibly();
  }
}
