package io.github.posenc;

import io.github.posenc.v1.Dtype;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * Cuts tensors of heads into parts that go through a stream one by one, each like a separate
 * request.
 *
 * <p>A part is contiguous memory: it is sent without a copy, and its result is written to the same
 * place of the output. So a tensor is cut along its outermost dimension, and along inner ones only
 * if one step of the outer is too large:
 *
 * <pre>
 *   BSHD, [2, 3, H, D], at most 2 tokens a part
 *
 *     sequence 0            sequence 1
 *     +----+----+----+      +----+----+----+
 *     | t0 | t1 | t2 |      | t0 | t1 | t2 |      memory goes on to the right
 *     +----+----+----+      +----+----+----+
 *      \_ part 0_/ \_1/       \_ part 2_/ \_3/
 * </pre>
 */
final class Cut {
  /** A contiguous part of a tensor: these sequences, tokens and heads. */
  static final class Part {
    final long[] shape;
    final long[] begin; // by the layout's dimensions
    final long firstByte;
    final long bytes;
    private final Layout layout;

    private Part(Layout layout, long[] shape, long[] begin, long firstByte, long bytes) {
      this.layout = layout;
      this.shape = shape;
      this.begin = begin;
      this.firstByte = firstByte;
      this.bytes = bytes;
    }

    /**
     * Returns the first sequence, token or head: dimension 'B', 'S', 'T' or 'H'. 0 for a missing
     * dimension.
     */
    long begin(char dimension) {
      int i = layout.dimensions.indexOf(dimension);
      return i < 0 ? 0 : begin[i];
    }

    long end(char dimension) {
      int i = layout.dimensions.indexOf(dimension);
      return i < 0 ? 1 : begin[i] + shape[i];
    }

    long firstToken() {
      return begin(layout == Layout.THD ? 'T' : 'S');
    }

    long endToken() {
      return end(layout == Layout.THD ? 'T' : 'S');
    }
  }

  /** A tensor does not fit its layout, its bytes or its positions, and so cannot be cut. */
  static final class Misfit extends RuntimeException {
    private static final long serialVersionUID = 1;

    private Misfit(String text) {
      super(text);
    }
  }

  private Cut() {}

  /** Returns the number of sequences or tokens of a checked tensor. */
  static long extent(Tensor tensor, Layout layout, char dimension) {
    int i = layout.dimensions.indexOf(dimension);
    return i < 0 ? 1 : tensor.shape()[i];
  }

  /** Throws Misfit if a shape does not fit the layout, which is null if unknown. */
  static void check(String name, Tensor tensor, Layout layout) {
    long[] shape = tensor.shape();
    if (layout == null || shape.length != layout.dimensions.length()) {
      throw misfit(name + ".shape", Arrays.toString(shape) + " is none of layout " + layout);
    }
    if (tensor.bytes() == 0 || !hasBytes(tensor.dtype(), shape, tensor.bytes())) {
      throw misfit(
          name + ".shape",
          Arrays.toString(shape) + " of " + tensor.dtype() + " does not have " + tensor.bytes()
              + " bytes");
    }
  }

  /** Returns whether a tensor of this type and shape has this many bytes. */
  static boolean hasBytes(Dtype dtype, long[] shape, long bytes) {
    long size = elementBytes(dtype);
    boolean empty = false;
    for (long extent : shape) {
      if (extent < 0) return false;
      empty |= extent == 0;
    }
    if (size == 0 || empty) return size > 0 && bytes == 0;
    // Compares by division: the product of a wrong shape may overflow.
    long left = bytes;
    for (long extent : shape) {
      if (left % extent != 0) return false;
      left /= extent;
    }
    return left == size;
  }

  static Misfit misfit(String what, String fact) {
    return new Misfit(what + ": " + fact + "; the tensor cannot be cut into parts");
  }

  static int elementBytes(Dtype dtype) {
    switch (dtype) {
      case DTYPE_FLOAT8_E4M3FN:
      case DTYPE_FLOAT8_E5M2:
        return 1;
      case DTYPE_FLOAT16:
      case DTYPE_BFLOAT16:
        return 2;
      case DTYPE_FLOAT32:
      case DTYPE_INT32:
        return 4;
      case DTYPE_FLOAT64:
      case DTYPE_INT64:
        return 8;
      default:
        return 0;
    }
  }

  // Returns how many dimensions, counted from the outermost, may be cut. Channels are never cut,
  // and heads only in BHSD, in which a head's tokens are contiguous.
  private static int cuttable(Layout layout, boolean wholeHeads) {
    switch (layout) {
      case BHSD:
        return wholeHeads ? 1 : 3;
      case THD:
        return 1;
      default:
        return 2;
    }
  }

  /**
   * Cuts a checked tensor into parts, in memory order, of at most {@code maxBytes} if possible.
   * `wholeHeads` keeps all heads together in every layout, for frequencies that differ by head.
   */
  static List<Part> parts(Tensor tensor, Layout layout, boolean wholeHeads, long maxBytes) {
    long[] shape = tensor.shape();
    long[] step = new long[shape.length]; // bytes of one step along each dimension
    long bytes = elementBytes(tensor.dtype());
    for (int i = shape.length; i-- > 0; ) {
      step[i] = bytes;
      bytes *= shape[i];
    }
    // Cuts along one dimension: the outermost whose steps are small enough, or else the last that
    // may be cut.
    int cut = 0;
    while (cut + 1 < cuttable(layout, wholeHeads) && step[cut] > maxBytes) cut++;
    long run = Math.max(1, Math.min(maxBytes / step[cut], shape[cut]));

    List<Part> parts = new ArrayList<>();
    long[] index = new long[shape.length]; // along the outer dimensions
    for (long offset = 0; offset < bytes; ) {
      for (long begin = 0; begin < shape[cut]; begin += run) {
        long[] partShape = shape.clone();
        Arrays.fill(partShape, 0, cut, 1);
        partShape[cut] = Math.min(run, shape[cut] - begin);
        long[] partBegin = index.clone();
        partBegin[cut] = begin;
        long partBytes = partShape[cut] * step[cut];
        parts.add(new Part(layout, partShape, partBegin, offset, partBytes));
        offset += partBytes;
      }
      for (int i = cut; i-- > 0; ) {
        if (++index[i] < shape[i]) break;
        index[i] = 0;
      }
    }
    return parts;
  }
}
