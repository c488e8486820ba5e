package io.github.posenc;

import io.grpc.Status;
import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/** A posencd that this process started; {@link Posenc#local} describes it. */
final class LocalServer implements AutoCloseable {
  static final Path SHARED_MEMORY = Path.of("/dev/shm");
  private static final String PREFIX = "posenc-local-";
  // posencd starts within 20 ms, but a machine may be busy.
  private static final Duration LONGEST_START = Duration.ofSeconds(30);
  private static final Duration LONGEST_PROBE = Duration.ofSeconds(5);
  private static final long LONGEST_END_SECONDS = 10;
  private static final long LONGEST_DEATH_MILLIS = 500;

  final Path folder;
  private final String posencd;
  private Process process; // null: it could not be started

  /** Starts a server in a new folder below `parent`, and waits until it is ready. */
  LocalServer(Map<String, String> environment, Path parent, String... flags) {
    this.posencd = find(environment);
    this.folder = privateFolder(parent);
    try {
      removeLeftovers();
      start(environment, List.of(flags));
      awaitReady();
    } catch (RuntimeException | Error e) {
      close();
      throw e;
    }
  }

  String target() {
    return "unix:" + folder.resolve("socket");
  }

  private static PosencException failure(String text) {
    return PosencException.local(Status.Code.UNAVAILABLE, "Posenc.local(): " + text);
  }

  private static String find(Map<String, String> environment) {
    String named = environment.getOrDefault("POSENCD", "");
    if (!named.isEmpty()) return named;
    for (String folder : environment.getOrDefault("PATH", "").split(File.pathSeparator)) {
      Path file = Path.of(folder, "posencd");
      if (Files.isExecutable(file)) return file.toString();
    }
    throw failure("there is no posencd: pip install posenc-server==" + Posenc.VERSION
        + " (the wheel is for Linux on x86_64 or aarch64 with glibc 2.36 or newer), or name one by POSENCD");
  }

  private static Path privateFolder(Path parent) {
    try {
      return Files.createTempDirectory(parent, PREFIX); // mode 0700
    } catch (IOException e) {
      String why = e instanceof NoSuchFileException ? "No such file or directory" : e.getMessage();
      throw failure(parent + ": " + why + "; client and server share memory there: mount a tmpfs"
          + " that this user may write, or use Posenc.connect with a server that was started by"
          + " hand");
    }
  }

  private void start(Map<String, String> environment, List<String> flags) {
    List<String> command = new ArrayList<>(List.of(posencd, "--exit-with-stdin",
        "--listen=" + target(), "--shared-memory-prefix=" + folder + "/",
        "--ready-file=" + folder.resolve("ready")));
    for (String each : List.of("--drain-timeout=1s", "--log-level=warning", "--log-format=text")) {
      String name = each.split("=")[0];
      if (flags.stream().noneMatch(flag -> flag.split("=")[0].equals(name))) command.add(each);
    }
    command.addAll(flags);
    ProcessBuilder builder = new ProcessBuilder(command);
    builder.environment().keySet().removeIf(name -> name.startsWith("POSENC_"));
    builder.redirectErrorStream(true).redirectOutput(folder.resolve("log").toFile());
    try {
      process = builder.start();
    } catch (IOException e) {
      String why = e.getMessage().replaceFirst("(?s).*error=\\d+, ", "");
      throw failure(posencd + ": " + why + "; " + remedy(why));
    }
  }

  private String remedy(String why) {
    if (why.contains("Permission denied")) {
      return "it must be executable, on a file system that is not mounted noexec; or name another"
          + " by POSENCD";
    }
    if (Files.exists(Path.of(posencd))) {
      return "the file is there, but not its loader: it needs glibc, which musl systems such as"
          + " Alpine lack";
    }
    return "POSENCD must name the server's program, or be unset";
  }

  private void awaitReady() {
    Instant deadline = Instant.now().plus(LONGEST_START);
    while (!Files.exists(folder.resolve("ready"))) {
      if (hasEndedWithin(1)) throw failure(end());
      if (Instant.now().isAfter(deadline)) {
        throw failure("posencd is not ready after " + LONGEST_START.toSeconds()
            + " s: is the machine too busy?");
      }
    }
  }

  private boolean hasEndedWithin(long millis) {
    try {
      return process.waitFor(millis, TimeUnit.MILLISECONDS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw PosencException.local(Status.Code.CANCELLED, "Posenc.local(): interrupted");
    }
  }

  // Returns how the server ended, and the end of its log.
  private String end() {
    int code = process.exitValue(); // 128 plus the signal if a signal killed the process
    String how = code > 128 ? "was killed by signal " + (code - 128) : "ended with code " + code;
    String said;
    try {
      said = new String(Files.readAllBytes(folder.resolve("log")), StandardCharsets.UTF_8);
    } catch (IOException e) {
      said = "";
    }
    said = said.substring(Math.max(0, said.length() - 2000)).strip();
    if (said.contains("GLIBC")) {
      said += "; this system's C library is too old for it: use a newer system, or name another"
          + " posencd by POSENCD";
    }
    // If the kernel cannot run a program, Java passes it to a shell, whose error begins with the
    // name of the file.
    if (said.startsWith(posencd + ": ")) {
      said += "; is it a program for this machine? Name another by POSENCD";
    }
    return "posencd " + how + (said.isEmpty() ? "" : ": " + said);
  }

  /** Returns a text that says how the server ended, or "" if it still runs after a short wait. */
  String whyGone() {
    if (!hasEndedWithin(LONGEST_DEATH_MILLIS)) return "";
    return "; " + end() + "; call Posenc.local() again";
  }

  @Override
  public void close() {
    if (process != null) {
      try {
        process.getOutputStream().close(); // its standard input
        if (!process.waitFor(LONGEST_END_SECONDS, TimeUnit.SECONDS)) process.destroyForcibly();
      } catch (IOException e) {
        process.destroyForcibly();
      } catch (InterruptedException e) {
        process.destroyForcibly();
        Thread.currentThread().interrupt();
      }
    }
    remove(folder);
  }

  // Removes the folders of processes that were killed, and so frees the memory of their regions.
  private void removeLeftovers() {
    try (DirectoryStream<Path> all = Files.newDirectoryStream(folder.getParent(), PREFIX + "*")) {
      for (Path each : all) {
        // A new folder may belong to a server that is starting.
        Instant young = Instant.now().minus(LONGEST_START);
        boolean old = Files.getLastModifiedTime(each).toInstant().isBefore(young);
        if (old && isOurs(each) && !answers(each)) remove(each);
      }
    } catch (IOException | DirectoryIteratorException e) {
      // Another process may remove the folders at the same time. The next start tries again.
    }
  }

  private boolean isOurs(Path other) throws IOException {
    return Files.isDirectory(other, LinkOption.NOFOLLOW_LINKS)
        && Files.getOwner(other, LinkOption.NOFOLLOW_LINKS).equals(Files.getOwner(folder));
  }

  private static boolean answers(Path folder) {
    try (Posenc posenc = Posenc.connect("unix:" + folder.resolve("socket"))) {
      posenc.withTimeout(LONGEST_PROBE).getServerInfo();
      return true;
    } catch (PosencException e) {
      return !e.code().equals("UNAVAILABLE");
    }
  }

  private static void remove(Path folder) {
    try (DirectoryStream<Path> files = Files.newDirectoryStream(folder)) {
      for (Path file : files) Files.deleteIfExists(file);
      Files.deleteIfExists(folder);
    } catch (IOException | DirectoryIteratorException e) {
      // The next start tries again.
    }
  }
}
