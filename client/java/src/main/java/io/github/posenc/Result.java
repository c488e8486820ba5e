package io.github.posenc;

import com.google.protobuf.ByteString;
import io.github.posenc.v1.Dtype;
import io.github.posenc.v1.Tensor;
import io.grpc.Status;
import java.util.Arrays;
import java.util.List;

/** A tensor of an answer, in the caller's memory or in new memory. It comes whole or in parts. */
final class Result {
  private final String field;
  private TensorView out; // null: new memory
  private Dtype dtype; // null: only the server knows dtype and shape
  private long[] shape;
  private long missing; // number of bytes that have not arrived

  Result(String field, TensorView out) {
    this.field = field;
    this.out = out;
  }

  /**
   * Sets dtype and shape, and checks the caller's memory, unless dtype and shape are already set.
   */
  Result expect(Dtype dtype, List<Long> extents) {
    if (this.dtype != null) return this;
    shape = TensorView.shapeOf(extents);
    missing = TensorView.bytesOf(dtype, shape);
    if (missing < 0) throw misfit("is " + dtype + " " + extents + ", which is none");
    this.dtype = dtype;
    if (out == null) return this;
    if (out.buffer().isReadOnly()) throw wrong("is read-only; must be writable");
    if (out.dtype() != dtype) throw wrong("is " + out.dtype() + "; must be " + dtype);
    if (!Arrays.equals(out.shape(), shape)) {
      throw wrong("has shape " + Arrays.toString(out.shape()) + "; must be " + extents);
    }
    if (out.bytes() != missing) {
      throw wrong("has " + out.bytes() + " bytes; must have " + missing);
    }
    return this;
  }

  /** Returns the memory of the result, or null before new memory is allocated. */
  TensorView out() {
    return out;
  }

  boolean isInRegion() {
    return out != null && out.place != null;
  }

  // Returns whether the request names a place for the result. The server writes the whole result to
  // the place, so the client must know the size of the result.
  boolean isPlaced() {
    return isInRegion() && dtype != null;
  }

  /** Makes memory if the caller gave none. Throws if Java cannot hold `count` such results. */
  Result allocate(int count) {
    if (out != null) return this;
    long memory = Runtime.getRuntime().maxMemory();
    // The longest array has a few elements less than 2^31.
    if (missing > memory / count || missing / Elements.of(dtype).bytes > Integer.MAX_VALUE - 8) {
      throw PosencException.local(Status.Code.RESOURCE_EXHAUSTED,
          "the result has " + count + " x " + missing + " bytes; this machine's Java has " + memory
              + " of memory, and arrays of less than 2^31 elements: take it in parts");
    }
    out = TensorView.allocate(dtype, shape);
    return this;
  }

  /** Copies a whole tensor to the memory, and returns the memory. */
  TensorView take(Tensor tensor) {
    expect(tensor.getDtype(), tensor.getShapeList());
    if (!TensorView.is(tensor, dtype, shape)) {
      throw misfit("has " + tensor.getData().size() + " bytes of " + tensor.getDtype() + " "
          + tensor.getShapeList());
    }
    allocate(1).put(tensor.getData());
    return out;
  }

  /** Copies the next bytes, until no bytes are missing. Returns the bytes that were not copied. */
  ByteString put(ByteString data) {
    int size = (int) Math.min(missing, data.size());
    out.put(out.bytes() - missing, data.substring(0, size));
    missing -= size;
    return data.substring(size);
  }

  /**
   * Copies a part, which begins at this row and column of the result.
   *
   * @param whole the shape of the result; only the first part has it
   * @param count the number of results of this size
   * @param axes the number of axes from the rows to the last axis; an axis before the rows counts
   *     heads
   */
  void put(Tensor part, List<Long> whole, int count, int axes, long row, long column) {
    if (dtype == null && whole.isEmpty()) throw misfit("has no shape: the server is too old");
    expect(part.getDtype(), whole).allocate(count);
    int axis = shape.length - axes; // the axis of rows
    long[] size = shape.clone();
    if (axis >= 0 && part.getShapeCount() == shape.length) {
      size[axis] = part.getShape(axis);
      size[axis + 1] = part.getShape(axis + 1);
    }
    boolean fits = axis >= 0 && TensorView.is(part, dtype, size) && row >= 0
        && row <= shape[axis] - size[axis] && column >= 0
        && column <= shape[axis + 1] - size[axis + 1];
    if (!fits) throw misfit("has a part at row " + row + " that does not fit it");
    int bytes = part.getData().size();
    missing -= bytes;
    if (bytes == 0) return;
    long heads = axis == 0 ? 1 : size[0];
    // If the part has whole rows, the rows of a head are one run of bytes.
    long rows = size[axis + 1] == shape[axis + 1] ? 1 : size[axis];
    int run = (int) (bytes / (heads * rows));
    long rowBytes = out.bytes() / (heads * shape[axis]);
    for (int i = 0; i < heads * rows; i++) {
      long at = (i / rows * shape[axis] + row + i % rows) * rowBytes
          + column * (rowBytes / shape[axis + 1]);
      out.put(at, part.getData().substring(i * run, (i + 1) * run));
    }
  }

  /** Returns the memory after all parts were copied. Throws if parts are missing. */
  TensorView end() {
    if (dtype == null || missing != 0)
      throw misfit("does not fit: parts are missing, or come twice");
    return out;
  }

  private PosencException wrong(String text) {
    return PosencException.invalid(field + "_output", text);
  }

  private PosencException misfit(String text) {
    String all = dtype == null ? "" : "; it must be " + dtype + " " + Arrays.toString(shape);
    return PosencException.local(Status.Code.INTERNAL, "the answer's " + field + " " + text + all);
  }
}
