package io.github.posenc;

import io.github.posenc.v1.BuildTableResponse;

/**
 * A table, or some rows of it. Which tensors there are, and how wide, depends on the request's
 * layout; the others are null. d is the encoding's rotary_dim. If frequencies differ by head, every
 * shape starts with the heads.
 */
public final class Table {
  private final double amplitude;
  private final long firstRow;
  private final Tensor cos;
  private final Tensor sin;
  private final Tensor table;

  Table(double amplitude, long firstRow, Tensor cos, Tensor sin, Tensor table) {
    this.amplitude = amplitude;
    this.firstRow = firstRow;
    this.cos = cos;
    this.sin = sin;
    this.table = table;
  }

  /** By its field in the answer; null if there is none. */
  Tensor tensor(int field) {
    return field == BuildTableResponse.COS_FIELD_NUMBER ? cos
        : field == BuildTableResponse.SIN_FIELD_NUMBER ? sin
        : table;
  }

  /** Rotary encodings: the factor that the values have already (YaRN's attention factor). */
  public double amplitude() {
    return amplitude;
  }

  /** The row of the whole table that these begin with. */
  public long firstRow() {
    return firstRow;
  }

  /** Rotary: [rows, d / 2], or [rows, d] if values are repeated. */
  public Tensor cos() {
    return cos;
  }

  /** As {@link #cos}. */
  public Tensor sin() {
    return sin;
  }

  /** TABLE_LAYOUT_COMPLEX: [rows, d / 2, 2]. Absolute encodings: [rows, dim]. */
  public Tensor table() {
    return table;
  }
}
