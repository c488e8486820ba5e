package io.github.posenc;

import static io.github.posenc.Arguments.given;

import com.google.protobuf.ByteString;
import com.google.protobuf.UnsafeByteOperations;
import io.github.posenc.v1.Dtype;
import io.github.posenc.v1.SharedMemory;
import io.github.posenc.v1.Tensor;
import java.io.IOException;
import java.io.OutputStream;
import java.lang.reflect.Array;
import java.nio.*;
import java.util.Arrays;
import java.util.List;

/**
 * A view of a dense, row-major tensor in the caller's memory, without a copy.
 *
 * <p>Typed arrays and buffers contain numbers, which do not depend on the byte order of the machine
 * or of the buffer. Only {@link #of(Dtype, ByteBuffer, long...)} takes raw bytes. They must be
 * little-endian; the {@code order()} of the ByteBuffer is ignored.
 *
 * <p>A tensor of a buffer has the elements from the buffer's current position to its limit. The
 * server checks that their number fits the shape. If the number does not fit, the call fails with
 * INVALID_ARGUMENT (TENSOR_SIZE_MISMATCH), and the error's text has both sizes.
 */
public final class TensorView {
  // Elements are copied through a block of this size, which fits a core's own cache.
  private static final int BLOCK_BYTES = 64 << 10;

  private final Dtype dtype;
  private final long[] shape;
  private final Elements type;
  private final Buffer elements; // the tensor's elements, from index 0 to the limit
  final SharedMemory place; // in shared memory; null: the tensor is sent as bytes

  TensorView(Dtype dtype, long[] shape, Elements type, Buffer elements, SharedMemory place) {
    this.dtype = given("dtype", dtype);
    this.shape = given("shape", shape).clone();
    this.type = type;
    this.elements = given("elements", elements).slice();
    this.place = place;
  }

  /** Views float32 elements. */
  public static TensorView of(float[] elements, long... shape) {
    return of(FloatBuffer.wrap(given("elements", elements)), shape);
  }

  /** Views float32 elements. */
  public static TensorView of(FloatBuffer elements, long... shape) {
    return new TensorView(Dtype.DTYPE_FLOAT32, shape, Elements.FLOATS, elements, null);
  }

  /** Views float64 elements. */
  public static TensorView of(double[] elements, long... shape) {
    return of(DoubleBuffer.wrap(given("elements", elements)), shape);
  }

  /** Views float64 elements. */
  public static TensorView of(DoubleBuffer elements, long... shape) {
    return new TensorView(Dtype.DTYPE_FLOAT64, shape, Elements.DOUBLES, elements, null);
  }

  /** Views int32 elements. */
  public static TensorView of(int[] elements, long... shape) {
    return of(IntBuffer.wrap(given("elements", elements)), shape);
  }

  /** Views int32 elements. */
  public static TensorView of(IntBuffer elements, long... shape) {
    return new TensorView(Dtype.DTYPE_INT32, shape, Elements.INTS, elements, null);
  }

  /** Views int64 elements. */
  public static TensorView of(long[] elements, long... shape) {
    return of(LongBuffer.wrap(given("elements", elements)), shape);
  }

  /** Views int64 elements. */
  public static TensorView of(LongBuffer elements, long... shape) {
    return new TensorView(Dtype.DTYPE_INT64, shape, Elements.LONGS, elements, null);
  }

  /** Views the bits of float16 elements. */
  public static TensorView float16(short[] bits, long... shape) {
    return float16(ShortBuffer.wrap(given("bits", bits)), shape);
  }

  /** Views the bits of float16 elements. */
  public static TensorView float16(ShortBuffer bits, long... shape) {
    return new TensorView(Dtype.DTYPE_FLOAT16, shape, Elements.SHORTS, bits, null);
  }

  /** Views the bits of bfloat16 elements: the upper halves of float32 bits. */
  public static TensorView bfloat16(short[] bits, long... shape) {
    return bfloat16(ShortBuffer.wrap(given("bits", bits)), shape);
  }

  /** Views the bits of bfloat16 elements: the upper halves of float32 bits. */
  public static TensorView bfloat16(ShortBuffer bits, long... shape) {
    return new TensorView(Dtype.DTYPE_BFLOAT16, shape, Elements.SHORTS, bits, null);
  }

  /** Views the bits of FP8 elements, E4M3: only for rotated heads and weights. */
  public static TensorView float8E4m3fn(byte[] bits, long... shape) {
    return of(Dtype.DTYPE_FLOAT8_E4M3FN, ByteBuffer.wrap(given("bits", bits)), shape);
  }

  /** Views the bits of FP8 elements, E5M2: only for rotated heads and weights. */
  public static TensorView float8E5m2(byte[] bits, long... shape) {
    return of(Dtype.DTYPE_FLOAT8_E5M2, ByteBuffer.wrap(given("bits", bits)), shape);
  }

  /** Views quantised keys, or the bytes of blocks: only for repositions. */
  public static TensorView int8(byte[] elements, long... shape) {
    return of(Dtype.DTYPE_INT8, ByteBuffer.wrap(given("elements", elements)), shape);
  }

  /** Views little-endian bytes of any dtype. */
  public static TensorView of(Dtype dtype, ByteBuffer littleEndianBytes, long... shape) {
    return new TensorView(dtype, shape, Elements.BYTES, littleEndianBytes, null);
  }

  /** Makes a tensor of zeros in a new array of the dtype's type. */
  public static TensorView allocate(Dtype dtype, long... shape) {
    long bytes = bytesOf(given("dtype", dtype), given("shape", shape));
    Elements type = Elements.of(dtype);
    if (bytes < 0 || bytes / type.bytes > Integer.MAX_VALUE) {
      throw PosencException.invalid(
          "shape", dtype + " " + Arrays.toString(shape) + " is not that of an array of Java's");
    }
    Buffer elements = type.allocate.apply((int) (bytes / type.bytes));
    return new TensorView(dtype, shape, type, elements, null);
  }

  /** Makes a tensor with a copy of a message's elements, such as ids that the server built. */
  public static TensorView of(Tensor message) {
    long[] shape = shapeOf(given("tensor", message).getShapeList());
    if (!is(message, message.getDtype(), shape)) {
      throw PosencException.invalid("tensor", "a message without data of a known dtype");
    }
    TensorView copy = allocate(message.getDtype(), shape);
    copy.put(0, message.getData());
    return copy;
  }

  /** Copies the tensor to a message, for use inside of other messages: position ids, tables. */
  public Tensor toMessage() {
    byte[] array = new byte[(int) bytes()];
    Buffer data = type.view.apply(ByteBuffer.wrap(array).order(ByteOrder.LITTLE_ENDIAN));
    type.copy.accept(buffer(), data);
    return header().setData(UnsafeByteOperations.unsafeWrap(array)).build();
  }

  /** Returns the tensor as a message without elements. */
  Tensor.Builder header() {
    return Tensor.newBuilder().setDtype(dtype).addAllShape(Arrays.stream(shape).boxed()::iterator);
  }

  static long[] shapeOf(List<Long> extents) {
    return extents.stream().mapToLong(extent -> extent).toArray();
  }

  /** Returns whether a message has this dtype and shape, and the size that they require. */
  static boolean is(Tensor message, Dtype dtype, long[] shape) {
    return message.getDtype() == dtype && Arrays.equals(shapeOf(message.getShapeList()), shape)
        && message.getData().size() == bytesOf(dtype, shape);
  }

  /** Returns a tensor's size in bytes, at most Long.MAX_VALUE, or -1 for an invalid tensor. */
  static long bytesOf(Dtype dtype, long... shape) {
    long bytes = Elements.of(dtype) == null ? -1 : Elements.of(dtype).bytes;
    for (long extent : shape) {
      if (extent < 0 || bytes < 0) return -1;
      bytes = extent > 0 && bytes > Long.MAX_VALUE / extent ? Long.MAX_VALUE : bytes * extent;
    }
    return bytes;
  }

  /** Returns the type of the elements. */
  public Dtype dtype() {
    return dtype;
  }

  /** Returns the extents, outermost axis first. A scalar has no extents. */
  public long[] shape() {
    return shape.clone();
  }

  /** Returns the size of all elements in bytes. */
  public long bytes() {
    return (long) elements.limit() * type.bytes;
  }

  /** Returns whether the number of elements fits the shape. */
  boolean isWhole() {
    return bytes() == bytesOf(dtype, shape);
  }

  /**
   * Returns a view of the elements, which begin at the buffer's position. The dtype determines the
   * type: FloatBuffer, DoubleBuffer, ShortBuffer, IntBuffer, LongBuffer, or ByteBuffer for FP8. A
   * tensor that was made from a ByteBuffer returns a ByteBuffer.
   */
  public Buffer buffer() {
    return elements.duplicate();
  }

  /**
   * Returns the elements: the array itself if the tensor is the whole array, otherwise a copy.
   *
   * @throws PosencException INVALID_ARGUMENT if the elements are not floats
   */
  public float[] toFloatArray() {
    return (float[]) array(Elements.FLOATS);
  }

  /** Returns doubles, like {@link #toFloatArray}. */
  public double[] toDoubleArray() {
    return (double[]) array(Elements.DOUBLES);
  }

  /** Returns the bits of float16 or bfloat16, like {@link #toFloatArray}. */
  public short[] toShortArray() {
    return (short[]) array(Elements.SHORTS);
  }

  /** Returns the bits of FP8, or the bytes of a tensor of bytes, like {@link #toFloatArray}. */
  public byte[] toByteArray() {
    return (byte[]) array(Elements.BYTES);
  }

  /** Returns ints, like {@link #toFloatArray}. */
  public int[] toIntArray() {
    return (int[]) array(Elements.INTS);
  }

  /** Returns longs, like {@link #toFloatArray}. */
  public long[] toLongArray() {
    return (long[]) array(Elements.LONGS);
  }

  private Object array(Elements wanted) {
    if (type != wanted) {
      throw PosencException.invalid("dtype", "is " + dtype + ", whose elements are no " + wanted);
    }
    if (elements.hasArray() && Array.getLength(elements.array()) == elements.limit()) {
      return elements.array();
    }
    Buffer copy = type.allocate.apply(elements.limit());
    type.copy.accept(buffer(), copy);
    return copy.array();
  }

  /** Writes whole elements as little-endian bytes, and returns their size. */
  int writeTo(OutputStream out, long firstByte, int bytes) throws IOException {
    if (type == Elements.BYTES && elements.hasArray()) {
      out.write((byte[]) elements.array(), elements.arrayOffset() + (int) firstByte, bytes);
      return bytes;
    }
    byte[] array = new byte[Math.min(BLOCK_BYTES, bytes)];
    Buffer block = type.view.apply(ByteBuffer.wrap(array).order(ByteOrder.LITTLE_ENDIAN));
    for (int done = 0; done < bytes; done += array.length) {
      int size = Math.min(array.length, bytes - done);
      type.copy.accept(range(firstByte + done, size / type.bytes), block.clear());
      out.write(array, 0, size);
    }
    return bytes;
  }

  /** Copies little-endian bytes of whole elements to the tensor, from its byte firstByte on. */
  void put(long firstByte, ByteString bytes) {
    long at = firstByte;
    ByteBuffer split = ByteBuffer.allocate(type.bytes); // an element on the border of two pieces
    for (ByteBuffer piece : bytes.asReadOnlyByteBufferList()) {
      while (split.position() > 0 && split.hasRemaining() && piece.hasRemaining()) {
        split.put(piece.get());
      }
      if (!split.hasRemaining()) {
        at += put(at, split.flip());
        split.clear();
      }
      at += put(at, piece);
      split.put(piece);
    }
  }

  // Copies all whole elements in `bytes`, and returns the number of copied bytes.
  private int put(long firstByte, ByteBuffer bytes) {
    int count = bytes.remaining() / type.bytes;
    Buffer from = type.view.apply(bytes.order(ByteOrder.LITTLE_ENDIAN));
    type.copy.accept(from.limit(count), range(firstByte, count));
    bytes.position(bytes.position() + count * type.bytes);
    return count * type.bytes;
  }

  private Buffer range(long firstByte, int count) {
    int first = (int) (firstByte / type.bytes);
    return elements.duplicate().limit(first + count).position(first);
  }

  @Override
  public String toString() {
    return "TensorView(" + dtype + ", " + Arrays.toString(shape) + ")";
  }
}
