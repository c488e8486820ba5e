package io.github.posenc;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.regex.Pattern;

/** The bearer token of a client: a text, a file that is read again when it changes, or no token. */
final class Token {
  private static final long LOOK_NANOS = 1_000_000_000; // shortest time between two readings
  private static final Pattern LOOPBACK =
      Pattern.compile("unix:.*|(dns:(///)?)?(localhost|127(\\.[0-9]{1,3}){3}|\\[::1\\])(:[0-9]+)?");

  private final String option;
  private final Path file; // null: the token never changes
  private String token; // null: no token
  private long looked = System.nanoTime();

  Token(PosencBuilder options) {
    this.option = options.token != null ? "token" : "token_file";
    this.file = options.tokenFile == null ? null : Path.of(options.tokenFile);
    if (options.token != null && file != null) {
      throw PosencException.invalid("token_file", "excludes token");
    }
    this.token = file == null ? checked(options.token) : read();
    if (token == null || options.isTls() || LOOPBACK.matcher(options.target).matches()) return;
    throw PosencException.invalid(
        option, "would be sent in the clear to " + options.target + "; must have TLS");
  }

  // Returns the token without surrounding blanks. A token has only visible characters.
  private String checked(String text) {
    if (text == null) return null;
    if (text.strip().matches("\\p{Graph}+")) return text.strip();
    throw PosencException.invalid(option, "must hold one token, of visible characters");
  }

  private String read() {
    try {
      return checked(Files.readString(file));
    } catch (IOException e) {
      throw PosencException.invalid(option, file + " cannot be read: " + e);
    }
  }

  /**
   * Returns the value of the header `authorization`, or null without a token. While the file cannot
   * be read, the old token is used.
   */
  synchronized String header() {
    if (file != null && System.nanoTime() - looked >= LOOK_NANOS) {
      looked = System.nanoTime();
      try {
        token = read();
      } catch (PosencException e) {
        // The file may be incomplete now; the next reading may find it complete.
      }
    }
    return token == null ? null : "Bearer " + token;
  }
}
