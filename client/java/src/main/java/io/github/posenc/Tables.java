package io.github.posenc;

import com.google.protobuf.Message;
import io.github.posenc.v1.*;
import io.grpc.CallOptions;
import io.grpc.MethodDescriptor.MethodType;
import io.grpc.Status;
import java.util.Arrays;
import java.util.List;
import java.util.function.Consumer;
import java.util.stream.LongStream;

/** Tables and biases: small requests, large answers. */
final class Tables {
  private final Calls calls;
  private final CallOptions options;

  Tables(Calls calls, CallOptions options) {
    this.calls = calls;
    this.options = Calls.begin(options);
  }

  /** Builds a whole table, in one message or, if that is too large, as a stream. */
  Table whole(BuildTableRequest request, TensorView... out) {
    Arguments.given("request", request);
    List<String> fields = isComplexOrAbsolute(request) ? List.of("table") : List.of("cos", "sin");
    if (out.length > fields.size()) {
      throw PosencException.invalid("out",
          "has " + out.length + " tensors; this table has "
              + (fields.size() > 1 ? "cos and sin" : "one"));
    }
    Dtype dtype = request.getDtypeValue() == 0 ? Dtype.DTYPE_FLOAT32 : request.getDtype();
    TensorCall<BuildTableResponse> call = new TensorCall<>(
        calls, options, "BuildTable", request, BuildTableResponse.getDefaultInstance());
    TensorView[] all = Arrays.copyOf(out, fields.size());
    for (int i = 0; i < all.length; i++) {
      call.result(fields.get(i), dtype, shapeOf(request, dtype), all[i]);
    }
    double amplitude;
    try {
      amplitude = call.run().getAmplitude();
      for (int i = 0; i < all.length; i++) all[i] = call.result(fields.get(i));
    } catch (PosencException e) {
      if (!e.isTooLarge()) throw e;
      try {
        amplitude = rows(request, fields, dtype, all);
      } catch (PosencException ofStream) {
        throw ofStream.outsideOf("table"); // callers do not know the message `table`
      }
    }
    TensorView last = all[all.length - 1];
    return all.length == 1 ? new Table(amplitude, 0, null, null, last)
                           : new Table(amplitude, 0, all[0], last, null);
  }

  // Receives a table as a stream, and returns its amplitude.
  private double rows(
      BuildTableRequest request, List<String> fields, Dtype dtype, TensorView[] out) {
    boolean byHead = request.getRope().getSpec().getExplicitFrequencies().getHeads() > 0;
    int axis = byHead ? 1 : 0; // of the rows
    double[] amplitude = {0};
    long[] done = {0}; // rows
    long[][] whole = {null}; // shape of each tensor
    stream(BuildTableStreamRequest.newBuilder().setTable(request).build(), rows -> {
      if (whole[0] == null) {
        whole[0] = TensorView.shapeOf(((Tensor) fieldOf(rows, fields.get(0))).getShapeList());
        if (whole[0].length < axis + 2) throw misfit("table came without its shape");
        whole[0][axis] = rowsOf(request);
        amplitude[0] = rows.getAmplitude();
        for (int i = 0; i < out.length; i++) {
          out[i] = memory(fields.get(i), dtype, whole[0], out.length, out[i]);
        }
      }
      long next = done[0];
      for (int i = 0; i < out.length; i++) {
        Tensor part = (Tensor) fieldOf(rows, fields.get(i));
        long[] shape = whole[0].clone();
        if (part.getShapeCount() == shape.length) shape[axis] = part.getShape(axis);
        boolean fits = rows.getFirstRow() == done[0] && TensorView.is(part, dtype, shape)
            && shape[axis] > 0 && shape[axis] <= whole[0][axis] - done[0]
            && (i == 0 || done[0] + shape[axis] == next);
        if (!fits) throw misfit("table came with rows that do not fit it, after " + done[0]);
        next = done[0] + shape[axis];
        int blocks = byHead ? (int) shape[0] : 1;
        int size = part.getData().size() / blocks;
        for (int block = 0; block < blocks; block++) {
          long at = (block * whole[0][axis] + done[0]) * (size / shape[axis]);
          out[i].put(at, part.getData().substring(block * size, (block + 1) * size));
        }
      }
      done[0] = next;
    });
    if (whole[0] == null || done[0] != whole[0][axis]) {
      throw misfit("table came with only " + done[0] + " rows");
    }
    return amplitude[0];
  }

  /** Builds a table's rows, and passes on each message. */
  void stream(BuildTableStreamRequest request, Consumer<BuildTableStreamResponse> rows) {
    receive("BuildTableStream", request, BuildTableStreamResponse.getDefaultInstance(), rows);
  }

  /** Builds a bias, and passes on each tile. */
  void bias(BuildBiasRequest request, Consumer<BuildBiasResponse> tiles) {
    receive("BuildBias", request, BuildBiasResponse.getDefaultInstance(), tiles);
  }

  private <M extends Message> void receive(
      String name, Message request, M response, Consumer<M> take) {
    Outgoing only = new Outgoing().message(Arguments.given("request", request));
    calls.stream(options, name, MethodType.SERVER_STREAMING, List.of(only), response, take);
  }

  /** Builds a whole bias out of its tiles. */
  TensorView wholeBias(BuildBiasRequest request) {
    TensorView[] matrix = {null};
    long[] left = {0}; // bytes
    bias(request, answer -> {
      Tensor tile = answer.getTile();
      if (matrix[0] == null) {
        if (tile.getShapeCount() != 3) throw misfit("bias came without its shape");
        long[] shape = {tile.getShape(0), request.getQueryLength(), request.getKeyLength()};
        matrix[0] = memory("bias", tile.getDtype(), shape, 1, null);
        left[0] = matrix[0].bytes();
      }
      long[] all = matrix[0].shape(); // [heads, queries, keys]
      long query = answer.getQueryStart() - request.getQueryStart();
      long key = answer.getKeyStart() - request.getKeyStart();
      long[] part = TensorView.shapeOf(tile.getShapeList());
      boolean fits = TensorView.is(tile, matrix[0].dtype(), part) && part.length == 3
          && part[0] == all[0] && !tile.getData().isEmpty() && query >= 0
          && query <= all[1] - part[1] && key >= 0 && key <= all[2] - part[2];
      if (!fits) {
        throw misfit("bias came with a tile at query " + answer.getQueryStart() + ", key "
            + answer.getKeyStart() + " that does not fit it");
      }
      left[0] -= tile.getData().size();
      int row = (int) (tile.getData().size() / (part[0] * part[1])); // bytes
      for (int i = 0; i < part[0] * part[1]; i++) {
        long to = i / part[1] * all[1] + query + i % part[1];
        long at = (to * all[2] + key) * (row / part[2]);
        matrix[0].put(at, tile.getData().substring(i * row, (i + 1) * row));
      }
    });
    if (matrix[0] == null || left[0] != 0) throw misfit("bias came with tiles missing or twice");
    return matrix[0];
  }

  private static Object fieldOf(Message message, String name) {
    return message.getField(message.getDescriptorForType().findFieldByName(name));
  }

  private static PosencException misfit(String text) {
    return PosencException.local(Status.Code.INTERNAL, "the " + text);
  }

  /** Returns memory for a result, or throws if this process cannot hold `count` of them. */
  static TensorView memory(String name, Dtype dtype, long[] shape, int count, TensorView out) {
    long bytes = TensorView.bytesOf(dtype, shape);
    if (bytes < 0 || shape.length == 0) throw misfit(name + " came without its shape");
    Arguments.output(name + "_output", out, dtype, shape);
    if (out != null) return out;
    long memory = Runtime.getRuntime().maxMemory();
    boolean fits = bytes <= memory / count
        && bytes / Elements.of(dtype).bytes <= Integer.MAX_VALUE - 8; // the longest array
    if (fits) return TensorView.allocate(dtype, shape);
    throw PosencException.local(Status.Code.RESOURCE_EXHAUSTED,
        "the result has " + count + " x " + bytes + " bytes; this machine's Java has " + memory
            + " of memory, and arrays of less than 2^31 elements: ask for less, or take it in parts");
  }

  // ---- The shape of a table, if the request shows it -------------------------------------------

  private static boolean isComplexOrAbsolute(BuildTableRequest request) {
    return !request.hasRope() || request.getLayout() == TableLayout.TABLE_LAYOUT_COMPLEX;
  }

  // Returns the shape of each tensor. Null if only the server knows it: for presets and
  // configurations; and for requests that it refuses.
  private static long[] shapeOf(BuildTableRequest request, Dtype dtype) {
    long heads = request.getRope().getSpec().getExplicitFrequencies().getHeads();
    long rows = rowsOf(request);
    long width = widthOf(request);
    boolean complex = request.hasRope() && isComplexOrAbsolute(request);
    LongStream row = complex ? LongStream.of(rows, width / 2, 2) : LongStream.of(rows, width);
    LongStream all = heads > 0 ? LongStream.concat(LongStream.of(heads), row) : row;
    long[] shape = all.toArray();
    long bytes = TensorView.bytesOf(dtype, shape);
    return bytes > 0 && bytes < Integer.MAX_VALUE ? shape : null;
  }

  private static long rowsOf(BuildTableRequest request) {
    Positions positions = request.getPositions();
    int dimensions = positions.getIds().getShapeCount();
    // The last extent of ids counts tokens; the others are axes.
    if (dimensions > 0) return positions.getIds().getShape(dimensions - 1);
    int ends = positions.getPacked().getCuSeqlensCount();
    if (ends > 0) return positions.getPacked().getCuSeqlens(ends - 1);
    if (!request.getAbsolute().hasSincosGrid()) return request.getRows();
    // A grid has a row for every cell, after the rows of special tokens.
    SincosGrid grid = request.getAbsolute().getSincosGrid();
    double cells = grid.getExtentsList().stream().mapToDouble(n -> n).reduce(1, (a, b) -> a * b);
    return (long) cells + grid.getLeadingZeroRows();
  }

  private static long widthOf(BuildTableRequest request) {
    if (request.hasRope()) {
      boolean half = request.getLayout() == TableLayout.TABLE_LAYOUT_UNSPECIFIED
          || request.getLayout() == TableLayout.TABLE_LAYOUT_HALF;
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

  private static long lastOf(Tensor tensor) {
    int dimensions = tensor.getShapeCount();
    return dimensions == 0 ? 0 : tensor.getShape(dimensions - 1);
  }
}
