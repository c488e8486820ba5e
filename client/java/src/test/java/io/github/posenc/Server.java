package io.github.posenc;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** A server, started from the binary that -Dposencd names. */
final class Server implements AutoCloseable {
  final String address;
  private final Process process;
  private final Path log;

  Server(Path folder, String... flags) throws Exception {
    String binary = System.getProperty("posencd", "");
    if (binary.isEmpty()) throw new IllegalStateException("-Dposencd=PATH is missing");
    Path ready = Files.createTempDirectory(folder, "server").resolve("ready");
    List<String> command = new ArrayList<>(List.of(binary, "--ready-file", ready.toString()));
    if (!List.of(flags).contains("--listen")) command.addAll(List.of("--listen", "127.0.0.1:0"));
    command.addAll(List.of(flags));
    log = Path.of(ready + ".log");
    process = new ProcessBuilder(command)
        .redirectErrorStream(true)
        .redirectOutput(log.toFile())
        .start();
    for (int look = 0; look < 1200 && !(Files.exists(ready) && Files.size(ready) > 0); look++) {
      if (process.waitFor(50, TimeUnit.MILLISECONDS)) {
        throw new IOException("posencd ended: " + Files.readString(log));
      }
    }
    address = Files.readString(ready).strip().split("\\s+")[0];
  }

  /** Waits until the server's calls claim no memory. The server must have the flag --admin. */
  void awaitNothingClaimed() throws Exception {
    Matcher admin = Pattern.compile("admin port on ([0-9.:]+)").matcher(Files.readString(log));
    if (!admin.find()) throw new IllegalStateException("the server has no admin port");
    URI metrics = URI.create("http://" + admin.group(1) + "/metrics");
    HttpRequest request = HttpRequest.newBuilder(metrics).build();
    HttpClient http = HttpClient.newHttpClient();
    String page = "";
    for (int look = 0; look < 200; look++) {
      page = http.send(request, HttpResponse.BodyHandlers.ofString()).body();
      if (page.contains("\nposenc_claimed_bytes 0\n")) return;
      Thread.sleep(50);
    }
    throw new AssertionError("memory is still claimed: " + page.replaceAll("(?s).*(\nposenc_claimed_bytes [^\n]*).*", "$1"));
  }

  @Override
  public void close() throws Exception {
    process.destroy();
    if (!process.waitFor(20, TimeUnit.SECONDS)) process.destroyForcibly();
  }
}
