package io.github.posenc;

import io.github.posenc.v1.BuildBiasResponse;

/** A tile: a part of a bias matrix, as the server sent it. */
public final class BiasTile {
  private final long queryStart;
  private final long keyStart;
  private final TensorView tensor;

  BiasTile(BuildBiasResponse answer) {
    this.queryStart = answer.getQueryStart();
    this.keyStart = answer.getKeyStart();
    this.tensor = new Result("tile", null).take(answer.getTile());
  }

  /** Returns the position of the tile's first query. */
  public long queryStart() {
    return queryStart;
  }

  /** Returns the position of the tile's first key. */
  public long keyStart() {
    return keyStart;
  }

  /** Returns the values, [heads, queries, keys]. */
  public TensorView tensor() {
    return tensor;
  }
}
