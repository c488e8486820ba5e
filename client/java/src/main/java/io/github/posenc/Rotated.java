package io.github.posenc;

/** The result of applyRope: the rotated q and k. A tensor that was not sent is null. */
public final class Rotated {
  private final Tensor q;
  private final Tensor k;

  Rotated(Tensor q, Tensor k) {
    this.q = q;
    this.k = k;
  }

  public Tensor q() {
    return q;
  }

  public Tensor k() {
    return k;
  }
}
