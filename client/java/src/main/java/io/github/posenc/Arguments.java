package io.github.posenc;

import io.github.posenc.v1.Dtype;
import java.util.Arrays;

/** Checks of what only the client sees; the server reports all other faults of a request. */
final class Arguments {
  private Arguments() {}

  /** Returns the argument, or throws if it is null. */
  static <T> T given(String field, T argument) {
    if (argument == null) throw PosencException.invalid(field, "is null; must be given");
    return argument;
  }

  /** Returns the text if header fields can carry it: gRPC would leave out all others. */
  static String visible(String option, String text) {
    if (text == null || text.chars().allMatch(c -> c >= ' ' && c <= '~')) return text;
    throw PosencException.invalid(option, "must be of visible ASCII characters");
  }

  /** Checks memory for a result of this dtype and shape; it may be null. */
  static void output(String field, TensorView out, Dtype dtype, long[] shape) {
    if (out == null) return;
    String wrong = null;
    if (out.isReadOnly()) {
      wrong = "is read-only; must be writable";
    } else if (out.dtype() != dtype) {
      wrong = "is " + out.dtype() + "; must be " + dtype;
    } else if (!Arrays.equals(out.shape(), shape)) {
      wrong = "has shape " + Arrays.toString(out.shape()) + "; must be " + Arrays.toString(shape);
    } else if (!out.isWhole()) {
      wrong = "has " + out.bytes() + " bytes; must have " + TensorView.bytesOf(dtype, shape);
    }
    if (wrong != null) throw PosencException.invalid(field + "_output", wrong);
  }
}
