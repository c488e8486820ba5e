package io.github.posenc;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.nio.file.Path;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;

/** The base class of tests with a server. It has the server, a client, and a check of refusals. */
abstract class WithServer {
  @TempDir static Path folder;
  static Server server;
  static Posenc posenc;

  @BeforeAll
  static void start() throws Exception {
    server = new Server(folder, "--admin", "127.0.0.1:0");
    posenc = Posenc.connect(server.address);
  }

  @AfterAll
  static void stop() throws Exception {
    posenc.close();
    server.close();
  }

  /** Checks that the call is refused, and that the error names the field. */
  static PosencException assertRefused(String field, Executable call) {
    PosencException e = assertThrows(PosencException.class, call, field);
    assertEquals("INVALID_ARGUMENT", e.code(), e.getMessage());
    assertEquals(field, e.field(), e.getMessage());
    return e;
  }
}
