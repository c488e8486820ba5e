package io.github.posenc;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.regex.Pattern;

/** The bearer token of a client: a text, or a file that is read again when it changes. */
final class Token {
  private static final long LOOK_NANOS = 1_000_000_000; // shortest time between two looks at a file
  private static final Pattern LOOPBACK =
      Pattern.compile("unix:.*|(dns:(///)?)?(localhost|127(\\.[0-9]{1,3}){3}|\\[::1\\])(:[0-9]+)?");

  private final Path file; // null: the token never changes
  private String token;
  private long looked = System.nanoTime();

  private Token(String token, Path file) {
    this.token = token;
    this.file = file;
  }

  /** Returns null if the client has none. */
  static Token of(PosencBuilder options) {
    if (options.token == null && options.tokenFile == null) return null;
    String option = options.token != null ? "token" : "token_file";
    if (options.token != null && options.tokenFile != null) {
      throw PosencException.invalid("token_file", "excludes token");
    }
    if (!options.tls && !LOOPBACK.matcher(options.target).matches()) {
      throw PosencException.invalid(
          option, "would be sent in the clear to " + options.target + "; must have TLS");
    }
    return options.token != null ? new Token(checked(option, options.token), null)
                                 : new Token(read(options.tokenFile), options.tokenFile);
  }

  // A header's value has no line ends, and a token has no blanks.
  private static String checked(String option, String text) {
    if (text.strip().matches("\\p{Graph}+")) return text.strip();
    throw PosencException.invalid(option, "must hold one token, of visible characters");
  }

  private static String read(Path file) {
    try {
      return checked("token_file", Files.readString(file));
    } catch (IOException e) {
      throw PosencException.invalid("token_file", file + " cannot be read: " + e);
    }
  }

  /** Returns the token; the old one stays in use while the file cannot be read. */
  synchronized String current() {
    if (file != null && System.nanoTime() - looked >= LOOK_NANOS) {
      looked = System.nanoTime();
      try {
        token = read(file);
      } catch (PosencException e) {
        // The file is being written: the next look may find it complete.
      }
    }
    return token;
  }
}
