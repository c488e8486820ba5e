package io.github.posenc;

import io.github.posenc.v1.PackedSequences;
import io.github.posenc.v1.SequenceStarts;
import java.util.Arrays;

/** Positions of tokens. tensor.proto explains the kinds. */
public final class Positions {
  private Positions() {}

  /** Puts token t of every sequence at start + t. */
  public static io.github.posenc.v1.Positions startAt(long start) {
    return io.github.posenc.v1.Positions.newBuilder().setStart(start).build();
  }

  /** Puts token t of sequence b at starts[b] + t. Not for THD. */
  public static io.github.posenc.v1.Positions startsAt(long... starts) {
    return io.github.posenc.v1.Positions.newBuilder()
        .setStarts(
            SequenceStarts.newBuilder().addAllValues(Arrays.stream(PosencException.given("starts", starts)).boxed()::iterator))
        .build();
  }

  /** Gives each token a position, the same in every sequence. */
  public static io.github.posenc.v1.Positions ids(long... ids) {
    return ids(Tensor.of(ids, PosencException.given("ids", ids).length));
  }

  /** Gives each token a position: [S], [B, S], [T], or with the axes first. Copies the tensor. */
  public static io.github.posenc.v1.Positions ids(Tensor ids) {
    return io.github.posenc.v1.Positions.newBuilder().setIds(PosencException.given("ids", ids).toMessage()).build();
  }

  /** For THD: sequence i covers tokens [bounds[i], bounds[i + 1]) and starts at 0. */
  public static io.github.posenc.v1.Positions packed(long... bounds) {
    return io.github.posenc.v1.Positions.newBuilder()
        .setPacked(
            PackedSequences.newBuilder().addAllCuSeqlens(Arrays.stream(PosencException.given("bounds", bounds)).boxed()::iterator))
        .build();
  }
}
