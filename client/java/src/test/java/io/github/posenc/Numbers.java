package io.github.posenc;

import io.github.posenc.v1.Dtype;

/** Elements as doubles, and back: rounded once, to nearest even. Independent of the client's code. */
final class Numbers {
  private Numbers() {}

  static Tensor tensor(Dtype dtype, double[] values, long... shape) {
    Tensor tensor = Tensor.allocate(dtype, new long[] {values.length});
    for (int i = 0; i < values.length; i++) {
      switch (dtype) {
        case DTYPE_FLOAT32:
          tensor.toFloatArray()[i] = (float) values[i];
          break;
        case DTYPE_FLOAT16:
        case DTYPE_BFLOAT16:
          tensor.toShortArray()[i] = (short) nearest(dtype, values[i]);
          break;
        case DTYPE_FLOAT64:
          tensor.toDoubleArray()[i] = values[i];
          break;
        case DTYPE_INT32:
          tensor.toIntArray()[i] = (int) values[i];
          break;
        default:
          tensor.toLongArray()[i] = (long) values[i];
      }
    }
    return shaped(tensor, shape);
  }

  private static Tensor shaped(Tensor flat, long[] shape) {
    switch (flat.dtype()) {
      case DTYPE_FLOAT32:
        return Tensor.of(flat.toFloatArray(), shape);
      case DTYPE_FLOAT16:
        return Tensor.float16(flat.toShortArray(), shape);
      case DTYPE_BFLOAT16:
        return Tensor.bfloat16(flat.toShortArray(), shape);
      case DTYPE_FLOAT64:
        return Tensor.of(flat.toDoubleArray(), shape);
      case DTYPE_INT32:
        return Tensor.of(flat.toIntArray(), shape);
      default:
        return Tensor.of(flat.toLongArray(), shape);
    }
  }

  static double[] doubles(Tensor tensor) {
    switch (tensor.dtype()) {
      case DTYPE_FLOAT32:
        float[] floats = tensor.toFloatArray();
        double[] values = new double[floats.length];
        for (int i = 0; i < values.length; i++) values[i] = floats[i];
        return values;
      case DTYPE_FLOAT16:
      case DTYPE_BFLOAT16:
        short[] bits = tensor.toShortArray();
        values = new double[bits.length];
        for (int i = 0; i < values.length; i++) values[i] = value(tensor.dtype(), bits[i] & 0xffff);
        return values;
      case DTYPE_FLOAT64:
        return tensor.toDoubleArray();
      case DTYPE_INT32:
        return java.util.Arrays.stream(tensor.toIntArray()).asDoubleStream().toArray();
      default:
        return java.util.Arrays.stream(tensor.toLongArray()).asDoubleStream().toArray();
    }
  }

  /** The value of 16 bits. */
  static double value(Dtype dtype, int bits) {
    if (dtype == Dtype.DTYPE_BFLOAT16) return Float.intBitsToFloat(bits << 16);
    int exponent = bits >> 10 & 31;
    int fraction = bits & 1023;
    double sign = bits >= 1 << 15 ? -1 : 1;
    if (exponent == 31) return fraction == 0 ? sign * Double.POSITIVE_INFINITY : Double.NaN;
    return sign
        * (exponent == 0 ? Math.scalb(fraction, -24) : Math.scalb(1024 + fraction, exponent - 25));
  }

  /** The 16 bits whose value is nearest: positive patterns ascend with their values. */
  static int nearest(Dtype dtype, double value) {
    int sign = Math.copySign(1, value) < 0 ? 1 << 15 : 0;
    double size = Math.abs(value);
    int infinity = dtype == Dtype.DTYPE_BFLOAT16 ? 0x7f80 : 0x7c00;
    if (Double.isNaN(value)) return infinity | 1 << (dtype == Dtype.DTYPE_BFLOAT16 ? 6 : 9);
    int low = 0;
    int high = infinity;
    while (high - low > 1) {
      int middle = (low + high) / 2;
      if (value(dtype, middle) <= size) low = middle; else high = middle;
    }
    if (size == Double.POSITIVE_INFINITY) return sign | infinity;
    // The step above the largest finite value is as wide as the one below it.
    double above = high == infinity
        ? 2 * value(dtype, low) - value(dtype, low - 1) : value(dtype, high);
    double middle = (value(dtype, low) + above) / 2;
    if (size > middle || (size == middle && (low & 1) == 1)) low = high;
    return sign | low;
  }

  /** The number of this type's elements between two of its values, and the width of one there. */
  static long steps(Dtype dtype, double a, double b) {
    return Math.abs(order(dtype, a) - order(dtype, b));
  }

  static double ulp(Dtype dtype, double value) {
    switch (dtype) {
      case DTYPE_FLOAT32:
        return Math.ulp((float) value);
      case DTYPE_FLOAT16:
      case DTYPE_BFLOAT16:
        int bits = nearest(dtype, Math.abs(value));
        return value(dtype, bits + 1) - value(dtype, bits);
      default:
        return Math.ulp(value);
    }
  }

  static double rounded(Dtype dtype, String decimal) {
    switch (dtype) {
      case DTYPE_FLOAT32:
        return Float.parseFloat(decimal);
      case DTYPE_FLOAT16:
      case DTYPE_BFLOAT16:
        return value(dtype, nearest(dtype, Double.parseDouble(decimal)));
      default:
        return Double.parseDouble(decimal);
    }
  }

  private static long order(Dtype dtype, double value) {
    switch (dtype) {
      case DTYPE_FLOAT32:
        int single = Float.floatToIntBits((float) value);
        return single < 0 ? Integer.MIN_VALUE - (long) single : single;
      case DTYPE_FLOAT16:
      case DTYPE_BFLOAT16:
        int half = nearest(dtype, value);
        return half >= 1 << 15 ? (1 << 15) - half : half;
      default:
        long bits = Double.doubleToLongBits(value);
        return bits < 0 ? Long.MIN_VALUE - bits : bits;
    }
  }
}
