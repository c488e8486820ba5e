package io.github.posenc;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;
import java.time.Duration;
import java.util.regex.Pattern;

/** The bearer token of a client: a text, or a file that is read again when it changes. */
final class Token {
  // Shortest time between two checks of the file.
  private static final long LOOK_NANOS = Duration.ofSeconds(1).toNanos();
  private static final Pattern VISIBLE = Pattern.compile("\\p{Graph}+");
  private static final Pattern LOOPBACK =
      Pattern.compile("(localhost|127(\\.[0-9]{1,3}){3}|\\[::1\\])(:[0-9]+)?");

  private final Path file;
  private String token;
  private Object stamp;
  private long looked = System.nanoTime();

  private Token(String token, Path file) {
    this.token = token;
    this.file = file;
    this.stamp = file == null ? null : stampOf(file);
  }

  /** Returns null if the client has none. */
  static Token of(PosencBuilder options) {
    if (options.token == null && options.tokenFile == null) return null;
    String option = options.token != null ? "token" : "token_file";
    if (options.token != null && options.tokenFile != null) {
      throw PosencException.invalid("token_file", "excludes token");
    }
    if (!options.tls && !staysHere(options.target)) {
      throw PosencException.invalid(
          option, "would be sent in the clear to " + options.target + "; must have TLS");
    }
    return options.token != null
        ? new Token(checked(option, options.token), null)
        : new Token(read(options.tokenFile), options.tokenFile);
  }

  private static boolean staysHere(String target) {
    if (target.startsWith("unix:")) return true;
    return LOOPBACK.matcher(target.replaceFirst("^dns:(///)?", "")).matches();
  }

  // A header's value has no line ends, and a token has no blanks.
  private static String checked(String option, String text) {
    if (VISIBLE.matcher(text.strip()).matches()) return text.strip();
    throw PosencException.invalid(option, "must hold one token, of visible characters");
  }

  private static String read(Path file) {
    try {
      return checked("token_file", Files.readString(file));
    } catch (IOException e) {
      throw PosencException.invalid("token_file", file + " cannot be read: " + e);
    }
  }

  private static Object stampOf(Path file) {
    try {
      BasicFileAttributes attributes = Files.readAttributes(file, BasicFileAttributes.class);
      return attributes.lastModifiedTime() + " " + attributes.fileKey();
    } catch (IOException e) {
      return null;
    }
  }

  /** Returns the token; the old one stays in use while the file cannot be read. */
  synchronized String current() {
    long now = System.nanoTime();
    if (file != null && now - looked >= LOOK_NANOS) {
      looked = now;
      Object found = stampOf(file);
      if (found != null && !found.equals(stamp)) {
        try {
          token = read(file);
        } catch (PosencException e) {
          // The file is being written: the next check may find it complete.
        }
        stamp = found;
      }
    }
    return token;
  }
}
