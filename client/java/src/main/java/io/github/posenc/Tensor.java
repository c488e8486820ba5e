package io.github.posenc;

import com.google.protobuf.ByteString;
import io.github.posenc.v1.Dtype;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.DoubleBuffer;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.LongBuffer;
import java.nio.ShortBuffer;
import java.util.Arrays;

/**
 * A view of a dense, row-major tensor in the caller's memory, without a copy.
 *
 * <p>Typed arrays and buffers hold numbers, which do not depend on the byte order of the machine or
 * of the buffer. Only {@link #of(Dtype, ByteBuffer, long...)} takes raw bytes: they must be
 * little-endian, and the ByteBuffer's own {@code order()} is ignored.
 *
 * <p>A buffer's elements are the elements from its position to its limit at the time when the
 * tensor is made. The server checks that their number fits the shape: if not, the call ends as
 * INVALID_ARGUMENT (TENSOR_SIZE_MISMATCH) with both sizes in its text.
 */
public final class Tensor {
  private final Dtype dtype;
  private final long[] shape;
  private final Elements elements;
  private final SharedRegion.Place place; // null: not in a region

  private Tensor(Dtype dtype, Elements elements, long[] shape) {
    this(dtype, elements, shape, null);
  }

  private Tensor(Dtype dtype, Elements elements, long[] shape, SharedRegion.Place place) {
    this.dtype = PosencException.given("dtype", dtype);
    this.elements = elements;
    this.shape = PosencException.given("shape", shape).clone();
    this.place = place;
  }

  /** Returns the same tensor with this place. */
  Tensor in(SharedRegion.Place there) {
    return new Tensor(dtype, elements, shape, there);
  }

  /** Returns the place in a SharedRegion, or null. */
  SharedRegion.Place place() {
    return place;
  }

  /** Views float32 elements. */
  public static Tensor of(float[] elements, long... shape) {
    return of(FloatBuffer.wrap(PosencException.given("elements", elements)), shape);
  }

  /** Views float32 elements. */
  public static Tensor of(FloatBuffer elements, long... shape) {
    return new Tensor(Dtype.DTYPE_FLOAT32, Elements.of(elements), shape);
  }

  /** Views float64 elements. */
  public static Tensor of(double[] elements, long... shape) {
    return of(DoubleBuffer.wrap(PosencException.given("elements", elements)), shape);
  }

  /** Views float64 elements. */
  public static Tensor of(DoubleBuffer elements, long... shape) {
    return new Tensor(Dtype.DTYPE_FLOAT64, Elements.of(elements), shape);
  }

  /** Views int32 elements. */
  public static Tensor of(int[] elements, long... shape) {
    return of(IntBuffer.wrap(PosencException.given("elements", elements)), shape);
  }

  /** Views int32 elements. */
  public static Tensor of(IntBuffer elements, long... shape) {
    return new Tensor(Dtype.DTYPE_INT32, Elements.of(elements), shape);
  }

  /** Views int64 elements. */
  public static Tensor of(long[] elements, long... shape) {
    return of(LongBuffer.wrap(PosencException.given("elements", elements)), shape);
  }

  /** Views int64 elements. */
  public static Tensor of(LongBuffer elements, long... shape) {
    return new Tensor(Dtype.DTYPE_INT64, Elements.of(elements), shape);
  }

  /** Views the bits of float16 elements. */
  public static Tensor float16(short[] bits, long... shape) {
    return float16(ShortBuffer.wrap(PosencException.given("bits", bits)), shape);
  }

  /** Views the bits of float16 elements. */
  public static Tensor float16(ShortBuffer bits, long... shape) {
    return new Tensor(Dtype.DTYPE_FLOAT16, Elements.of(bits), shape);
  }

  /** Views the bits of bfloat16 elements: the upper halves of float32 bits. */
  public static Tensor bfloat16(short[] bits, long... shape) {
    return bfloat16(ShortBuffer.wrap(PosencException.given("bits", bits)), shape);
  }

  /** Views the bits of bfloat16 elements: the upper halves of float32 bits. */
  public static Tensor bfloat16(ShortBuffer bits, long... shape) {
    return new Tensor(Dtype.DTYPE_BFLOAT16, Elements.of(bits), shape);
  }

  /** Views the bits of FP8 elements, E4M3: only for rotated heads and weights. */
  public static Tensor float8E4m3fn(byte[] bits, long... shape) {
    return of(Dtype.DTYPE_FLOAT8_E4M3FN, ByteBuffer.wrap(PosencException.given("bits", bits)), shape);
  }

  /** Views the bits of FP8 elements, E5M2: only for rotated heads and weights. */
  public static Tensor float8E5m2(byte[] bits, long... shape) {
    return of(Dtype.DTYPE_FLOAT8_E5M2, ByteBuffer.wrap(PosencException.given("bits", bits)), shape);
  }

  /** Views little-endian bytes of any dtype. */
  public static Tensor of(Dtype dtype, ByteBuffer littleEndianBytes, long... shape) {
    return new Tensor(dtype, Elements.of(littleEndianBytes), shape);
  }

  /**
   * Makes a tensor of zeros in a new array of the dtype's type: float, double, short, int, long or
   * byte.
   */
  public static Tensor allocate(Dtype dtype, long... shape) {
    PosencException.given("dtype", dtype);
    long count = 1;
    for (long extent : PosencException.given("shape", shape)) {
      if (extent < 0 || extent > 0 && count > Integer.MAX_VALUE / extent) {
        throw PosencException.invalid(
            "shape", Arrays.toString(shape) + " is not that of an array of Java's");
      }
      count *= extent;
    }
    int size = (int) count;
    switch (dtype) {
      case DTYPE_FLOAT32:
        return of(new float[size], shape);
      case DTYPE_FLOAT16:
        return float16(new short[size], shape);
      case DTYPE_BFLOAT16:
        return bfloat16(new short[size], shape);
      case DTYPE_FLOAT64:
        return of(new double[size], shape);
      case DTYPE_INT32:
        return of(new int[size], shape);
      case DTYPE_INT64:
        return of(new long[size], shape);
      case DTYPE_FLOAT8_E4M3FN:
      case DTYPE_FLOAT8_E5M2:
        return of(dtype, ByteBuffer.wrap(new byte[size]), shape);
      default:
        throw PosencException.invalid("dtype", dtype + " has no elements");
    }
  }

  /** Makes a tensor from a copy of a message, such as position ids that the server built. */
  public static Tensor of(io.github.posenc.v1.Tensor message) {
    PosencException.given("tensor", message);
    long[] shape = message.getShapeList().stream().mapToLong(Long::longValue).toArray();
    ByteBuffer data = ByteBuffer.wrap(message.getData().toByteArray());
    if (message.getDtype() == Dtype.UNRECOGNIZED || message.getValuesCount() > 0) {
      throw PosencException.invalid("tensor", "a message without data of a known dtype");
    }
    return view(message.getDtype(), data.order(ByteOrder.LITTLE_ENDIAN), shape);
  }

  /** Views a little-endian ByteBuffer by the dtype's kind of buffer. */
  static Tensor view(Dtype dtype, ByteBuffer data, long[] shape) {
    switch (dtype) {
      case DTYPE_FLOAT32:
        return of(data.asFloatBuffer(), shape);
      case DTYPE_FLOAT16:
        return float16(data.asShortBuffer(), shape);
      case DTYPE_BFLOAT16:
        return bfloat16(data.asShortBuffer(), shape);
      case DTYPE_FLOAT64:
        return of(data.asDoubleBuffer(), shape);
      case DTYPE_INT32:
        return of(data.asIntBuffer(), shape);
      case DTYPE_INT64:
        return of(data.asLongBuffer(), shape);
      default:
        return of(dtype, data, shape);
    }
  }

  /** Returns the bytes of an element; 0 for an unknown type. */
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

  /** Returns a copy as a message, for tensors inside of messages: position ids, trained tables. */
  public io.github.posenc.v1.Tensor toMessage() {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream(Math.toIntExact(bytes()));
    try {
      elements.writeTo(bytes, 0, bytes());
    } catch (IOException e) {
      throw new UncheckedIOException(e); // never: the stream is in memory
    }
    return io.github.posenc.v1.Tensor.newBuilder()
        .setDtype(dtype)
        .addAllShape(Arrays.stream(shape).boxed()::iterator)
        .setData(ByteString.copyFrom(bytes.toByteArray()))
        .build();
  }

  /** Returns the type of the elements. */
  public Dtype dtype() {
    return dtype;
  }

  /** Returns the extents, outermost first. Empty: a scalar. */
  public long[] shape() {
    return shape.clone();
  }

  /** Returns the size of all elements in bytes. */
  public long bytes() {
    return elements.bytes();
  }

  /**
   * Returns the elements: the array itself if the tensor is the whole array, else a copy.
   *
   * @throws PosencException INVALID_ARGUMENT if they are not floats
   */
  public float[] toFloatArray() {
    FloatBuffer all = bufferOf(FloatBuffer.class);
    if (all.hasArray() && all.array().length == all.remaining()) return all.array();
    float[] copy = new float[all.remaining()];
    all.get(copy);
    return copy;
  }

  /** Returns doubles, like {@link #toFloatArray}. */
  public double[] toDoubleArray() {
    DoubleBuffer all = bufferOf(DoubleBuffer.class);
    if (all.hasArray() && all.array().length == all.remaining()) return all.array();
    double[] copy = new double[all.remaining()];
    all.get(copy);
    return copy;
  }

  /** Returns the bits of float16 or bfloat16, like {@link #toFloatArray}. */
  public short[] toShortArray() {
    ShortBuffer all = bufferOf(ShortBuffer.class);
    if (all.hasArray() && all.array().length == all.remaining()) return all.array();
    short[] copy = new short[all.remaining()];
    all.get(copy);
    return copy;
  }

  /**
   * Returns the bits of FP8, or the bytes of a tensor made of bytes, like {@link #toFloatArray}.
   */
  public byte[] toByteArray() {
    ByteBuffer all = bufferOf(ByteBuffer.class);
    if (all.hasArray() && all.array().length == all.remaining()) return all.array();
    byte[] copy = new byte[all.remaining()];
    all.get(copy);
    return copy;
  }

  /** Returns ints, like {@link #toFloatArray}. */
  public int[] toIntArray() {
    IntBuffer all = bufferOf(IntBuffer.class);
    if (all.hasArray() && all.array().length == all.remaining()) return all.array();
    int[] copy = new int[all.remaining()];
    all.get(copy);
    return copy;
  }

  /** Returns longs, like {@link #toFloatArray}. */
  public long[] toLongArray() {
    LongBuffer all = bufferOf(LongBuffer.class);
    if (all.hasArray() && all.array().length == all.remaining()) return all.array();
    long[] copy = new long[all.remaining()];
    all.get(copy);
    return copy;
  }

  /**
   * Returns a view of the elements, which begin at its position: a FloatBuffer, DoubleBuffer,
   * ShortBuffer, IntBuffer, LongBuffer or (FP8) ByteBuffer for the dtype, or a ByteBuffer if the
   * tensor was made of one.
   */
  public Buffer buffer() {
    return elements.buffer();
  }

  private <B extends Buffer> B bufferOf(Class<B> kind) {
    Buffer all = buffer();
    if (kind.isInstance(all)) return kind.cast(all);
    throw PosencException.invalid("dtype", "is " + dtype + ", whose elements are no " + kind.getSimpleName() + "'s");
  }

  Elements elements() {
    return elements;
  }

  @Override
  public String toString() {
    return "Tensor(" + dtype + ", " + Arrays.toString(shape) + ")";
  }
}
