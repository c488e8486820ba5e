package io.github.posenc;

import io.github.posenc.v1.Dtype;
import java.util.Arrays;

/** Checks of what only the client sees; the server reports all other faults of a request. */
final class Arguments {
  private Arguments() {
  }

  /** Returns the argument, or throws if it is null. */
  static <T> T given(String field, T argument) {
    if (argument == null) throw PosencException.invalid(field, "is null; must be given");
    return argument;
  }

  /** Returns the text if header fields can carry it: they have only visible ASCII characters. */
  static String visible(String option, String text) {
    if (text == null || text.chars().allMatch(c -> c >= ' ' && c <= '~')) return text;
    throw PosencException.invalid(option, "must be of visible ASCII characters");
  }

  /**
   * Checks memory for a result; it may be null.
   *
   * @param shape of the result, with its dtype; null: only the server knows them
   */
  static void output(String name, TensorView out, Dtype dtype, long[] shape) {
    if (out == null) return;
    open(name, out);
    if (out.isReadOnly()) throw PosencException.invalid(name, "is read-only; must be writable");
    if (shape == null) return;
    if (out.dtype() != dtype) {
      throw PosencException.invalid(name, "is " + out.dtype() + "; must be " + dtype);
    }
    if (!Arrays.equals(out.shape(), shape)) {
      throw PosencException.invalid(name,
          "has shape " + Arrays.toString(out.shape()) + "; must be " + Arrays.toString(shape));
    }
    long bytes = TensorView.bytesOf(dtype, shape);
    if (out.bytes() != bytes) {
      throw PosencException.invalid(name, "has " + out.bytes() + " bytes; must have " + bytes);
    }
  }

  /** Throws if the tensor, which may be null, lies in a region that is closed. */
  static void open(String name, TensorView tensor) {
    if (tensor == null || tensor.place() == null || !tensor.place().region.isClosed()) return;
    throw PosencException.invalid(name, "lies in a shared region that is closed");
  }
}
