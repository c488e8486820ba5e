package io.github.posenc;

import io.github.posenc.v1.Dtype;
import java.nio.*;
import java.util.Arrays;
import java.util.List;
import java.util.function.BiConsumer;
import java.util.function.Function;
import java.util.function.IntFunction;

/** The Java types of elements, and how to allocate, view and copy buffers of each type. */
enum Elements {
  BYTES(1, ByteBuffer::allocate, ByteBuffer::slice,
      (a, b)
          -> ((ByteBuffer) b).put((ByteBuffer) a),
      Dtype.DTYPE_FLOAT8_E4M3FN, Dtype.DTYPE_FLOAT8_E5M2, Dtype.DTYPE_INT8),
  SHORTS(2, ShortBuffer::allocate, ByteBuffer::asShortBuffer,
      (a, b) -> ((ShortBuffer) b).put((ShortBuffer) a), Dtype.DTYPE_FLOAT16, Dtype.DTYPE_BFLOAT16),
  INTS(4, IntBuffer::allocate, ByteBuffer::asIntBuffer,
      (a, b) -> ((IntBuffer) b).put((IntBuffer) a), Dtype.DTYPE_INT32),
  LONGS(8, LongBuffer::allocate, ByteBuffer::asLongBuffer,
      (a, b) -> ((LongBuffer) b).put((LongBuffer) a), Dtype.DTYPE_INT64),
  FLOATS(4, FloatBuffer::allocate, ByteBuffer::asFloatBuffer,
      (a, b) -> ((FloatBuffer) b).put((FloatBuffer) a), Dtype.DTYPE_FLOAT32),
  DOUBLES(8, DoubleBuffer::allocate, ByteBuffer::asDoubleBuffer,
      (a, b) -> ((DoubleBuffer) b).put((DoubleBuffer) a), Dtype.DTYPE_FLOAT64);

  final int bytes;
  final IntFunction<Buffer> allocate;
  /** Views the bytes of a buffer from its position on, in the buffer's byte order. */
  final Function<ByteBuffer, Buffer> view;
  /** Copies the remaining elements of the first buffer to the second buffer. */
  final BiConsumer<Buffer, Buffer> copy;
  private final List<Dtype> dtypes;

  Elements(int bytes, IntFunction<Buffer> allocate, Function<ByteBuffer, Buffer> view,
      BiConsumer<Buffer, Buffer> copy, Dtype... dtypes) {
    this.bytes = bytes;
    this.allocate = allocate;
    this.view = view;
    this.copy = copy;
    this.dtypes = Arrays.asList(dtypes);
  }

  /** Returns the type for elements of a dtype, or null if the dtype is unknown. */
  static Elements of(Dtype dtype) {
    for (Elements type : values()) {
      if (type.dtypes.contains(dtype)) return type;
    }
    return null;
  }
}
