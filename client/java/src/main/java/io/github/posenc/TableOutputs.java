package io.github.posenc;

import io.github.posenc.v1.AbsoluteEncoding;
import io.github.posenc.v1.BuildTableRequest;
import io.github.posenc.v1.BuildTableResponse;
import io.github.posenc.v1.Dtype;
import io.github.posenc.v1.Positions;
import io.github.posenc.v1.RopeSpec;
import io.github.posenc.v1.SincosGrid;
import io.github.posenc.v1.TableLayout;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.LongStream;

/** Memory for a table's tensors: cos and sin, or the single table, by their fields. */
final class TableOutputs {
  private static final List<Integer> COS_SIN =
      List.of(BuildTableResponse.COS_FIELD_NUMBER, BuildTableResponse.SIN_FIELD_NUMBER);
  private static final List<Integer> TABLE = List.of(BuildTableResponse.TABLE_FIELD_NUMBER);

  private TableOutputs() {}

  static String name(int field) {
    return BuildTableResponse.getDescriptor().findFieldByNumber(field).getName();
  }

  /**
   * Throws if an output is for a tensor that the table lacks, or is known not to fit its tensor.
   */
  static Map<Integer, Tensor> of(BuildTableRequest request, Tensor[] outputs) {
    List<Integer> fields = fieldsOf(request);
    if (outputs.length > fields.size()) {
      throw PosencException.invalid(
          "out", "has " + outputs.length + " tensors; this table has "
              + (fields.size() > 1 ? "cos and sin" : "one"));
    }
    Dtype dtype = dtypeOf(request);
    long bytes = bytesOf(request);
    Map<Integer, Tensor> into = new TreeMap<>();
    for (int i = 0; i < outputs.length; i++) {
      Tensor out = outputs[i];
      if (out == null) continue;
      String name = name(fields.get(i)) + "_output";
      Rotation.checkWritable(name, out);
      SharedRegion.check(name, out);
      if (out.dtype() != dtype) {
        throw PosencException.invalid(name, "is " + out.dtype() + "; must be " + dtype);
      }
      if (bytes >= 0) Rotation.checkOutput(name, dtype, shapeOf(request), out);
      if (bytes >= 0 && out.bytes() != bytes) throw misfit(fields.get(i), out, bytes);
      into.put(fields.get(i), out);
    }
    return into;
  }

  /** Returns the memory for each tensor that the table must have. */
  static Map<Integer, Incoming.Target> targets(BuildTableRequest request, Map<Integer, Tensor> into) {
    long[] shape = bytesOf(request) < 0 ? null : shapeOf(request);
    Map<Integer, Incoming.Target> targets = new TreeMap<>();
    for (int field : fieldsOf(request)) {
      targets.put(field, Incoming.Target.whole(into.get(field), dtypeOf(request), shape));
    }
    return targets;
  }

  /** Returns the fields of a table's tensors. */
  static List<Integer> fieldsOf(BuildTableRequest request) {
    boolean pair = request.hasRope() && request.getLayout() != TableLayout.TABLE_LAYOUT_COMPLEX;
    return pair ? COS_SIN : TABLE;
  }

  static PosencException misfit(int field, Tensor out, long bytes) {
    return PosencException.invalid(
        name(field) + "_output", "has " + out.bytes() + " bytes; the result has " + bytes);
  }

  /**
   * Returns the outputs that the server shall write itself. It writes the whole result, so the size
   * must be known.
   */
  static Map<Integer, Tensor> placed(BuildTableRequest request, Map<Integer, Tensor> into) {
    Map<Integer, Tensor> placed = new TreeMap<>(into);
    placed.values().removeIf(out -> out.place() == null || bytesOf(request) < 0);
    return placed;
  }

  private static Dtype dtypeOf(BuildTableRequest request) {
    boolean unset = request.getDtype() == Dtype.DTYPE_UNSPECIFIED;
    return unset ? Dtype.DTYPE_FLOAT32 : request.getDtype();
  }

  // Returns the bytes of each tensor; -1 if only the server knows them: for presets,
  // configurations, and requests that it refuses.
  private static long bytesOf(BuildTableRequest request) {
    RopeSpec spec = request.getRope().getSpec();
    long heads = Math.max(1, spec.getExplicitFrequencies().getHeads());
    long[] extents = {
      heads, rowsOf(request), widthOf(request), Tensor.elementBytes(dtypeOf(request))
    };
    long bytes = 1;
    for (long extent : extents) {
      // No tensor of the client has more.
      if (extent <= 0 || bytes > Integer.MAX_VALUE / extent) return -1;
      bytes *= extent;
    }
    return bytes;
  }

  // Returns each tensor's shape, if the size is known.
  private static long[] shapeOf(BuildTableRequest request) {
    long heads = request.getRope().getSpec().getExplicitFrequencies().getHeads();
    boolean complex = request.hasRope() && request.getLayout() == TableLayout.TABLE_LAYOUT_COMPLEX;
    long width = widthOf(request);
    LongStream row = complex ? LongStream.of(rowsOf(request), width / 2, 2) : LongStream.of(rowsOf(request), width);
    return heads > 0 ? LongStream.concat(LongStream.of(heads), row).toArray() : row.toArray();
  }

  /** Returns a request's number of rows; below 0 if it is unknown. */
  static long rowsOf(BuildTableRequest request) {
    Positions positions = request.getPositions();
    int dimensions = positions.getIds().getShapeCount();
    // The last extent of ids counts tokens; the others are axes.
    if (dimensions > 0) return positions.getIds().getShape(dimensions - 1);
    int ends = positions.getPacked().getCuSeqlensCount();
    if (ends > 0) return positions.getPacked().getCuSeqlens(ends - 1);
    if (!request.getAbsolute().hasSincosGrid()) return request.getRows();
    // A grid has a row for every cell, after the rows of special tokens.
    SincosGrid grid = request.getAbsolute().getSincosGrid();
    long cells = 1;
    for (int extent : grid.getExtentsList()) {
      if (extent <= 0 || cells > Integer.MAX_VALUE / extent) return -1;
      cells *= extent;
    }
    return cells + grid.getLeadingZeroRows();
  }

  /** Returns the dimension of rows in a table's tensors: tables by head begin with the heads. */
  static int rowAxis(BuildTableRequest request) {
    return request.getRope().getSpec().getExplicitFrequencies().getHeads() > 0 ? 1 : 0;
  }

  private static long widthOf(BuildTableRequest request) {
    if (request.hasRope()) {
      TableLayout layout = request.getLayout();
      boolean half = layout == TableLayout.TABLE_LAYOUT_UNSPECIFIED
          || layout == TableLayout.TABLE_LAYOUT_HALF;
      return request.getRope().getSpec().getRotaryDim() / (half ? 2 : 1);
    }
    AbsoluteEncoding absolute = request.getAbsolute();
    switch (absolute.getEncodingCase()) {
      case SINUSOIDAL:
        return absolute.getSinusoidal().getDim();
      case SINCOS_GRID:
        return absolute.getSincosGrid().getDim();
      case TIMESTEP:
        return absolute.getTimestep().getDim();
      case LEARNED:
        return lastOf(absolute.getLearned().getTable());
      default:
        return 2 * lastOf(absolute.getFourierFeatures().getFrequencies());
    }
  }

  private static long lastOf(io.github.posenc.v1.Tensor tensor) {
    int dimensions = tensor.getShapeCount();
    return dimensions == 0 ? 0 : tensor.getShape(dimensions - 1);
  }
}
