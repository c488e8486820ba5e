package io.github.posenc;

import static io.github.posenc.Arguments.given;

import com.google.protobuf.Message;
import io.github.posenc.v1.*;
import io.grpc.CallOptions;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.function.Consumer;
import java.util.function.Function;

/**
 * A client of a posenc server, which computes positional encodings.
 *
 * <pre>{@code
 * try (var posenc = Posenc.connect("localhost:50051")) {
 *   var rope = posenc.rope(Path.of("config.json"));
 *   rope.apply(Layout.LAYOUT_BSHD, TokenPositions.startAt(0), TensorView.of(q, 1, 16, 4, 64),
 * null);
 * }
 * }</pre>
 *
 * <p>Settings of a call are the generated messages of {@code io.github.posenc.v1}, whose .proto
 * files are the specification: a missing field gets the contract's default, or its "required"
 * error. Tensors are separate arguments of type {@link TensorView}: they are sent from the caller's
 * memory, and results are written directly into the caller's memory, which may be the input's own.
 * Tensors inside of messages (trained tables, position ids) are copied.
 *
 * <p>Threads: one client serves any number of threads, virtual ones, too. Calls block, and run
 * their callbacks in the caller's thread; {@link #async} makes them in another. An interrupt ends a
 * call as CANCELLED.
 *
 * <p>Errors: every call may throw {@link PosencException}, and no other exception, even if an
 * argument is null that must not be.
 */
public final class Posenc implements AutoCloseable {
  /** The version of this client. */
  public static final String VERSION = "0.2.0";

  /** Called after every answer while a tensor moves through a stream. */
  public interface Progress {
    void moved(long bytesDone, long bytes);
  }

  private final Calls calls;
  private final CallOptions options;

  Posenc(Calls calls) {
    this(calls, CallOptions.DEFAULT);
  }

  private Posenc(Calls calls, CallOptions options) {
    this.calls = calls;
    this.options = options;
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

  /** Makes a client from POSENC_SERVER (default localhost:50051), POSENC_TLS_CA, POSENC_TOKEN... */
  public static Posenc fromEnv() {
    return PosencBuilder.of(System.getenv()).connect();
  }

  /**
   * Returns a client over the same connections whose calls must end within this time. This also
   * bounds streams, which may otherwise continue as long as they make progress.
   */
  public Posenc withTimeout(Duration timeout) {
    return with(Calls.TIMEOUT, timeout);
  }

  /**
   * Returns a client over the same connections whose calls have this request id in the server's
   * log. By default each call gets a random id.
   */
  public Posenc withRequestId(String requestId) {
    return with(Calls.REQUEST_ID, Arguments.visible("request_id", requestId));
  }

  /** Returns a client over the same connections whose calls send this W3C traceparent. */
  public Posenc withTraceparent(String traceparent) {
    return with(Calls.TRACEPARENT, Arguments.visible("traceparent", traceparent));
  }

  /** Returns a client over the same connections that reports the finished bytes of a stream. */
  public Posenc withProgress(Progress progress) {
    return with(Calls.PROGRESS, progress);
  }

  private <T> Posenc with(CallOptions.Key<T> key, T value) {
    return new Posenc(calls, options.withOption(key, value));
  }

  /**
   * Ends the connections, which the clients made by {@code with...} share. Running calls end as
   * UNAVAILABLE, later ones as CANCELLED.
   */
  @Override
  public void close() {
    calls.close();
  }

  /**
   * Makes calls in another thread: {@code posenc.async(p -> p.applyRope(request, q, k))}. To cancel
   * the future ends the call; until it has ended, its tensors are in use.
   */
  public <T> CompletableFuture<T> async(Function<Posenc, T> call) {
    CompletableFuture<T> result = new CompletableFuture<>();
    Future<?> running = calls.threads.submit(() -> {
      try {
        result.complete(call.apply(this));
      } catch (Throwable e) {
        result.completeExceptionally(e);
      }
    });
    result.whenComplete((value, error) -> {
      if (result.isCancelled()) running.cancel(true);
    });
    return result;
  }

  /** Returns the server's version, instruction set, limits and presets. */
  public GetServerInfoResponse getServerInfo() {
    return calls.serverInfo(Calls.begin(options));
  }

  /** Makes memory of this many bytes that a server on this host maps; see {@link SharedRegion}. */
  public SharedRegion sharedRegion(long bytes) {
    return sharedRegion(bytes, null, null);
  }

  /**
   * Makes memory that a server on this host maps, in a file that the caller names.
   *
   * @param name the file's name; null: the server's prefix and a random part
   * @param directory this process's path of the server's directory of shared memory; null: the same
   *     path
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

  /** Returns the encoding of a specification or a configuration; see {@link RopeSources}. */
  public Rope rope(Map<String, ?> specOrConfig) {
    return rope(RopeSources.of(specOrConfig));
  }

  /** Returns the encoding of a source, resolved once. A specification is used without a call. */
  public Rope rope(RopeSource source) {
    ResolveRopeResponse resolved = given("rope", source).hasSpec()
        ? ResolveRopeResponse.newBuilder().setSpec(source.getSpec()).build()
        : resolveRope(ResolveRopeRequest.newBuilder().setRope(source).build());
    return Rope.of(this, source, resolved);
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

  /**
   * Builds rows of a table. If the table is over a limit, it is requested again as a stream.
   *
   * @param out memory for cos and sin, or for the single table; null: new memory. The server itself
   *     writes to a tensor of a {@link SharedRegion} if the request shows the table's size.
   *     Requests with a preset or a configuration do not show it, and their tables come as bytes:
   *     resolve the encoding first, with {@link #rope}
   */
  public Table buildTable(BuildTableRequest request, TensorView... out) {
    return new Tables(calls, options).whole(request, out == null ? new TensorView[0] : out);
  }

  /** Builds a table of any length, and passes on the rows of each message, in order. */
  public void buildTableStream(BuildTableStreamRequest request, Consumer<Table> rows) {
    given("rows", rows);
    new Tables(calls, options).stream(request, answer -> rows.accept(new Table(answer)));
  }

  /** Builds an attention bias tile by tile, in row-major order of the matrix. */
  public void buildBias(BuildBiasRequest request, Consumer<BiasTile> tiles) {
    given("tiles", tiles);
    new Tables(calls, options).bias(request, answer -> tiles.accept(new BiasTile(answer)));
  }

  /** Builds an attention bias as one tensor, [heads, query_length, key_length]. */
  public TensorView buildBias(BuildBiasRequest request) {
    return new Tables(calls, options).wholeBias(request);
  }

  /** Rotates q, k or both (the other is null) into new memory. */
  public Rotated applyRope(ApplyRopeRequest request, TensorView q, TensorView k) {
    return applyRope(request, q, k, null, null);
  }

  /**
   * Rotates q, k or both, [B, S, H, D] in the order of the request's layout or [T, H, D].
   *
   * @param request all other arguments
   * @param qOut memory for the rotated q, which may be q itself; null: new memory
   * @param kOut the same for k
   */
  public Rotated applyRope(
      ApplyRopeRequest request, TensorView q, TensorView k, TensorView qOut, TensorView kOut) {
    TensorCall<?> call = tensors("ApplyRope", request, ApplyRopeResponse.getDefaultInstance())
                             .rotated("q", q, qOut)
                             .rotated("k", k, kOut);
    call.run();
    return new Rotated(call.result("q"), call.result("k"));
  }

  /** Moves rotated keys to other positions, or to another encoding, into new memory. */
  public TensorView reposition(RepositionRequest request, TensorView k) {
    return reposition(request, k, null);
  }

  /** Moves rotated keys into {@code out}, which may be k itself. */
  public TensorView reposition(RepositionRequest request, TensorView k, TensorView out) {
    return tensors("Reposition", request, RepositionResponse.getDefaultInstance())
        .rotated("k", k, out)
        .runFor("k");
  }

  /** Combines embeddings x, [B, S, dim], [S, dim] or [T, dim], with an absolute encoding. */
  public TensorView addEncoding(AddEncodingRequest request, TensorView x) {
    return addEncoding(request, x, null);
  }

  /** Adds encodings into {@code out}, which may be x itself unless they are concatenated. */
  public TensorView addEncoding(AddEncodingRequest request, TensorView x, TensorView out) {
    // Only the server knows the size of a concatenation, so it comes as bytes.
    boolean known = x != null
        && given("request", request).getCombination() != Combination.COMBINATION_CONCATENATE;
    return tensors("AddEncoding", request, AddEncodingResponse.getDefaultInstance())
        .input("x", x)
        .result("x", known ? x.dtype() : null, known ? x.shape() : null, out)
        .runFor("x");
  }

  /** Computes attention scores: q [B, H, Sq, D] and k [B, H, Sk, D] give [B, H, Sq, Sk]. */
  public TensorView scoreRelative(ScoreRelativeRequest request, TensorView q, TensorView k) {
    return scoreRelative(request, q, k, null);
  }

  /** Computes attention scores into {@code out}. */
  public TensorView scoreRelative(
      ScoreRelativeRequest request, TensorView q, TensorView k, TensorView out) {
    boolean known = q != null && k != null && q.shape().length == 4 && k.shape().length == 4;
    Dtype dtype = given("request", request).getDtype();
    if (dtype == Dtype.DTYPE_UNSPECIFIED && q != null) { // the server's default
      dtype = q.dtype() == Dtype.DTYPE_FLOAT64 ? q.dtype() : Dtype.DTYPE_FLOAT32;
    }
    long[] shape = known ? q.shape() : null;
    if (known) shape[3] = k.shape()[2];
    return tensors("ScoreRelative", request, ScoreRelativeResponse.getDefaultInstance())
        .input("q", q)
        .input("k", k)
        .result("scores", known ? dtype : null, shape, out)
        .runFor("scores");
  }

  /** Reorders the rows of a projection's weight or bias, [H * D, ...], for the other pairing. */
  public TensorView convertPairing(ConvertPairingRequest request, TensorView weight) {
    return convertPairing(request, weight, null);
  }

  /** Reorders the rows of a weight or bias into {@code out}, which may be the weight itself. */
  public TensorView convertPairing(
      ConvertPairingRequest request, TensorView weight, TensorView out) {
    boolean known = weight != null;
    return tensors("ConvertPairing", request, ConvertPairingResponse.getDefaultInstance())
        .input("weight", weight)
        .result("weight", known ? weight.dtype() : null, known ? weight.shape() : null, out)
        .runFor("weight");
  }

  private <M extends Message> TensorCall<M> tensors(String name, Message request, M response) {
    return new TensorCall<>(calls, options, name, request, response);
  }

  /** Makes any unary call, by its name in the contract, with tensors only in the request. */
  <M extends Message> M call(String name, Message request, M response) {
    return calls.unary(Calls.begin(options), name, given("request", request), response);
  }
}
