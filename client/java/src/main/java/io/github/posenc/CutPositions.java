package io.github.posenc;

import com.google.protobuf.ByteString;
import io.github.posenc.v1.Movement;
import io.github.posenc.v1.PackedSequences;
import io.github.posenc.v1.Positions;
import io.github.posenc.v1.SequenceStarts;
import io.github.posenc.v1.Tensor;
import java.util.List;

/**
 * Cuts the positions of one part's tokens out of a whole tensor's positions. Every token is rotated
 * only by its own position, so positions are cut together with the tensor. Missing positions stay
 * missing: the server reports them.
 */
final class CutPositions {
  private final Layout layout;
  private final long batch;
  private final long tokens;
  private final boolean severalAxes;

  /** `severalAxes`: whether the encoding has several axes; used only if needAxes(). */
  CutPositions(Layout layout, long batch, long tokens, boolean severalAxes) {
    this.layout = layout;
    this.batch = batch;
    this.tokens = tokens;
    this.severalAxes = severalAxes;
  }

  /**
   * Returns whether ids may be [B, S] or [axes, S]: only the encoding shows whether it has several
   * axes.
   */
  static boolean needAxes(Movement movement, Layout layout, long batch) {
    return needAxes(movement.getOldPositions().getIds(), layout, batch)
        || needAxes(movement.getNewPositions().getIds(), layout, batch)
        || needAxes(movement.getShifts(), layout, batch);
  }

  static boolean needAxes(Tensor ids, Layout layout, long batch) {
    return layout != Layout.THD && ids.getShapeCount() == 2 && ids.getShape(0) == batch && batch > 1;
  }

  Movement of(Movement movement, Cut.Part part) {
    Movement.Builder cut = movement.toBuilder();
    if (movement.hasOldPositions()) cut.setOldPositions(of(movement.getOldPositions(), part));
    if (movement.hasNewPositions()) cut.setNewPositions(of(movement.getNewPositions(), part));
    if (movement.hasShifts()) cut.setShifts(of(movement.getShifts(), part));
    return cut.build();
  }

  Positions of(Positions positions, Cut.Part part) {
    switch (positions.getKindCase()) {
      case START:
        return Positions.newBuilder().setStart(later(positions.getStart(), part.firstToken())).build();
      case STARTS:
        return Positions.newBuilder().setStarts(of(positions.getStarts(), part)).build();
      case IDS:
        return Positions.newBuilder().setIds(of(positions.getIds(), part)).build();
      case PACKED:
        return Positions.newBuilder().setPacked(of(positions.getPacked(), part)).build();
      default:
        return positions;
    }
  }

  // Saturates instead of overflowing: the server refuses such positions, and names them.
  private static long later(long position, long by) {
    return position > Long.MAX_VALUE - by ? position : position + by;
  }

  private SequenceStarts of(SequenceStarts starts, Cut.Part part) {
    if (starts.getValuesCount() != batch) {
      throw Cut.misfit("positions.starts", starts.getValuesCount() + " of " + batch + " sequences");
    }
    SequenceStarts.Builder cut = SequenceStarts.newBuilder();
    for (long b = part.begin('B'); b < part.end('B'); b++) {
      cut.addValues(later(starts.getValues((int) b), part.firstToken()));
    }
    return cut.build();
  }

  // Cuts a packed batch between any two tokens. The sequences that a part covers, wholly or partly,
  // become its sequences, each with its own start:
  //
  //   cu_seqlens  0     4       9        the part: tokens [2, 6)
  //               |-----|-------|  -->   cu_seqlens 0 2 4
  //                  [   part ]          starts     2 0 (if all started at 0)
  private PackedSequences of(PackedSequences packed, Cut.Part part) {
    List<Long> bounds = packed.getCuSeqlensList();
    int sequences = bounds.size() - 1;
    boolean fits = layout == Layout.THD && sequences >= 0 && bounds.get(0) == 0
        && bounds.get(sequences) == tokens;
    for (int i = 0; fits && i < sequences; i++) fits = bounds.get(i) <= bounds.get(i + 1);
    if (!fits) {
      throw Cut.misfit(
          "positions.packed.cu_seqlens",
          "are no ascending bounds from 0 to " + tokens + " tokens of layout THD");
    }
    if (packed.getStartsCount() != 0 && packed.getStartsCount() != sequences) {
      throw Cut.misfit(
          "positions.packed.starts", packed.getStartsCount() + " of " + sequences + " sequences");
    }
    PackedSequences.Builder cut = PackedSequences.newBuilder().addCuSeqlens(0);
    for (int i = 0; i < sequences; i++) {
      long begin = Math.max(bounds.get(i), part.firstToken());
      long end = Math.min(bounds.get(i + 1), part.endToken());
      if (begin >= end) continue;
      cut.addCuSeqlens(end - part.firstToken());
      cut.addStarts(
          later(packed.getStartsCount() > 0 ? packed.getStarts(i) : 0, begin - bounds.get(i)));
    }
    return cut.build();
  }

  // Ids are [S], [B, S], [axes, S] or [axes, B, S]; [T] or [axes, T] if packed. The rank and the
  // first extent show which, except if needAxes().
  private Tensor of(Tensor ids, Cut.Part part) {
    List<Long> shape = ids.getShapeList();
    int rank = shape.size();
    boolean packed = layout == Layout.THD;
    boolean withAxes = severalAxes || rank == (packed ? 2 : 3)
        || (rank == 2 && !packed && shape.get(0) != batch);
    long axes = withAxes && rank > 0 ? shape.get(0) : 1;
    int inner = rank - (withAxes ? 1 : 0);
    boolean perSequence = inner == 2 && !packed;
    long rows = perSequence ? batch : 1;
    int size = Cut.elementBytes(ids.getDtype());
    boolean fits = (inner == 1 || perSequence) && shape.get(rank - 1) == tokens
        && (!perSequence || shape.get(rank - 2) == batch);
    if (fits) {
      // Divides, because a product may overflow.
      long count = ids.getValuesCount() > 0 || size == 0
          ? ids.getValuesCount()
          : ids.getData().size() / size;
      fits = axes > 0 && count % (rows * tokens) == 0 && count / (rows * tokens) == axes
          && (ids.getValuesCount() > 0 || ids.getData().size() % Math.max(size, 1) == 0);
    }
    if (!fits) {
      throw Cut.misfit(
          "positions", "ids " + shape + " are not those of " + batch + " x " + tokens + " tokens");
    }
    // The ids are a matrix of axes * rows rows and a column for every token. A part has some
    // sequences of each axis, with some of their tokens.
    long rowBegin = perSequence ? part.begin('B') : 0;
    long rowEnd = perSequence ? part.end('B') : 1;
    Tensor.Builder cut = Tensor.newBuilder().setDtype(ids.getDtype());
    if (withAxes) cut.addShape(axes);
    if (perSequence) cut.addShape(rowEnd - rowBegin);
    cut.addShape(part.endToken() - part.firstToken());
    ByteString data = ByteString.EMPTY;
    for (long axis = 0; axis < axes; axis++) {
      for (long row = axis * rows + rowBegin; row < axis * rows + rowEnd; row++) {
        int begin = (int) (row * tokens + part.firstToken());
        int end = (int) (row * tokens + part.endToken());
        if (ids.getValuesCount() > 0) {
          cut.addAllValues(ids.getValuesList().subList(begin, end));
        } else {
          data = data.concat(ids.getData().substring(begin * size, end * size));
        }
      }
    }
    return cut.setData(data).build();
  }
}
