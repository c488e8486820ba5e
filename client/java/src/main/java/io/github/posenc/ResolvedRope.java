package io.github.posenc;

import io.github.posenc.v1.*;

/** A rotary encoding that the server has resolved once. Calls send only its specification. */
public final class ResolvedRope {
  private final Posenc posenc;
  private final ResolveRopeResponse resolved;
  private final RopeSource source;
  private final Saturation saturation;
  private final BlockFormat blockFormat;

  ResolvedRope(Posenc posenc, ResolveRopeResponse resolved, RopeSource source,
      Saturation saturation, BlockFormat blockFormat) {
    this.posenc = posenc;
    this.resolved = resolved;
    this.source = source;
    this.saturation = saturation;
    this.blockFormat = blockFormat;
  }

  /**
   * Returns this encoding for FP8 and INT8 tensors. Calls with such tensors, except blocks, must
   * say what happens to results that are larger than the largest number of the type.
   */
  public ResolvedRope withSaturation(Saturation saturation) {
    return new ResolvedRope(
        posenc, resolved, source, Arguments.given("saturation", saturation), blockFormat);
  }

  /** Returns this encoding for keys that are the bytes of llama.cpp's blocks, as INT8. */
  public ResolvedRope withBlockFormat(BlockFormat blockFormat) {
    return new ResolvedRope(
        posenc, resolved, source, saturation, Arguments.given("blockFormat", blockFormat));
  }

  /** Returns the complete specification. */
  public RopeSpec spec() {
    return resolved.getSpec();
  }

  /** Returns the server's answer: frequencies, assumptions, warnings. */
  public ResolveRopeResponse resolved() {
    return resolved;
  }

  /** Returns the encoding for other requests. */
  public RopeSource source() {
    return source;
  }

  /**
   * Rotates q and k in place. Either q or k may be null. Shapes are [B, S, H, D] in the order of
   * the layout, or [T, H, D]. After an error the contents of q and k are unspecified.
   */
  public void apply(Layout layout, Positions positions, TensorView q, TensorView k) {
    ApplyRopeRequest.Builder request =
        ApplyRopeRequest.newBuilder().setRope(source).setSaturation(saturation);
    if (layout != null) request.setLayout(layout);
    if (positions != null) request.setPositions(positions);
    posenc.applyRope(request.build(), q, k, q, k);
  }

  /** Moves all rotated keys in place by the same distance, which may be negative. */
  public void reposition(Layout layout, long shift, TensorView k) {
    reposition(layout, Movement.newBuilder().setShift(shift), k);
  }

  /** Moves rotated keys in place from old to new positions. */
  public void reposition(Layout layout, Positions from, Positions to, TensorView k) {
    Movement.Builder movement = Movement.newBuilder();
    if (from != null) movement.setOldPositions(from);
    if (to != null) movement.setNewPositions(to);
    reposition(layout, movement, k);
  }

  private void reposition(Layout layout, Movement.Builder movement, TensorView k) {
    RepositionRequest.Builder request = RepositionRequest.newBuilder();
    request.setOldRope(source).setMovement(movement).setSaturation(saturation);
    request.setBlockFormat(blockFormat);
    if (layout != null) request.setLayout(layout);
    posenc.reposition(request.build(), k, k);
  }

  /**
   * Builds the cosines and sines of positions 0 to rows - 1, in float32, [rows, d / 2] each.
   *
   * @param out memory for cosines and sines; null: new memory
   */
  public Table table(long rows, TensorView... out) {
    BuildTableRequest request = BuildTableRequest.newBuilder()
                                    .setRope(source)
                                    .setPositions(TokenPositions.startAt(0))
                                    .setRows(rows)
                                    .build();
    return posenc.buildTable(request, out);
  }
}
