package io.github.posenc;

import io.github.posenc.v1.BuildTableStreamResponse;

/**
 * A table, or some rows of it. The request's layout determines the tensors and their widths; other
 * tensors are null. d is the encoding's rotary_dim. If frequencies differ by head, every shape
 * starts with the heads.
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
  public TensorView cos() {
    return cos;
  }

  /** Returns sines, like {@link #cos}. */
  public TensorView sin() {
    return sin;
  }

  /**
   * Returns the single table. TABLE_LAYOUT_COMPLEX: [rows, d / 2, 2]. Absolute encodings: [rows,
   * dim].
   */
  public TensorView table() {
    return table;
  }
}
