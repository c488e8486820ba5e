package io.github.posenc;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.posenc.v1.Layout;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.file.*;
import java.nio.file.attribute.FileTime;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Posenc.local() starts a server. After close() no server, folder or memory is left. */
class LocalServerTest {
  private static final String POSENCD = System.getProperty("posencd");
  @TempDir Path temporary;

  private static LocalServer start(String posencd, String... flags) {
    Map<String, String> environment = new HashMap<>(System.getenv());
    environment.put("POSENCD", posencd);
    return new LocalServer(environment, LocalServer.SHARED_MEMORY, flags);
  }

  private static List<ProcessHandle> serversAt(Path folder) throws IOException {
    List<ProcessHandle> found = new ArrayList<>();
    for (ProcessHandle each : ProcessHandle.allProcesses().collect(Collectors.toList())) {
      try {
        String line = Files.readString(Path.of("/proc", Long.toString(each.pid()), "cmdline"));
        if (line.contains("--ready-file=" + folder.resolve("ready"))) found.add(each);
      } catch (IOException e) {
        // The process has ended.
      }
    }
    return found;
  }

  private static List<Path> folders() throws IOException {
    try (Stream<Path> all = Files.list(LocalServer.SHARED_MEMORY)) {
      return all.filter(each -> each.getFileName().toString().startsWith("posenc-local-"))
          .sorted().collect(Collectors.toList());
    }
  }

  // Checks that position 0 is not rotated, and that the first pair of position 1 is rotated by one
  // radian.
  private static void assertRotates(Posenc posenc) {
    float[] q = new float[2 * 8];
    java.util.Arrays.fill(q, 1);
    posenc.rope(Sources.HALF_SPLIT)
        .apply(Layout.LAYOUT_BSHD, TokenPositions.startAt(0), TensorView.of(q, 1, 2, 1, 8), null);
    assertEquals(1, q[0]);
    assertEquals(Math.cos(1) - Math.sin(1), q[8], 1e-6);
  }

  private static void makeOld(Path folder) throws IOException {
    Files.setLastModifiedTime(folder, FileTime.fromMillis(0));
  }

  private static void assertRefused(String text, Map<String, String> environment, Path parent,
      String... flags) throws IOException {
    List<Path> before = folders();
    PosencException e = assertThrows(PosencException.class, () -> new LocalServer(environment, parent, flags));
    assertEquals("UNAVAILABLE", e.code());
    assertTrue(e.getMessage().matches("(?s)Posenc\\.local\\(\\): .*" + text + ".*"), e.getMessage());
    List<Path> left = folders();
    left.removeAll(before); // a start also removes older folders
    assertEquals(List.of(), left);
  }

  @Test
  void aServerIsPrivateAndEndsWithItsClient() throws Exception {
    Posenc other = Posenc.of(start(POSENCD));
    LocalServer server = start(POSENCD, "--threads=1", "--drain-timeout=2s");
    try (Posenc posenc = Posenc.of(server)) {
      assertEquals("rwx------", PosixFilePermissions.toString(Files.getPosixFilePermissions(server.folder)));
      assertEquals(1, serversAt(server.folder).size());
      assertRotates(posenc);
      assertNotEquals("", posenc.sharedRegion(1 << 20).name());
    }
    assertTrue(serversAt(server.folder).isEmpty());
    assertFalse(Files.exists(server.folder));
    assertRotates(other);
    other.close();
  }

  /** The program that a test kills. */
  public static final class Held {
    public static void main(String[] args) throws Exception {
      Posenc posenc = Posenc.local();
      assertRotates(posenc);
      System.out.println("holds");
      Thread.sleep(60_000);
      posenc.close();
    }
  }

  @Test
  void aServerEndsWhenItsProcessIsKilled() throws Exception {
    ProcessBuilder builder = new ProcessBuilder(ProcessHandle.current().info().command().orElseThrow(),
        "-cp", System.getProperty("java.class.path"), Held.class.getName());
    builder.environment().putAll(Map.of("POSENCD", POSENCD, "POSENC_TOKEN_FILE", "/nonexistent"));
    builder.redirectError(ProcessBuilder.Redirect.INHERIT);
    Process program = builder.start();
    assertEquals("holds", new BufferedReader(new InputStreamReader(program.getInputStream())).readLine());
    List<ProcessHandle> servers = program.children().collect(Collectors.toList());
    assertEquals(1, servers.size());
    String line = Files.readString(Path.of("/proc", Long.toString(servers.get(0).pid()), "cmdline"));
    Path folder = Path.of(line.replaceFirst("(?s).*--ready-file=([^\0]*)/ready\0.*", "$1"));
    assertEquals(1, serversAt(folder).size());
    program.destroyForcibly().waitFor();
    servers.get(0).onExit().get(60, TimeUnit.SECONDS);
    // The next start removes the killed program's folder, which may hold regions, but no folder
    // that is in use.
    LocalServer used = start(POSENCD);
    try (Posenc posenc = Posenc.of(used)) {
      makeOld(folder);
      makeOld(used.folder);
      start(POSENCD).close();
      assertFalse(Files.exists(folder));
      assertRotates(posenc);
    }
  }

  @Test
  void aServerThatIsKilledIsNamed() throws Exception {
    LocalServer server = start(POSENCD);
    try (Posenc posenc = Posenc.of(server)) {
      assertRotates(posenc);
      serversAt(server.folder).get(0).destroyForcibly();
      PosencException e = assertThrows(PosencException.class, () -> posenc.rope("llama-3.1-8b"));
      assertTrue(e.getMessage().endsWith("posencd was killed by signal 9; call Posenc.local() again"), e.getMessage());
    }
  }

  @Test
  void aServerThatCannotStartIsNamed() throws Exception {
    Path file = temporary.resolve("posencd");
    Map<String, String> environment = Map.of("POSENCD", file.toString());
    assertRefused("No such file or directory; POSENCD must name the server's program", environment,
        LocalServer.SHARED_MEMORY);
    Files.writeString(file, "");
    // A file system that is mounted noexec gives the same error.
    assertRefused("Permission denied; it must be executable, .* noexec", environment, LocalServer.SHARED_MEMORY);
    Files.setPosixFilePermissions(file, PosixFilePermissions.fromString("rwxr-xr-x"));
    String[][] programs = {
      {"#!/lib/ld-musl-x86_64.so.1\n", "No such file .* needs glibc, which musl"},
      {"\177ELF" + "\0".repeat(60), "is it a program for this machine"},
      {"#!/bin/sh\necho \"libc.so.6: version 'GLIBC_2.99' not found\" >&2\nexit 1\n",
        "ended with code 1: .*GLIBC_2.99.* not found; this system's C library is too old"},
      {"#!/bin/sh\nkill -9 $$\n", "was killed by signal 9"},
    };
    for (String[] each : programs) {
      Files.writeString(file, each[0]);
      assertRefused(each[1], environment, LocalServer.SHARED_MEMORY);
    }
    assertRefused("ended with code 2: .*--threads", Map.of("POSENCD", POSENCD), LocalServer.SHARED_MEMORY,
        "--threads=-1");
    assertRefused("there is no posencd: pip install posenc-server==", Map.of("PATH", ""), LocalServer.SHARED_MEMORY);
    assertRefused("/nonexistent: No such file or directory; .*mount a tmpfs", Map.of("POSENCD", POSENCD),
        Path.of("/nonexistent"));
  }
}
