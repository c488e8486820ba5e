package io.github.posenc;

/** The result of applyRope: the rotated q and k. A tensor that was not sent is null. */
public final class Rotated {
  private final TensorView q;
  private final TensorView k;

  Rotated(TensorView q, TensorView k) {
    this.q = q;
    this.k = k;
  }

  public TensorView q() {
    return q;
  }

  public TensorView k() {
    return k;
  }
}
