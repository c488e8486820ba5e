package io.github.posenc;

import io.github.posenc.v1.BuildBiasRequest;
import io.github.posenc.v1.BuildBiasResponse;
import io.github.posenc.v1.BuildTableRequest;
import io.github.posenc.v1.BuildTableResponse;
import io.github.posenc.v1.BuildTableStreamRequest;
import io.github.posenc.v1.BuildTableStreamResponse;
import io.grpc.Status;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import java.util.function.Function;

/** Tables and biases: small requests, large answers. */
final class Tables {
  // The same numbers in BuildTableResponse.
  private static final int COS = BuildTableStreamResponse.COS_FIELD_NUMBER;
  private static final int SIN = BuildTableStreamResponse.SIN_FIELD_NUMBER;
  private static final int TABLE = BuildTableStreamResponse.TABLE_FIELD_NUMBER;
  private static final List<Integer> FIELDS = List.of(COS, SIN, TABLE);
  private static final int TILE = BuildBiasResponse.TILE_FIELD_NUMBER;

  // Bytes of a row of a table of usual width: [rows, 64] of cosines and sines in float32.
  private static final long ROW_BYTES = 512;

  private final Calls calls;
  private final CallSettings settings;

  Tables(Calls calls, CallSettings settings) {
    this.calls = calls;
    this.settings = settings;
  }

  Table whole(BuildTableRequest request) {
    try {
      Incoming.Parsed<BuildTableResponse> answer = calls.unary(
          settings,
          "BuildTable",
          new Outgoing(request),
          BuildTableResponse.getDefaultInstance(),
          FIELDS,
          Map.of(),
          request.getRows() * ROW_BYTES,
          false);
      return new Table(
          answer.message.getAmplitude(),
          0,
          answer.tensor(COS),
          answer.tensor(SIN),
          answer.tensor(TABLE));
    } catch (PosencException e) {
      boolean tooLarge = e.code().equals("RESOURCE_EXHAUSTED") && !e.reason().equals("OVERLOADED");
      if (!tooLarge) throw e;
      List<Table> rows = new ArrayList<>();
      stream(BuildTableStreamRequest.newBuilder().setTable(request).build(), rows::add);
      if (rows.isEmpty()) {
        throw PosencException.local(Status.Code.INTERNAL, "a table without rows", e.requestId());
      }
      return new Table(
          rows.get(0).amplitude(),
          0,
          joined(rows, Table::cos),
          joined(rows, Table::sin),
          joined(rows, Table::table));
    }
  }

  // Rows stand behind each other; of tables that begin with the heads, those of each head.
  private static Tensor joined(List<Table> tables, Function<Table, Tensor> which) {
    Tensor first = which.apply(tables.get(0));
    if (first == null) return null;
    long[] shape = first.shape();
    // [rows, width], or [rows, d / 2, 2] and [heads, rows, d / 2]: the extent that counts the rows
    // up to the second message is the rows' dimension.
    int axis = 0;
    if (tables.size() > 1 && shape.length > 2 && shape[0] != tables.get(1).firstRow()) axis = 1;
    shape[axis] = 0;
    for (Table table : tables) shape[axis] += which.apply(table).shape()[axis];
    Tensor all = Tensor.allocate(first.dtype(), shape);
    long blocks = axis == 0 ? 1 : shape[0];
    long blockBytes = all.bytes() / blocks;
    long done = 0;
    for (Table table : tables) {
      Tensor part = which.apply(table);
      long partBytes = part.bytes() / blocks;
      for (long block = 0; block < blocks; block++) {
        all.elements().copyFrom(
            part.elements(), block * partBytes, block * blockBytes + done, partBytes);
      }
      done += partBytes;
    }
    return all;
  }

  void stream(BuildTableStreamRequest request, Consumer<Table> rows) {
    receive("BuildTableStream", new Outgoing(request), in -> {
      Incoming.Parsed<BuildTableStreamResponse> answer =
          Incoming.parse(in, BuildTableStreamResponse.getDefaultInstance(), FIELDS, Map.of());
      Table table = new Table(
          answer.message.getAmplitude(),
          answer.message.getFirstRow(),
          answer.tensor(COS),
          answer.tensor(SIN),
          answer.tensor(TABLE));
      rows.accept(table);
    });
  }

  void bias(BuildBiasRequest request, Consumer<BiasTile> tiles) {
    receive("BuildBias", new Outgoing(request), in -> {
      Incoming.Parsed<BuildBiasResponse> answer =
          Incoming.parse(in, BuildBiasResponse.getDefaultInstance(), List.of(TILE), Map.of());
      tiles.accept(new BiasTile(
          answer.message.getQueryStart(), answer.message.getKeyStart(), answer.tensor(TILE)));
    });
  }

  Tensor wholeBias(BuildBiasRequest request) {
    Tensor[] whole = new Tensor[1];
    bias(request, tile -> {
      long[] shape = tile.tensor().shape();
      if (whole[0] == null) {
        whole[0] = Tensor.allocate(
            tile.tensor().dtype(), shape[0], request.getQueryLength(), request.getKeyLength());
      }
      // Rows of a tile lie apart in the matrix.
      long[] all = whole[0].shape();
      long rowBytes = tile.tensor().bytes() / (shape[0] * shape[1]);
      long elementBytes = rowBytes / shape[2];
      for (long row = 0; row < shape[0] * shape[1]; row++) {
        long head = row / shape[1];
        long query = tile.queryStart() - request.getQueryStart() + row % shape[1];
        long key = tile.keyStart() - request.getKeyStart();
        whole[0].elements().copyFrom(
            tile.tensor().elements(),
            row * rowBytes,
            ((head * all[1] + query) * all[2] + key) * elementBytes,
            rowBytes);
      }
    });
    if (whole[0] == null) {
      throw PosencException.local(Status.Code.INTERNAL, "a bias without tiles", "");
    }
    return whole[0];
  }

  private void receive(String name, Outgoing request, Exchange.Take take) {
    calls.stream(settings, name, false, request.bytes(), () -> request, take);
  }
}
