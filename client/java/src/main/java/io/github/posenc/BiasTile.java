package io.github.posenc;

/** A received part of a bias. */
public final class BiasTile {
  private final long queryStart;
  private final long keyStart;
  private final Tensor tensor;

  BiasTile(long queryStart, long keyStart, Tensor tensor) {
    this.queryStart = queryStart;
    this.keyStart = keyStart;
    this.tensor = tensor;
  }

  /** Returns the position of its first query. */
  public long queryStart() {
    return queryStart;
  }

  /** Returns the position of its first key. */
  public long keyStart() {
    return keyStart;
  }

  /** Returns the values, [heads, queries, keys]. */
  public Tensor tensor() {
    return tensor;
  }
}
