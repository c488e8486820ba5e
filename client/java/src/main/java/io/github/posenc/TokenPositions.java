package io.github.posenc;

import static io.github.posenc.Arguments.given;

import io.github.posenc.v1.PackedSequences;
import io.github.posenc.v1.Positions;
import io.github.posenc.v1.SequenceStarts;
import java.util.Arrays;

/** Makes positions of tokens; tensor.proto explains the kinds. */
public final class TokenPositions {
  private TokenPositions() {}

  /** Puts token t of every sequence at start + t. */
  public static Positions startAt(long start) {
    return Positions.newBuilder().setStart(start).build();
  }

  /** Puts token t of sequence b at starts[b] + t. Not for THD. */
  public static Positions startsAt(long... starts) {
    Iterable<Long> all = Arrays.stream(given("starts", starts)).boxed()::iterator;
    return Positions.newBuilder().setStarts(SequenceStarts.newBuilder().addAllValues(all)).build();
  }

  /** Gives each token a position, the same in every sequence. */
  public static Positions ids(long... ids) {
    return ids(TensorView.of(given("ids", ids), ids.length));
  }

  /** Gives each token a position: [S], [B, S], [T], or with the axes first. Copies the tensor. */
  public static Positions ids(TensorView ids) {
    return Positions.newBuilder().setIds(given("ids", ids).toMessage()).build();
  }

  /** For THD: sequence i covers tokens [bounds[i], bounds[i + 1]) and starts at 0. */
  public static Positions packed(long... bounds) {
    Iterable<Long> all = Arrays.stream(given("bounds", bounds)).boxed()::iterator;
    return Positions.newBuilder()
        .setPacked(PackedSequences.newBuilder().addAllCuSeqlens(all))
        .build();
  }
}
