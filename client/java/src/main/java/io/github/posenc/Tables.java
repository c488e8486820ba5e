package io.github.posenc;

import com.google.protobuf.Message;
import io.github.posenc.v1.BuildBiasRequest;
import io.github.posenc.v1.BuildBiasResponse;
import io.github.posenc.v1.BuildTableRequest;
import io.github.posenc.v1.BuildTableResponse;
import io.github.posenc.v1.BuildTableStreamRequest;
import io.github.posenc.v1.BuildTableStreamResponse;
import io.grpc.Status;
import java.math.BigInteger;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.function.Supplier;
import java.util.stream.LongStream;

/** Tables and biases: small requests, large answers. */
final class Tables {
  // The same numbers in BuildTableResponse.
  private static final int COS = BuildTableStreamResponse.COS_FIELD_NUMBER;
  private static final int SIN = BuildTableStreamResponse.SIN_FIELD_NUMBER;
  private static final int TABLE = BuildTableStreamResponse.TABLE_FIELD_NUMBER;
  private static final List<Integer> FIELDS = List.of(COS, SIN, TABLE);
  private static final int TILE = BuildBiasResponse.TILE_FIELD_NUMBER;

  // Bytes of a row of a usual table: 64 cosines and 64 sines in float32.
  private static final long ROW_BYTES = 512;

  // The longest array of usual virtual machines.
  private static final int MAX_ELEMENTS = Integer.MAX_VALUE - 8;

  private final Calls calls;
  private final Supplier<CallSettings> settings;

  /** Makes an instance for one call. */
  Tables(Calls calls, CallSettings settings) {
    this.calls = calls;
    this.settings = settings.forRequests();
  }

  Table whole(BuildTableRequest request, Tensor... outputs) {
    PosencException.given("request", request);
    Map<Integer, Tensor> into = TableOutputs.of(request, outputs);
    Map<Integer, Tensor> placed = TableOutputs.placed(request, into);
    if (!placed.isEmpty()) {
      Message byPlace = request;
      for (Map.Entry<Integer, Tensor> each : placed.entrySet()) {
        byPlace = Sharing.withOutput(byPlace, TableOutputs.name(each.getKey()), each.getValue());
      }
      try {
        return once(byPlace, 0, TableOutputs.targets(request, into), placed);
      } catch (PosencException e) {
        new Sharing().check(e);
      }
    }
    try {
      return once(request, request.getRows() * ROW_BYTES, TableOutputs.targets(request, into), Map.of());
    } catch (PosencException e) {
      boolean tooLarge = e.code().equals("RESOURCE_EXHAUSTED") && !e.reason().equals("OVERLOADED");
      if (!tooLarge) throw e;
      List<Table> rows = new ArrayList<>();
      try {
        stream(BuildTableStreamRequest.newBuilder().setTable(request).build(), table -> {
          if (rows.isEmpty()) checkMemory(e, table);
          checkNext(request, rows, table);
          rows.add(table);
        });
      } catch (PosencException ofStream) {
        throw ofStream.outsideOf("table"); // callers do not know the message `table`
      }
      long come = rowsIn(request, rows);
      long all = TableOutputs.rowsOf(request);
      if (rows.isEmpty() || (all >= 0 && come != all)) {
        throw PosencException.local(
            Status.Code.INTERNAL, "the table came with " + come + " of " + all + " rows", e.requestId());
      }
      int axis = TableOutputs.rowAxis(request);
      return new Table(
          rows.get(0).amplitude(),
          0,
          joined(COS, axis, rows, Table::cos, into.get(COS)),
          joined(SIN, axis, rows, Table::sin, into.get(SIN)),
          joined(TABLE, axis, rows, Table::table, into.get(TABLE)));
    }
  }

  private static long rowsIn(BuildTableRequest request, List<Table> tables) {
    int first = TableOutputs.fieldsOf(request).get(0);
    int axis = TableOutputs.rowAxis(request);
    return tables.stream().mapToLong(table -> table.tensor(first).shape()[axis]).sum();
  }

  // Fails if the next rows of a stream do not follow the rows before, or have another type or
  // shape.
  private static void checkNext(BuildTableRequest request, List<Table> before, Table next) {
    long row = rowsIn(request, before);
    int axis = TableOutputs.rowAxis(request);
    boolean fits = next.firstRow() == row;
    long rows = 0;
    for (int field : FIELDS) {
      Tensor tensor = next.tensor(field);
      boolean wanted = TableOutputs.fieldsOf(request).contains(field);
      fits = fits && wanted == (tensor != null);
      if (!fits || tensor == null) continue;
      long[] shape = tensor.shape();
      fits = shape.length >= axis + 2 && LongStream.of(shape).allMatch(extent -> extent > 0);
      if (!fits) continue;
      fits = rows == 0 || rows == shape[axis];
      rows = shape[axis];
      if (before.isEmpty()) continue;
      Tensor first = before.get(0).tensor(field);
      shape[axis] = first.shape()[axis];
      fits = fits && first.dtype() == tensor.dtype() && Arrays.equals(first.shape(), shape);
    }
    long all = TableOutputs.rowsOf(request);
    if (fits && (all < 0 || rows <= all - row)) return;
    throw PosencException.local(
        Status.Code.INTERNAL, "the table came with rows that do not fit it, after " + row + " of " + all, "");
  }

  // Ends a stream whose table does not fit the heap. The error of the unary call has the size of
  // all tensors together, which have equal sizes.
  private static void checkMemory(PosencException tooLarge, Table first) {
    String size = tooLarge.metadata().get("sizeBytes");
    if (size == null) return;
    List<Tensor> tensors = new ArrayList<>(Arrays.asList(first.cos(), first.sin(), first.table()));
    tensors.removeIf(Objects::isNull);
    if (tensors.isEmpty()) return;
    int elementBytes = Tensor.elementBytes(tensors.get(0).dtype());
    checkMemory(
        new BigInteger(size),
        new BigInteger(size).divide(BigInteger.valueOf((long) tensors.size() * elementBytes)));
  }

  // Takes the result's bytes, and the elements of each of its tensors.
  static void checkMemory(BigInteger size, BigInteger elements) {
    long memory = Runtime.getRuntime().maxMemory();
    if (size.compareTo(BigInteger.valueOf(memory)) > 0) {
      throw tooLarge(size + " bytes, and this machine's Java " + memory + " of memory");
    }
    if (elements.compareTo(BigInteger.valueOf(MAX_ELEMENTS)) > 0) {
      throw tooLarge(elements + " elements, and an array of Java's " + MAX_ELEMENTS + " at most");
    }
  }

  private static PosencException tooLarge(String facts) {
    return PosencException.local(
        Status.Code.RESOURCE_EXHAUSTED,
        "the result has " + facts + "; ask for less, or take it in parts",
        "");
  }

  // Makes a call with one message each way. The server writes the outputs of `placed`; the others
  // of `targets` are written here.
  private Table once(
      Message request, long expectedBytes, Map<Integer, Incoming.Target> targets, Map<Integer, Tensor> placed) {
    List<Integer> received = new ArrayList<>(FIELDS);
    received.removeAll(placed.keySet());
    Incoming.Parsed<BuildTableResponse> answer = calls.unary(
        settings.get(),
        "BuildTable",
        new Outgoing(request),
        BuildTableResponse.getDefaultInstance(),
        received,
        targets,
        expectedBytes,
        false);
    Tensor[] tensors = new Tensor[FIELDS.size()];
    for (int i = 0; i < tensors.length; i++) {
      Tensor own = placed.get(FIELDS.get(i));
      if (targets.containsKey(FIELDS.get(i))) {
        tensors[i] = own == null ? answer.required(FIELDS.get(i)) : own;
      }
    }
    return new Table(answer.message.getAmplitude(), 0, tensors[0], tensors[1], tensors[2]);
  }

  // Joins consecutive rows; for tables that begin with the heads, separately for each head.
  private static Tensor joined(
      int field, int axis, List<Table> tables, Function<Table, Tensor> which, Tensor into) {
    Tensor first = which.apply(tables.get(0));
    if (first == null) return null;
    long[] shape = first.shape();
    shape[axis] = 0;
    for (Table table : tables) shape[axis] += which.apply(table).shape()[axis];
    Tensor all = into == null ? Tensor.allocate(first.dtype(), shape) : into;
    long bytes = tables.stream().mapToLong(table -> which.apply(table).bytes()).sum();
    if (all.bytes() != bytes) throw TableOutputs.misfit(field, all, bytes);
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
    PosencException.given("request", request);
    PosencException.given("rows", rows);
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
    PosencException.given("request", request);
    PosencException.given("tiles", tiles);
    receive("BuildBias", new Outgoing(request), in -> {
      Incoming.Parsed<BuildBiasResponse> answer =
          Incoming.parse(in, BuildBiasResponse.getDefaultInstance(), List.of(TILE), Map.of());
      tiles.accept(new BiasTile(
          answer.message.getQueryStart(), answer.message.getKeyStart(), answer.tensor(TILE)));
    });
  }

  Tensor wholeBias(BuildBiasRequest request) {
    Tensor[] whole = new Tensor[1];
    long[] done = {0}; // bytes
    bias(request, tile -> {
      long[] shape = tile.tensor() == null ? new long[0] : tile.tensor().shape();
      if (shape.length != 3 || tile.tensor().bytes() == 0) throw misfit(tile);
      if (whole[0] == null) {
        BigInteger elements = BigInteger.valueOf(shape[0])
            .multiply(BigInteger.valueOf(request.getQueryLength()))
            .multiply(BigInteger.valueOf(request.getKeyLength()));
        int elementBytes = Tensor.elementBytes(tile.tensor().dtype());
        checkMemory(elements.multiply(BigInteger.valueOf(elementBytes)), elements);
        whole[0] = Tensor.allocate(
            tile.tensor().dtype(), shape[0], request.getQueryLength(), request.getKeyLength());
      }
      long firstQuery = tile.queryStart() - request.getQueryStart();
      long firstKey = tile.keyStart() - request.getKeyStart();
      boolean inside = firstQuery >= 0 && firstQuery <= request.getQueryLength() - shape[1]
          && firstKey >= 0 && firstKey <= request.getKeyLength() - shape[2];
      if (!inside || whole[0].dtype() != tile.tensor().dtype() || whole[0].shape()[0] != shape[0]) {
        throw misfit(tile);
      }
      done[0] += tile.tensor().bytes();
      // Rows of a tile are not contiguous in the matrix.
      long[] all = whole[0].shape();
      long rowBytes = tile.tensor().bytes() / (shape[0] * shape[1]);
      long elementBytes = rowBytes / shape[2];
      for (long row = 0; row < shape[0] * shape[1]; row++) {
        long head = row / shape[1];
        long query = firstQuery + row % shape[1];
        whole[0].elements().copyFrom(
            tile.tensor().elements(),
            row * rowBytes,
            ((head * all[1] + query) * all[2] + firstKey) * elementBytes,
            rowBytes);
      }
    });
    if (whole[0] == null) {
      throw PosencException.local(Status.Code.INTERNAL, "a bias without tiles", "");
    }
    if (done[0] != whole[0].bytes()) {
      throw PosencException.local(
          Status.Code.INTERNAL, "the bias came with tiles missing or twice", "");
    }
    return whole[0];
  }

  private static PosencException misfit(BiasTile tile) {
    return PosencException.local(
        Status.Code.INTERNAL,
        "the bias came with a tile at query " + tile.queryStart() + ", key " + tile.keyStart()
            + " that does not fit it",
        "");
  }

  private void receive(String name, Outgoing request, Exchange.Take take) {
    calls.stream(settings.get(), name, false, request.bytes(), () -> request, take);
  }
}
