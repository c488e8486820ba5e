package io.github.posenc;

import io.github.posenc.v1.Dtype;
import io.github.posenc.v1.Tensor;
import io.grpc.Status;
import java.util.List;

/** A table or bias that arrives in parts: a matrix of rows and columns, or one for each head. */
final class Whole {
  private final String name;
  private final int axes;
  private final int count;
  private TensorView out;
  private long[] shape; // null: no part has arrived
  private long missing; // bytes

  /**
   * Makes a result without parts.
   *
   * @param axes number of its axes from the rows on
   * @param count number of results of this size
   * @param out memory for it; null: new memory
   */
  Whole(String name, int axes, int count, TensorView out) {
    this.name = name;
    this.axes = axes;
    this.count = count;
    this.out = out;
  }

  // Makes the memory, or throws if this process cannot hold all results of this size.
  private void begin(Dtype dtype, long[] size) {
    missing = TensorView.bytesOf(dtype, size);
    if (missing < 0 || size.length < axes) throw misfit("has no shape");
    Arguments.output(name, out, dtype, size);
    long memory = Runtime.getRuntime().maxMemory();
    boolean fits = missing <= memory / count
        && missing / Elements.of(dtype).bytes <= Integer.MAX_VALUE - 8; // the longest array
    if (out == null && !fits) {
      throw PosencException.local(Status.Code.RESOURCE_EXHAUSTED,
          "the result has " + count + " x " + missing + " bytes; this machine's Java has " + memory
              + " of memory, and arrays of less than 2^31 elements: take it in parts");
    }
    if (out == null) out = TensorView.allocate(dtype, size);
    shape = size;
  }

  /** Copies a part, whose first element is at this row and column of a result of this shape. */
  void put(List<Long> whole, Tensor part, long row, long column) {
    if (shape == null) begin(part.getDtype(), TensorView.shapeOf(whole));
    int axis = shape.length - axes; // of the rows
    long[] size = shape.clone();
    if (part.getShapeCount() == shape.length) {
      size[axis] = part.getShape(axis);
      size[axis + 1] = part.getShape(axis + 1);
    }
    boolean fits = TensorView.is(part, out.dtype(), size) && row >= 0
        && row <= shape[axis] - size[axis] && column >= 0
        && column <= shape[axis + 1] - size[axis + 1];
    if (!fits) throw misfit("has a part at row " + row + " that does not fit it");
    int bytes = part.getData().size();
    missing -= bytes;
    if (bytes == 0) return;
    long heads = axis == 0 ? 1 : size[0];
    // Whole rows lie side by side.
    long rows = size[axis + 1] == shape[axis + 1] ? 1 : size[axis];
    int run = (int) (bytes / (heads * rows));
    long rowBytes = out.bytes() / (heads * shape[axis]);
    for (int i = 0; i < heads * rows; i++) {
      long at = (i / rows * shape[axis] + row + i % rows) * rowBytes
          + column * (rowBytes / shape[axis + 1]);
      out.put(at, part.getData().substring(i * run, (i + 1) * run));
    }
  }

  /** Returns the result, after its last part. */
  TensorView get() {
    if (shape == null || missing != 0) throw misfit("has parts missing or twice");
    return out;
  }

  private PosencException misfit(String text) {
    return PosencException.local(Status.Code.INTERNAL, "the answer's " + name + " " + text);
  }
}
