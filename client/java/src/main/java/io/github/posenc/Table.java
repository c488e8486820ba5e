package io.github.posenc;

import io.github.posenc.v1.BuildTableResponse;

/**
 * A table, or some rows of it. The request's layout determines the tensors and their widths; other
 * tensors are null. d is the encoding's rotary_dim. If frequencies differ by head, every shape
 * starts with the heads.
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

  /** Returns a tensor by its field in the answer, or null. */
  Tensor tensor(int field) {
    return field == BuildTableResponse.COS_FIELD_NUMBER ? cos
        : field == BuildTableResponse.SIN_FIELD_NUMBER ? sin
        : table;
  }

  /**
   * Returns, for rotary encodings, the factor that the values already contain (YaRN's attention
   * factor).
   */
  public double amplitude() {
    return amplitude;
  }

  /** Returns the index of the first row in the whole table. */
  public long firstRow() {
    return firstRow;
  }

  /** Returns a rotary encoding's cosines: [rows, d / 2], or [rows, d] if values are repeated. */
  public Tensor cos() {
    return cos;
  }

  /** Returns sines, like {@link #cos}. */
  public Tensor sin() {
    return sin;
  }

  /**
   * Returns the single table. TABLE_LAYOUT_COMPLEX: [rows, d / 2, 2]. Absolute encodings: [rows,
   * dim].
   */
  public Tensor table() {
    return table;
  }
}
