package io.github.posenc;

import com.google.protobuf.Message;
import io.github.posenc.v1.AddEncodingRequest;
import io.github.posenc.v1.AddEncodingResponse;
import io.github.posenc.v1.AnalyzeRopeRequest;
import io.github.posenc.v1.AnalyzeRopeResponse;
import io.github.posenc.v1.ApplyRopeRequest;
import io.github.posenc.v1.ApplyRopeResponse;
import io.github.posenc.v1.ApplyRopeStreamRequest;
import io.github.posenc.v1.ApplyRopeStreamResponse;
import io.github.posenc.v1.BuildBiasRequest;
import io.github.posenc.v1.BuildPositionsRequest;
import io.github.posenc.v1.BuildPositionsResponse;
import io.github.posenc.v1.BuildTableRequest;
import io.github.posenc.v1.BuildTableStreamRequest;
import io.github.posenc.v1.Combination;
import io.github.posenc.v1.ConvertPairingRequest;
import io.github.posenc.v1.ConvertPairingResponse;
import io.github.posenc.v1.DiagnoseRopeRequest;
import io.github.posenc.v1.DiagnoseRopeResponse;
import io.github.posenc.v1.Dtype;
import io.github.posenc.v1.GetServerInfoResponse;
import io.github.posenc.v1.RepositionRequest;
import io.github.posenc.v1.RepositionResponse;
import io.github.posenc.v1.RepositionStreamRequest;
import io.github.posenc.v1.RepositionStreamResponse;
import io.github.posenc.v1.ResolveRopeRequest;
import io.github.posenc.v1.ResolveRopeResponse;
import io.github.posenc.v1.RopeSource;
import io.github.posenc.v1.ScoreRelativeRequest;
import io.github.posenc.v1.ScoreRelativeResponse;
import io.github.posenc.v1.SharedMemoryInfo;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Consumer;
import java.util.function.Supplier;

/**
 * A client of a posenc server, which computes positional encodings.
 *
 * <pre>{@code
 * try (var posenc = Posenc.connect("localhost:50051")) {
 *   var rope = posenc.rope(Path.of("config.json"));
 *   rope.apply(Layout.BSHD, Positions.startAt(0), Tensor.of(q, 1, 16, 4, 64), Tensor.of(k, 1, 16, 2, 64));
 * }
 * }</pre>
 *
 * <p>Settings of a call are the generated messages of {@code io.github.posenc.v1}, whose .proto
 * files are the specification: a missing field gets the contract's default, or its "required"
 * error. Tensors are separate arguments of type {@link Tensor}: they are sent from the caller's
 * memory, and results are written directly into the caller's memory, which may be the input's own.
 * Tensors inside of messages (trained tables, position ids) are copied.
 *
 * <p>Threads: one client serves any number of threads. Calls block; callbacks run in the caller's
 * thread. An interrupt ends a call as CANCELLED.
 *
 * <p>Errors: every call may throw {@link PosencException}, and no other exception, even if an
 * argument is null that must not be.
 */
public final class Posenc implements AutoCloseable {
  /** The version of this client. */
  public static final String VERSION = "0.2.0";

  /** Called after every chunk while a tensor moves through a stream. */
  public interface Progress {
    void moved(long bytesDone, long bytes);
  }

  private final Calls calls;
  private final CallSettings settings;

  Posenc(Calls calls) {
    this(calls, CallSettings.NONE);
  }

  private Posenc(Calls calls, CallSettings settings) {
    this.calls = calls;
    this.settings = settings;
  }

  /**
   * Makes a plaintext client of one or several servers at a gRPC target: "localhost:50051",
   * "dns:///posenc:50051", "unix:/run/posenc".
   */
  public static Posenc connect(String target) {
    return builder(target).connect();
  }

  /** Returns a builder for a client with other options. */
  public static PosencBuilder builder(String target) {
    return new PosencBuilder(target);
  }

  /**
   * Makes a client from POSENC_SERVER (default localhost:50051), POSENC_TLS_CA, POSENC_TOKEN_FILE,
   * ...
   */
  public static Posenc fromEnv() {
    return PosencBuilder.of(System.getenv()).connect();
  }

  /**
   * Returns a client over the same connections whose calls must end within this time. This also
   * bounds streams, which may otherwise continue as long as they make progress.
   */
  public Posenc withTimeout(Duration timeout) {
    return with(settings.timeout(timeout));
  }

  /**
   * Returns a client over the same connections whose calls have this request id in the server's
   * log. By default each call gets a random id.
   */
  public Posenc withRequestId(String requestId) {
    return with(settings.requestId(PosencException.visible("request_id", requestId)));
  }

  /** Returns a client over the same connections whose calls send this W3C traceparent. */
  public Posenc withTraceparent(String traceparent) {
    return with(settings.traceparent(PosencException.visible("traceparent", traceparent)));
  }

  /**
   * Returns a client over the same connections that reports the finished bytes after every chunk of
   * a stream.
   */
  public Posenc withProgress(Progress progress) {
    return with(settings.progress(progress));
  }

  // All copies share the connections.
  private Posenc with(CallSettings other) {
    return new Posenc(calls, other);
  }

  /**
   * Ends the connections, which the clients made by {@code with...} share. Running calls end as
   * UNAVAILABLE, later ones as CANCELLED.
   */
  @Override
  public void close() {
    calls.close();
  }

  /** Returns the server's version, instruction set, limits and presets. */
  public GetServerInfoResponse getServerInfo() {
    return calls.serverInfo(settings);
  }

  /**
   * Makes memory of this many bytes that a server on this host maps, too; see {@link SharedRegion}.
   */
  public SharedRegion sharedRegion(long bytes) {
    return sharedRegion(bytes, null, null);
  }

  /**
   * Makes memory of this many bytes that a server on this host maps, too, in a file that the caller
   * names.
   *
   * @param name the file's name; null: the server's prefix and a random part
   * @param directory this process's path of the server's directory of shared memory; null: the same
   * path
   */
  public SharedRegion sharedRegion(long bytes, String name, Path directory) {
    GetServerInfoResponse server = getServerInfo();
    SharedMemoryInfo info = server.hasSharedMemory() ? server.getSharedMemory() : null;
    return SharedRegion.create(bytes, info, name, directory);
  }

  /** Turns a preset, a config.json or a specification into exact frequencies. */
  public ResolveRopeResponse resolveRope(ResolveRopeRequest request) {
    return call("ResolveRope", request, ResolveRopeResponse.getDefaultInstance());
  }

  /** Returns the encoding of a model, by its config.json. */
  public Rope rope(Path config) {
    return rope(RopeSources.of(config));
  }

  /** Returns the encoding of a preset, or of the text of a config.json. */
  public Rope rope(String presetOrJson) {
    return rope(RopeSources.of(presetOrJson));
  }

  /**
   * Returns the encoding of a specification or a model's configuration; see {@link RopeSources}.
   */
  public Rope rope(Map<String, ?> specOrConfig) {
    return rope(RopeSources.of(specOrConfig));
  }

  /** Returns the encoding of a source, resolved once. A specification is used without a call. */
  public Rope rope(RopeSource source) {
    if (PosencException.given("rope", source).hasSpec()) {
      return new Rope(
          this, source, ResolveRopeResponse.newBuilder().setSpec(source.getSpec()).build());
    }
    return new Rope(
        this, source, resolveRope(ResolveRopeRequest.newBuilder().setRope(source).build()));
  }

  /** Returns wavelengths, long-term decay and similarity between positions. */
  public AnalyzeRopeResponse analyzeRope(AnalyzeRopeRequest request) {
    return call("AnalyzeRope", request, AnalyzeRopeResponse.getDefaultInstance());
  }

  /**
   * Returns which descriptions of a checkpoint, and which of their readers, disagree, from which
   * distance on, and which key fixes it.
   */
  public DiagnoseRopeResponse diagnoseRope(DiagnoseRopeRequest request) {
    return call("DiagnoseRope", request, DiagnoseRopeResponse.getDefaultInstance());
  }

  /** Builds position ids; pass the answer's {@code positions} to other calls unchanged. */
  public BuildPositionsResponse buildPositions(BuildPositionsRequest request) {
    return call("BuildPositions", request, BuildPositionsResponse.getDefaultInstance());
  }

  /** Builds rows of a table. If the table is over a limit, it is requested again as a stream. */
  public Table buildTable(BuildTableRequest request) {
    return new Tables(calls, settings).whole(request);
  }

  /**
   * Builds rows of a table and writes them to the caller's memory.
   *
   * @param out memory for cos and sin, or for the single table; null: new memory. The server itself
   * writes to a tensor of a {@link SharedRegion} if the request shows the table's size. Requests
   * with a preset or a configuration do not show it, and their tables come as bytes: resolve the
   * encoding first, with {@link #rope}
   */
  public Table buildTable(BuildTableRequest request, Tensor... out) {
    return new Tables(calls, settings).whole(request, out == null ? new Tensor[0] : out);
  }

  /**
   * Builds a table of any length, and passes the rows of each message to {@code rows}, in order.
   */
  public void buildTableStream(BuildTableStreamRequest request, Consumer<Table> rows) {
    new Tables(calls, settings).stream(request, rows);
  }

  /** Builds an attention bias tile by tile, in row-major order of the matrix. */
  public void buildBias(BuildBiasRequest request, Consumer<BiasTile> tiles) {
    new Tables(calls, settings).bias(request, tiles);
  }

  /** Builds an attention bias as one tensor, [heads, query_length, key_length]. */
  public Tensor buildBias(BuildBiasRequest request) {
    return new Tables(calls, settings).wholeBias(request);
  }

  /** Rotates q, k or both (the other is null) into new memory. */
  public Rotated applyRope(ApplyRopeRequest request, Tensor q, Tensor k) {
    return applyRope(request, q, k, null, null);
  }

  /**
   * Rotates q, k or both, [B, S, H, D] in the order of the request's layout or [T, H, D].
   *
   * @param request all other arguments
   * @param qOut memory for the rotated q, which may be q itself; null: new memory
   * @param kOut the same for k
   */
  public Rotated applyRope(ApplyRopeRequest request, Tensor q, Tensor k, Tensor qOut, Tensor kOut) {
    Rotation rotation = new Rotation();
    rotation.name = "ApplyRope";
    rotation.request = PosencException.given("request", request);
    rotation.response = ApplyRopeResponse.getDefaultInstance();
    rotation.layout = Layout.of(request.getLayout());
    rotation.rope = request.getRope();
    rotation.headsDiffer = headsDiffer(request.getRope());
    rotation.operand("q", ApplyRopeRequest.Q_FIELD_NUMBER, q, qOut);
    rotation.operand("k", ApplyRopeRequest.K_FIELD_NUMBER, k, kOut);
    ApplyRopeStreamRequest.Builder stream = ApplyRopeStreamRequest.newBuilder()
        // Copies enum numbers, because the generated code refuses names from a newer contract.
        .setLayoutValue(request.getLayoutValue())
        .setDirectionValue(request.getDirectionValue())
        .setSaturationValue(request.getSaturationValue());
    if (request.hasRope()) stream.setRope(request.getRope());
    if (request.hasQueryScale()) stream.setQueryScale(request.getQueryScale());
    rotation.streamSettings = stream.build();
    rotation.streamResponse = ApplyRopeStreamResponse.getDefaultInstance();
    rotation.needAxes = batch ->
        CutPositions.needAxes(request.getPositions().getIds(), rotation.layout, batch);
    rotation.placesOf = (message, cut, part) ->
        ((ApplyRopeStreamRequest) message).toBuilder()
            .setPositions(cut.of(request.getPositions(), part))
            .build();
    rotation.run(calls, settings);
    return new Rotated(rotation.result("q"), rotation.result("k"));
  }

  /** Moves rotated keys to other positions, or to another encoding, into new memory. */
  public Tensor reposition(RepositionRequest request, Tensor k) {
    return reposition(request, k, null);
  }

  /**
   * Moves rotated keys to other positions, or to another encoding, into {@code out}, which may be k
   * itself.
   */
  public Tensor reposition(RepositionRequest request, Tensor k, Tensor out) {
    Rotation rotation = new Rotation();
    rotation.name = "Reposition";
    rotation.request = PosencException.given("request", request);
    rotation.response = RepositionResponse.getDefaultInstance();
    rotation.layout = Layout.of(request.getLayout());
    rotation.rope = request.getOldRope();
    rotation.headsDiffer = headsDiffer(request.getOldRope()) || headsDiffer(request.getNewRope());
    rotation.operand("k", RepositionRequest.K_FIELD_NUMBER, k, out);
    RepositionStreamRequest.Builder stream =
        RepositionStreamRequest.newBuilder()
            .setLayoutValue(request.getLayoutValue())
            .setSaturationValue(request.getSaturationValue());
    if (request.hasOldRope()) stream.setOldRope(request.getOldRope());
    if (request.hasNewRope()) stream.setNewRope(request.getNewRope());
    rotation.streamSettings = stream.build();
    rotation.streamResponse = RepositionStreamResponse.getDefaultInstance();
    rotation.needAxes =
        batch -> CutPositions.needAxes(request.getMovement(), rotation.layout, batch);
    rotation.placesOf = (message, cut, part) ->
        ((RepositionStreamRequest) message).toBuilder()
            .setMovement(cut.of(request.getMovement(), part))
            .build();
    rotation.run(calls, settings);
    return rotation.result("k");
  }

  // Only explicit frequencies can differ by head.
  private static boolean headsDiffer(RopeSource rope) {
    return rope.getSpec().getExplicitFrequencies().getHeads() > 0;
  }

  /** Combines embeddings x, [B, S, dim], [S, dim] or [T, dim], with an absolute encoding. */
  public Tensor addEncoding(AddEncodingRequest request, Tensor x) {
    return addEncoding(request, x, null);
  }

  /**
   * Adds encodings and writes the result to {@code out}, which may be x itself unless they are
   * concatenated.
   */
  public Tensor addEncoding(AddEncodingRequest request, Tensor x, Tensor out) {
    PosencException.given("request", request);
    // Only the server knows the size of a concatenation, so it comes as bytes.
    boolean known = x != null && request.getCombination() != Combination.COMBINATION_CONCATENATE;
    if (known) Rotation.checkOutput("x_output", x, out);
    return inOneMessage(
        "AddEncoding",
        request,
        fields(AddEncodingRequest.X_FIELD_NUMBER, x),
        AddEncodingResponse.getDefaultInstance(),
        AddEncodingResponse.X_FIELD_NUMBER,
        out,
        known ? x.dtype() : null,
        known ? x.shape() : null);
  }

  /** Computes attention scores: q [B, H, Sq, D] and k [B, H, Sk, D] give [B, H, Sq, Sk]. */
  public Tensor scoreRelative(ScoreRelativeRequest request, Tensor q, Tensor k) {
    return scoreRelative(request, q, k, null);
  }

  /** Computes attention scores and writes them to {@code out}. */
  public Tensor scoreRelative(ScoreRelativeRequest request, Tensor q, Tensor k, Tensor out) {
    PosencException.given("request", request);
    boolean known = q != null && k != null && q.shape().length == 4 && k.shape().length == 4;
    Dtype dtype = known ? scoresDtype(request, q) : null;
    long[] shape = known ? q.shape() : null; // [B, H, Sq, Sk], by q's shape and k's Sk
    if (known) shape[3] = k.shape()[2];
    if (known) Rotation.checkOutput("scores_output", dtype, shape, out);
    Map<Integer, Tensor> tensors = fields(ScoreRelativeRequest.Q_FIELD_NUMBER, q);
    tensors.put(ScoreRelativeRequest.K_FIELD_NUMBER, k);
    return inOneMessage(
        "ScoreRelative",
        request,
        tensors,
        ScoreRelativeResponse.getDefaultInstance(),
        ScoreRelativeResponse.SCORES_FIELD_NUMBER,
        out,
        dtype,
        shape);
  }

  /** Reorders the rows of a projection's weight or bias, [H * D, ...], for the other pairing. */
  public Tensor convertPairing(ConvertPairingRequest request, Tensor weight) {
    return convertPairing(request, weight, null);
  }

  /**
   * Reorders the rows of a weight or bias and writes them to {@code out}, which may be the weight
   * itself.
   */
  public Tensor convertPairing(ConvertPairingRequest request, Tensor weight, Tensor out) {
    PosencException.given("request", request);
    if (weight != null) Rotation.checkOutput("weight_output", weight, out);
    return inOneMessage(
        "ConvertPairing",
        request,
        fields(ConvertPairingRequest.WEIGHT_FIELD_NUMBER, weight),
        ConvertPairingResponse.getDefaultInstance(),
        ConvertPairingResponse.WEIGHT_FIELD_NUMBER,
        out,
        weight == null ? null : weight.dtype(),
        weight == null ? null : weight.shape());
  }

  /**
   * @param tensors the request's, by their fields
   * @param dtype of the result, with its shape; null if unknown: then no place is sent, because the
   * server would write the whole result to shared memory
   */
  private Tensor inOneMessage(
      String name,
      Message request,
      Map<Integer, Tensor> tensors,
      Message response,
      int field,
      Tensor out,
      Dtype dtype,
      long[] shape) {
    String result = response.getDescriptorForType().findFieldByNumber(field).getName();
    Rotation.checkWritable(result + "_output", out);
    SharedRegion.check(result + "_output", out);
    Sharing sharing = new Sharing();
    tensors.forEach((number, tensor) -> {
      SharedRegion.check(request.getDescriptorForType().findFieldByNumber(number).getName(), tensor);
      sharing.input(tensor);
    });
    boolean placed = shape != null && out != null && out.place() != null;
    if (placed) sharing.output(result, out);
    long expected = out == null ? 0 : out.bytes();
    Supplier<CallSettings> rest = settings.forRequests();
    if (sharing.any()) {
      Outgoing message = new Outgoing(placed ? Sharing.withOutput(request, result, out) : request);
      tensors.forEach(message::place);
      try {
        if (placed) {
          calls.unary(rest.get(), name, message, response, List.of(), Map.of(), 0, sharing.once());
          return out;
        }
        return received(rest.get(), name, message, response, field, Incoming.Target.whole(out, dtype, shape), expected);
      } catch (PosencException e) {
        sharing.check(e);
      }
    }
    Outgoing message = new Outgoing(request);
    tensors.forEach(message::tensor);
    return received(rest.get(), name, message, response, field, Incoming.Target.whole(out, dtype, shape), expected);
  }

  private Tensor received(
      CallSettings rest,
      String name,
      Outgoing message,
      Message response,
      int field,
      Incoming.Target target,
      long expected) {
    return calls
        .unary(rest, name, message, response, List.of(field), Map.of(field, target), expected, false)
        .required(field);
  }

  private static Dtype scoresDtype(ScoreRelativeRequest request, Tensor q) {
    if (request.getDtype() != Dtype.DTYPE_UNSPECIFIED) return request.getDtype();
    // The server's default.
    return q.dtype() == Dtype.DTYPE_FLOAT64 ? Dtype.DTYPE_FLOAT64 : Dtype.DTYPE_FLOAT32;
  }

  // Map.of() allows no nulls, and has no order.
  private static Map<Integer, Tensor> fields(int number, Tensor tensor) {
    Map<Integer, Tensor> fields = new TreeMap<>();
    fields.put(number, tensor);
    return fields;
  }

  /** Makes any unary call, by its name in the contract, with tensors only in the request. */
  <M extends Message> M call(String name, Message request, M response) {
    return calls.call(settings, name, PosencException.given("request", request), response);
  }
}
