package io.github.posenc;

import io.github.posenc.v1.Dtype;

/**
 * Converts elements to doubles, and doubles to elements. Each element is rounded once, to nearest
 * even. The code is independent of the client's.
 */
final class Numbers {
  private Numbers() {}

  static TensorView tensor(Dtype dtype, double[] values, long... shape) {
    TensorView tensor = TensorView.allocate(dtype, new long[] {values.length});
    for (int i = 0; i < values.length; i++) {
      switch (dtype) {
        case DTYPE_FLOAT32:
          tensor.toFloatArray()[i] = (float) values[i];
          break;
        case DTYPE_FLOAT16:
        case DTYPE_BFLOAT16:
          tensor.toShortArray()[i] = (short) nearest(dtype, values[i]);
          break;
        case DTYPE_FLOAT8_E4M3FN:
        case DTYPE_FLOAT8_E5M2:
          tensor.toByteArray()[i] = (byte) nearest(dtype, values[i]);
          break;
        case DTYPE_INT8:
          tensor.toByteArray()[i] = (byte) values[i];
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

  private static TensorView shaped(TensorView flat, long[] shape) {
    switch (flat.dtype()) {
      case DTYPE_FLOAT32:
        return TensorView.of(flat.toFloatArray(), shape);
      case DTYPE_FLOAT16:
        return TensorView.float16(flat.toShortArray(), shape);
      case DTYPE_BFLOAT16:
        return TensorView.bfloat16(flat.toShortArray(), shape);
      case DTYPE_FLOAT8_E4M3FN:
        return TensorView.float8E4m3fn(flat.toByteArray(), shape);
      case DTYPE_FLOAT8_E5M2:
        return TensorView.float8E5m2(flat.toByteArray(), shape);
      case DTYPE_INT8:
        return TensorView.int8(flat.toByteArray(), shape);
      case DTYPE_FLOAT64:
        return TensorView.of(flat.toDoubleArray(), shape);
      case DTYPE_INT32:
        return TensorView.of(flat.toIntArray(), shape);
      default:
        return TensorView.of(flat.toLongArray(), shape);
    }
  }

  static double[] doubles(TensorView tensor) {
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
      case DTYPE_FLOAT8_E4M3FN:
      case DTYPE_FLOAT8_E5M2:
        byte[] bytes = tensor.toByteArray();
        values = new double[bytes.length];
        for (int i = 0; i < values.length; i++) values[i] = value(tensor.dtype(), bytes[i] & 0xff);
        return values;
      case DTYPE_INT8:
        bytes = tensor.toByteArray();
        values = new double[bytes.length];
        for (int i = 0; i < values.length; i++) values[i] = bytes[i];
        return values;
      case DTYPE_FLOAT64:
        return tensor.toDoubleArray();
      case DTYPE_INT32:
        return java.util.Arrays.stream(tensor.toIntArray()).asDoubleStream().toArray();
      default:
        return java.util.Arrays.stream(tensor.toLongArray()).asDoubleStream().toArray();
    }
  }

  /** Returns the sign bit of a dtype of 16 or 8 bits. */
  private static int signBit(Dtype dtype) {
    boolean eight = dtype == Dtype.DTYPE_FLOAT8_E4M3FN || dtype == Dtype.DTYPE_FLOAT8_E5M2;
    return eight ? 1 << 7 : 1 << 15;
  }

  /** Returns the bit pattern after the largest finite number: infinity, or NaN in E4M3. */
  private static int pastLargest(Dtype dtype) {
    switch (dtype) {
      case DTYPE_BFLOAT16:
        return 0x7f80;
      case DTYPE_FLOAT8_E4M3FN:
        return 0x7f;
      case DTYPE_FLOAT8_E5M2:
        return 0x7c;
      default:
        return 0x7c00;
    }
  }

  /** Returns the value of a pattern of 16 or 8 bits. */
  static double value(Dtype dtype, int bits) {
    if (dtype == Dtype.DTYPE_FLOAT8_E5M2) return value(Dtype.DTYPE_FLOAT16, bits << 8);
    if (dtype == Dtype.DTYPE_FLOAT8_E4M3FN) {
      if ((bits & 0x7f) == 0x7f) return Double.NaN;
      int power = bits >> 3 & 15;
      double magnitude =
          power == 0 ? Math.scalb(bits & 7, -9) : Math.scalb(8 + (bits & 7), power - 10);
      return bits >= 1 << 7 ? -magnitude : magnitude;
    }
    if (dtype == Dtype.DTYPE_BFLOAT16) return Float.intBitsToFloat(bits << 16);
    int exponent = bits >> 10 & 31;
    int fraction = bits & 1023;
    double sign = bits >= 1 << 15 ? -1 : 1;
    if (exponent == 31) return fraction == 0 ? sign * Double.POSITIVE_INFINITY : Double.NaN;
    return sign
        * (exponent == 0 ? Math.scalb(fraction, -24) : Math.scalb(1024 + fraction, exponent - 25));
  }

  /** Returns the bit pattern with the nearest value. Positive patterns are ordered like values. */
  static int nearest(Dtype dtype, double value) {
    int sign = Math.copySign(1, value) < 0 ? signBit(dtype) : 0;
    double size = Math.abs(value);
    int infinity = pastLargest(dtype);
    if (Double.isNaN(value)) return signBit(dtype) - 1;
    int low = 0;
    int high = infinity;
    while (high - low > 1) {
      int middle = (low + high) / 2;
      if (value(dtype, middle) <= size) low = middle; else high = middle;
    }
    if (size == Double.POSITIVE_INFINITY) return sign | infinity;
    // The step above the largest finite value has the same width as the step below it.
    double above = high == infinity
        ? 2 * value(dtype, low) - value(dtype, low - 1) : value(dtype, high);
    double middle = (value(dtype, low) + above) / 2;
    if (size > middle || (size == middle && (low & 1) == 1)) low = high;
    return sign | low;
  }

  /** Returns the number of steps between two numbers of the type. */
  static long steps(Dtype dtype, double a, double b) {
    return Math.abs(order(dtype, a) - order(dtype, b));
  }

  static double ulp(Dtype dtype, double value) {
    switch (dtype) {
      case DTYPE_FLOAT32:
        return Math.ulp((float) value);
      case DTYPE_FLOAT16:
      case DTYPE_BFLOAT16:
      case DTYPE_FLOAT8_E4M3FN:
      case DTYPE_FLOAT8_E5M2:
        int bits = nearest(dtype, Math.abs(value));
        // The step above the largest finite value has the same width as the step below it.
        if (bits + 1 >= pastLargest(dtype)) bits = pastLargest(dtype) - 2;
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
      case DTYPE_FLOAT8_E4M3FN:
      case DTYPE_FLOAT8_E5M2:
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
      case DTYPE_FLOAT8_E4M3FN:
      case DTYPE_FLOAT8_E5M2:
        int narrow = nearest(dtype, value);
        return narrow >= signBit(dtype) ? signBit(dtype) - narrow : narrow;
      default:
        long bits = Double.doubleToLongBits(value);
        return bits < 0 ? Long.MIN_VALUE - bits : bits;
    }
  }
}
