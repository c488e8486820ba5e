package io.github.posenc;

/** A part of a bias as it comes. */
public final class BiasTile {
  private final long queryStart;
  private final long keyStart;
  private final Tensor tensor;

  BiasTile(long queryStart, long keyStart, Tensor tensor) {
    this.queryStart = queryStart;
    this.keyStart = keyStart;
    this.tensor = tensor;
  }

  /** Position of its first query. */
  public long queryStart() {
    return queryStart;
  }

  /** Position of its first key. */
  public long keyStart() {
    return keyStart;
  }

  /** [heads, queries, keys]. */
  public Tensor tensor() {
    return tensor;
  }
}
