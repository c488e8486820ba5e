package io.github.posenc;

import io.github.posenc.v1.BuildTableStreamResponse;

/**
 * A table, or some rows of a table. The request's layout determines which tensors a table has, and
 * their widths; other tensors are null. d is the encoding's rotary_dim. If frequencies differ by
 * head, every shape starts with the number of heads.
 */
public final class Table {
  private final double amplitude;
  private final long firstRow;
  private final TensorView cos;
  private final TensorView sin;
  private final TensorView table;

  Table(double amplitude, long firstRow, TensorView cos, TensorView sin, TensorView table) {
    this.amplitude = amplitude;
    this.firstRow = firstRow;
    this.cos = cos;
    this.sin = sin;
    this.table = table;
  }

  Table(BuildTableStreamResponse rows) {
    this(rows.getAmplitude(), rows.getFirstRow(),
        rows.hasCos() ? new Result("cos", null).take(rows.getCos()) : null,
        rows.hasSin() ? new Result("sin", null).take(rows.getSin()) : null,
        rows.hasTable() ? new Result("table", null).take(rows.getTable()) : null);
  }

  /**
   * Returns the attention factor of a rotary encoding (for example YaRN's), which the values
   * already contain.
   */
  public double amplitude() {
    return amplitude;
  }

  /** Returns the index of the first row in the whole table. */
  public long firstRow() {
    return firstRow;
  }

  /** Returns the cosines of a rotary encoding, [rows, d / 2], or [rows, d] with repeated values. */
  public TensorView cos() {
    return cos;
  }

  /** Returns the sines of a rotary encoding, in the same shape as {@link #cos}. */
  public TensorView sin() {
    return sin;
  }

  /**
   * Returns the single table: [rows, d / 2, 2] for TABLE_LAYOUT_COMPLEX, [rows, dim] for absolute
   * encodings.
   */
  public TensorView table() {
    return table;
  }
}
