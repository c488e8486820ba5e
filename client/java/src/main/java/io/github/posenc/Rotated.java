package io.github.posenc;

/** What applyRope gave: of q and k those that were sent, rotated; the other is null. */
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
