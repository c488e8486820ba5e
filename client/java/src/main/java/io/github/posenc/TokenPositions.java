package io.github.posenc;

import static io.github.posenc.Arguments.given;

import io.github.posenc.v1.PackedSequences;
import io.github.posenc.v1.Positions;
import io.github.posenc.v1.SequenceStarts;
import java.util.Arrays;

/** Makes positions of tokens; tensor.proto explains the kinds. */
public final class TokenPositions {
  private TokenPositions() {}

  /** Token t of every sequence has the position start + t. */
  public static Positions startAt(long start) {
    return Positions.newBuilder().setStart(start).build();
  }

  /** Token t of sequence b has the position starts[b] + t. The layout THD does not allow this. */
  public static Positions startsAt(long... starts) {
    Iterable<Long> all = Arrays.stream(given("starts", starts)).boxed()::iterator;
    return Positions.newBuilder().setStarts(SequenceStarts.newBuilder().addAllValues(all)).build();
  }

  /** Each token has its own position. The positions are the same in every sequence. */
  public static Positions ids(long... ids) {
    return ids(TensorView.of(given("ids", ids), ids.length));
  }

  /**
   * Each token has its own position: [S], [B, S] or [T]. With several position axes, the first
   * dimension counts the axes: [axes, S]. Copies the tensor.
   */
  public static Positions ids(TensorView ids) {
    return Positions.newBuilder().setIds(given("ids", ids).toMessage()).build();
  }

  /**
   * Makes positions for the layout THD. Sequence i has the tokens from bounds[i] up to
   * bounds[i + 1], exclusive. Its positions start at 0.
   */
  public static Positions packed(long... bounds) {
    Iterable<Long> all = Arrays.stream(given("bounds", bounds)).boxed()::iterator;
    return Positions.newBuilder()
        .setPacked(PackedSequences.newBuilder().addAllCuSeqlens(all))
        .build();
  }
}
