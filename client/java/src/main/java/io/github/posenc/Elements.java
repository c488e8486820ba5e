package io.github.posenc;

import io.github.posenc.v1.Dtype;
import java.nio.*;
import java.util.function.BiConsumer;
import java.util.function.Function;
import java.util.function.IntFunction;

/** The types that hold elements in Java: how to allocate, view and copy buffers of them. */
enum Elements {
  BYTES(1, ByteBuffer::allocate, ByteBuffer::slice, (a, b) -> ((ByteBuffer) b).put((ByteBuffer) a)),
  SHORTS(2, ShortBuffer::allocate, ByteBuffer::asShortBuffer,
      (a, b) -> ((ShortBuffer) b).put((ShortBuffer) a)),
  INTS(4, IntBuffer::allocate, ByteBuffer::asIntBuffer,
      (a, b) -> ((IntBuffer) b).put((IntBuffer) a)),
  LONGS(8, LongBuffer::allocate, ByteBuffer::asLongBuffer,
      (a, b) -> ((LongBuffer) b).put((LongBuffer) a)),
  FLOATS(4, FloatBuffer::allocate, ByteBuffer::asFloatBuffer,
      (a, b) -> ((FloatBuffer) b).put((FloatBuffer) a)),
  DOUBLES(8, DoubleBuffer::allocate, ByteBuffer::asDoubleBuffer,
      (a, b) -> ((DoubleBuffer) b).put((DoubleBuffer) a));

  final int bytes;
  final IntFunction<Buffer> allocate;
  /** Views bytes, from their position on and in their order. */
  final Function<ByteBuffer, Buffer> view;
  /** Copies all that remains in the first buffer to the second. */
  final BiConsumer<Buffer, Buffer> copy;

  Elements(int bytes, IntFunction<Buffer> allocate, Function<ByteBuffer, Buffer> view,
      BiConsumer<Buffer, Buffer> copy) {
    this.bytes = bytes;
    this.allocate = allocate;
    this.view = view;
    this.copy = copy;
  }

  /** Returns the type for elements of a dtype; null for an unknown one. */
  static Elements of(Dtype dtype) {
    switch (dtype) {
      case DTYPE_FLOAT8_E4M3FN:
      case DTYPE_FLOAT8_E5M2:
        return BYTES;
      case DTYPE_FLOAT16:
      case DTYPE_BFLOAT16:
        return SHORTS;
      case DTYPE_FLOAT32:
        return FLOATS;
      case DTYPE_FLOAT64:
        return DOUBLES;
      case DTYPE_INT32:
        return INTS;
      case DTYPE_INT64:
        return LONGS;
      default:
        return null;
    }
  }
}
