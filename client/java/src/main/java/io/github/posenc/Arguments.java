package io.github.posenc;

/** Finds the faults that only the client can find. The server reports all other faults. */
final class Arguments {
  private Arguments() {}

  /** Returns the argument, or throws if it is null. */
  static <T> T given(String field, T argument) {
    if (argument == null) throw PosencException.invalid(field, "is null; must be given");
    return argument;
  }

  /** Returns the text if a header field can carry it. gRPC would leave out any other text. */
  static String visible(String option, String text) {
    if (text == null || text.chars().allMatch(c -> c >= ' ' && c <= '~')) return text;
    throw PosencException.invalid(option, "must be of visible ASCII characters");
  }
}
