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
 * A dense, row-major tensor in the caller's memory: a view, nothing is copied.
 *
 * <p>Typed arrays and buffers hold numbers, which arrive as the same numbers whatever the byte
 * order of the machine or of the buffer. Only {@link #of(Dtype, ByteBuffer, long...)} takes raw
 * bytes: they must be little-endian, and the ByteBuffer's own {@code order()} does not matter.
 *
 * <p>A buffer's elements are those from its position to its limit, at the time when the tensor is
 * made. Whether there are as many as the shape says is the server's to check: if not, the call ends
 * as INVALID_ARGUMENT (TENSOR_SIZE_MISMATCH) with both sizes in its text.
 */
public final class Tensor {
  private final Dtype dtype;
  private final long[] shape;
  private final Elements elements;
  private final SharedRegion.Place place; // null: in memory of this process

  private Tensor(Dtype dtype, Elements elements, long[] shape) {
    this(dtype, elements, shape, null);
  }

  private Tensor(Dtype dtype, Elements elements, long[] shape, SharedRegion.Place place) {
    this.dtype = PosencException.given("dtype", dtype);
    this.elements = elements;
    this.shape = PosencException.given("shape", shape).clone();
    this.place = place;
  }

  /** The same tensor, which lies there. */
  Tensor in(SharedRegion.Place there) {
    return new Tensor(dtype, elements, shape, there);
  }

  /** Null unless it lies in a SharedRegion. */
  SharedRegion.Place place() {
    return place;
  }

  /** float32. */
  public static Tensor of(float[] elements, long... shape) {
    return of(FloatBuffer.wrap(PosencException.given("elements", elements)), shape);
  }

  /** float32. */
  public static Tensor of(FloatBuffer elements, long... shape) {
    return new Tensor(Dtype.DTYPE_FLOAT32, Elements.of(elements), shape);
  }

  /** float64. */
  public static Tensor of(double[] elements, long... shape) {
    return of(DoubleBuffer.wrap(PosencException.given("elements", elements)), shape);
  }

  /** float64. */
  public static Tensor of(DoubleBuffer elements, long... shape) {
    return new Tensor(Dtype.DTYPE_FLOAT64, Elements.of(elements), shape);
  }

  /** int32. */
  public static Tensor of(int[] elements, long... shape) {
    return of(IntBuffer.wrap(PosencException.given("elements", elements)), shape);
  }

  /** int32. */
  public static Tensor of(IntBuffer elements, long... shape) {
    return new Tensor(Dtype.DTYPE_INT32, Elements.of(elements), shape);
  }

  /** int64. */
  public static Tensor of(long[] elements, long... shape) {
    return of(LongBuffer.wrap(PosencException.given("elements", elements)), shape);
  }

  /** int64. */
  public static Tensor of(LongBuffer elements, long... shape) {
    return new Tensor(Dtype.DTYPE_INT64, Elements.of(elements), shape);
  }

  /** float16, by its bits. */
  public static Tensor float16(short[] bits, long... shape) {
    return float16(ShortBuffer.wrap(PosencException.given("bits", bits)), shape);
  }

  /** float16, by its bits. */
  public static Tensor float16(ShortBuffer bits, long... shape) {
    return new Tensor(Dtype.DTYPE_FLOAT16, Elements.of(bits), shape);
  }

  /** bfloat16, by its bits: the upper half of a float32's. */
  public static Tensor bfloat16(short[] bits, long... shape) {
    return bfloat16(ShortBuffer.wrap(PosencException.given("bits", bits)), shape);
  }

  /** bfloat16, by its bits: the upper half of a float32's. */
  public static Tensor bfloat16(ShortBuffer bits, long... shape) {
    return new Tensor(Dtype.DTYPE_BFLOAT16, Elements.of(bits), shape);
  }

  /** FP8, E4M3, by its bits: of heads to be rotated, and of weights. */
  public static Tensor float8E4m3fn(byte[] bits, long... shape) {
    return of(Dtype.DTYPE_FLOAT8_E4M3FN, ByteBuffer.wrap(PosencException.given("bits", bits)), shape);
  }

  /** FP8, E5M2, by its bits: of heads to be rotated, and of weights. */
  public static Tensor float8E5m2(byte[] bits, long... shape) {
    return of(Dtype.DTYPE_FLOAT8_E5M2, ByteBuffer.wrap(PosencException.given("bits", bits)), shape);
  }

  /** Any dtype, by its little-endian bytes. */
  public static Tensor of(Dtype dtype, ByteBuffer littleEndianBytes, long... shape) {
    return new Tensor(dtype, Elements.of(littleEndianBytes), shape);
  }

  /** A tensor of zeros in a new array: of float, double, short, int, long or byte, as the dtype is. */
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

  /** The tensor of a message, such as position ids that the server built, over a copy of it. */
  public static Tensor of(io.github.posenc.v1.Tensor message) {
    PosencException.given("tensor", message);
    long[] shape = message.getShapeList().stream().mapToLong(Long::longValue).toArray();
    ByteBuffer data = ByteBuffer.wrap(message.getData().toByteArray());
    if (message.getDtype() == Dtype.UNRECOGNIZED || message.getValuesCount() > 0) {
      throw PosencException.invalid("tensor", "a message without data of a known dtype");
    }
    return view(message.getDtype(), data.order(ByteOrder.LITTLE_ENDIAN), shape);
  }

  /** Views little-endian memory, of that order, by the dtype's kind of buffer. */
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

  /** Bytes of an element; 0 if there is no such type. */
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

  /** A copy as a message, for tensors that belong into one: position ids, trained tables. */
  public io.github.posenc.v1.Tensor toMessage() {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream(Math.toIntExact(bytes()));
    try {
      elements.writeTo(bytes, 0, bytes());
    } catch (IOException e) {
      throw new UncheckedIOException(e); // memory does not fail
    }
    return io.github.posenc.v1.Tensor.newBuilder()
        .setDtype(dtype)
        .addAllShape(Arrays.stream(shape).boxed()::iterator)
        .setData(ByteString.copyFrom(bytes.toByteArray()))
        .build();
  }

  /** The type of the elements. */
  public Dtype dtype() {
    return dtype;
  }

  /** Extents, outermost first. Empty: a scalar. */
  public long[] shape() {
    return shape.clone();
  }

  /** The size of all elements. */
  public long bytes() {
    return elements.bytes();
  }

  /**
   * The elements: the array itself if the tensor is the whole of one, else a copy.
   *
   * @throws PosencException INVALID_ARGUMENT if they are no floats
   */
  public float[] toFloatArray() {
    FloatBuffer all = bufferOf(FloatBuffer.class);
    if (all.hasArray() && all.array().length == all.remaining()) return all.array();
    float[] copy = new float[all.remaining()];
    all.get(copy);
    return copy;
  }

  /** As {@link #toFloatArray}, of doubles. */
  public double[] toDoubleArray() {
    DoubleBuffer all = bufferOf(DoubleBuffer.class);
    if (all.hasArray() && all.array().length == all.remaining()) return all.array();
    double[] copy = new double[all.remaining()];
    all.get(copy);
    return copy;
  }

  /** As {@link #toFloatArray}, of the bits of float16 and bfloat16. */
  public short[] toShortArray() {
    ShortBuffer all = bufferOf(ShortBuffer.class);
    if (all.hasArray() && all.array().length == all.remaining()) return all.array();
    short[] copy = new short[all.remaining()];
    all.get(copy);
    return copy;
  }

  /** As {@link #toFloatArray}, of the bits of FP8, or of a tensor that was made of bytes. */
  public byte[] toByteArray() {
    ByteBuffer all = bufferOf(ByteBuffer.class);
    if (all.hasArray() && all.array().length == all.remaining()) return all.array();
    byte[] copy = new byte[all.remaining()];
    all.get(copy);
    return copy;
  }

  /** As {@link #toFloatArray}, of ints. */
  public int[] toIntArray() {
    IntBuffer all = bufferOf(IntBuffer.class);
    if (all.hasArray() && all.array().length == all.remaining()) return all.array();
    int[] copy = new int[all.remaining()];
    all.get(copy);
    return copy;
  }

  /** As {@link #toFloatArray}, of longs. */
  public long[] toLongArray() {
    LongBuffer all = bufferOf(LongBuffer.class);
    if (all.hasArray() && all.array().length == all.remaining()) return all.array();
    long[] copy = new long[all.remaining()];
    all.get(copy);
    return copy;
  }

  /**
   * A view of the elements, which begin at its position: a FloatBuffer, DoubleBuffer, ShortBuffer,
   * IntBuffer, LongBuffer or (FP8) ByteBuffer as the dtype is, or a ByteBuffer if the tensor was made
   * of one.
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
