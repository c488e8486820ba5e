package io.github.posenc;

import static io.github.posenc.Arguments.given;

import com.google.protobuf.Message;
import io.github.posenc.v1.*;
import io.grpc.CallOptions;
import io.grpc.Context;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import java.util.function.Function;

/**
 * A client of a posenc server, which computes positional encodings. README.md begins with an
 * example.
 *
 * <p>Settings of a call are the generated messages of {@code io.github.posenc.v1}. Their .proto
 * files are the specification. A missing field has the default of the contract, or is an error if
 * the field is required. Tensors are separate arguments of type {@link TensorView}. They are sent
 * from the caller's memory. Results are written directly to {@code out}, which may be the input
 * itself, or to new memory. Tensors inside of messages are copied.
 *
 * <p>Any number of threads, also virtual threads, may use a client. Calls block, and run their
 * callbacks in the caller's thread. An interrupt of the thread ends a call with CANCELLED. A failed
 * call throws {@link PosencException}. An argument that must not be null also causes this
 * exception.
 */
public final class Posenc implements AutoCloseable {
  /** The version of this client. */
  public static final String VERSION = "0.2.0";

  /** Gets the number of finished bytes after every answer of a stream. */
  public interface Progress {
    void moved(long bytesDone, long bytes);
  }

  private final Calls calls;
  private final CallOptions options;

  Posenc(Calls calls, CallOptions options) {
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

  /**
   * Starts posencd, and makes a client of it; {@link #close} ends the server, too.
   *
   * <p>posencd is the file that the environment variable POSENCD names, or else the first posencd
   * on PATH. The server does not get the variables POSENC_..., which are meant for other servers
   * and clients. The server listens on a unix socket in a folder of /dev/shm that only this user
   * may enter, and shares memory there ({@link #sharedRegion}).
   *
   * <p>Each call starts another server. The server also ends when this process is killed: it reads
   * a pipe that only this process has open, and the kernel closes the pipe when this process ends.
   * Control-C in a terminal ends this process and the server.
   *
   * @param flags additional flags of posencd, such as "--threads=1"
   * @throws PosencException UNAVAILABLE if the server cannot be started; the text says what to do
   */
  public static Posenc local(String... flags) {
    return of(new LocalServer(System.getenv(), LocalServer.SHARED_MEMORY, flags));
  }

  /** Makes the client of a server. The client closes the server. */
  static Posenc of(LocalServer server) {
    PosencBuilder builder = builder(server.target());
    builder.local = server;
    return builder.connect();
  }

  /** Returns a builder, which sets the options of a client. */
  public static PosencBuilder builder(String target) {
    return new PosencBuilder(target);
  }

  /** Makes a client from the environment variables POSENC_...; README.md lists them. */
  public static Posenc fromEnv() {
    return PosencBuilder.of(System.getenv()).connect();
  }

  /**
   * Returns a client over the same connection whose calls must end within this time. The timeout
   * also limits streams. Without this timeout, a stream may continue while it makes progress.
   */
  public Posenc withTimeout(Duration timeout) {
    return with(Calls.TIMEOUT, timeout);
  }

  /**
   * Returns a client over the same connection whose calls have this request id in the server's log.
   * By default each call gets a random id.
   */
  public Posenc withRequestId(String requestId) {
    return with(Calls.REQUEST_ID, Arguments.visible("request_id", requestId));
  }

  /** Returns a client over the same connection whose calls send this W3C traceparent. */
  public Posenc withTraceparent(String traceparent) {
    return with(Calls.TRACEPARENT, Arguments.visible("traceparent", traceparent));
  }

  /** Returns a client over the same connection that reports the finished bytes of a stream. */
  public Posenc withProgress(Progress progress) {
    return with(Calls.PROGRESS, progress);
  }

  private <T> Posenc with(CallOptions.Key<T> key, T value) {
    return new Posenc(calls, options.withOption(key, value));
  }

  /**
   * Ends the connection. Clients that were made by {@code with...} share this connection. Running
   * calls fail with UNAVAILABLE, and later calls fail with CANCELLED.
   */
  @Override
  public void close() {
    calls.close();
  }

  /**
   * Makes a call in a thread of its own: {@code posenc.async(p -> p.applyRope(request, q, k))}.
   * Cancelling the future ends the call. The call uses its tensors until it has ended.
   */
  public <T> CompletableFuture<T> async(Function<Posenc, T> call) {
    Context.CancellableContext context = Context.current().withCancellation();
    CompletableFuture<T> result = CompletableFuture.supplyAsync(
        () -> call.apply(this), context.fixedContextExecutor(Calls.THREADS));
    result.whenComplete((value, error) -> context.cancel(error));
    return result;
  }

  /** Returns the server's version, instruction set, limits and presets. */
  public GetServerInfoResponse getServerInfo() {
    return calls.serverInfo(Calls.begin(options));
  }

  /** Makes memory of this size that a server on this host also maps. See {@link SharedRegion}. */
  public SharedRegion sharedRegion(long bytes) {
    return sharedRegion(bytes, null, null);
  }

  /**
   * Makes memory that a server on this host also maps. The caller chooses the file's name and
   * directory.
   *
   * @param name the file's name; null: the server's prefix and a random part
   * @param directory the path of the server's directory of shared memory in this process; null: the
   *     server's own path
   */
  public SharedRegion sharedRegion(long bytes, String name, Path directory) {
    return new SharedRegion(bytes, getServerInfo(), name, directory);
  }

  /** Converts a preset, a config.json or a specification to exact frequencies. */
  public ResolveRopeResponse resolveRope(ResolveRopeRequest request) {
    return call("ResolveRope", request, ResolveRopeResponse.getDefaultInstance());
  }

  /** Returns the encoding of a model from the path of its config.json or params.json. */
  public ResolvedRope rope(Path config) {
    try {
      String json = Files.readString(given("rope", config));
      return rope(RopeSource.newBuilder().setConfigJson(json).build());
    } catch (IOException e) {
      throw PosencException.invalid("rope", config + " cannot be read: " + e);
    }
  }

  /** Returns the encoding of a preset or, if the text begins with a brace, of a config.json. */
  public ResolvedRope rope(String presetOrJson) {
    RopeSource.Builder source = RopeSource.newBuilder();
    boolean json = given("rope", presetOrJson).stripLeading().startsWith("{");
    if (json) return rope(source.setConfigJson(presetOrJson).build());
    return rope(source.setPreset(presetOrJson).build());
  }

  /** Returns the encoding of a specification. */
  public ResolvedRope rope(RopeSpec spec) {
    return rope(RopeSource.newBuilder().setSpec(given("rope", spec)).build());
  }

  /** Resolves a source once. A source with a specification is used unchanged, without a call. */
  public ResolvedRope rope(RopeSource source) {
    ResolveRopeResponse resolved = given("rope", source).hasSpec()
        ? ResolveRopeResponse.newBuilder()
              .setSpec(source.getSpec())
              .setHeadDim(source.getHeadDim())
              .build()
        : resolveRope(ResolveRopeRequest.newBuilder().setRope(source).build());
    RopeSource.Builder own = RopeSource.newBuilder();
    own.setSpec(resolved.getSpec()).setHeadDim(resolved.getHeadDim());
    if (source.hasSequenceLength()) own.setSequenceLength(source.getSequenceLength());
    return new ResolvedRope(this, resolved, own.build(), Saturation.SATURATION_UNSPECIFIED,
        BlockFormat.BLOCK_FORMAT_UNSPECIFIED);
  }

  /** Returns wavelengths, long-term decay and similarity between positions. */
  public AnalyzeRopeResponse analyzeRope(AnalyzeRopeRequest request) {
    return call("AnalyzeRope", request, AnalyzeRopeResponse.getDefaultInstance());
  }

  /**
   * Returns which descriptions of a checkpoint disagree, and which readers read a description
   * differently. Also returns the distance from which they disagree, and the key that fixes the
   * disagreement.
   */
  public DiagnoseRopeResponse diagnoseRope(DiagnoseRopeRequest request) {
    return call("DiagnoseRope", request, DiagnoseRopeResponse.getDefaultInstance());
  }

  /** Builds position ids. Other calls take the answer's {@code positions} unchanged. */
  public BuildPositionsResponse buildPositions(BuildPositionsRequest request) {
    return call("BuildPositions", request, BuildPositionsResponse.getDefaultInstance());
  }

  /**
   * Builds rows of a table. If the table is over a limit, it is requested again as a stream.
   *
   * @param out memory for cos and sin, or for the single table; null: new memory. The server itself
   *     writes to tensors of a {@link SharedRegion}
   */
  public Table buildTable(BuildTableRequest request, TensorView... out) {
    return new TableCall(calls, Calls.begin(options), given("request", request)).run(out);
  }

  /** Builds a table of any length. Calls {@code rows} with the rows of each message, in order. */
  public void buildTableStream(BuildTableStreamRequest request, Consumer<Table> rows) {
    given("rows", rows);
    calls.run(Calls.begin(options), "BuildTableStream", request,
        BuildTableStreamResponse.getDefaultInstance(), answer -> rows.accept(new Table(answer)));
  }

  /** Builds an attention bias. Calls {@code tiles} with each tile, in row-major order. */
  public void buildBias(BuildBiasRequest request, Consumer<BiasTile> tiles) {
    given("tiles", tiles);
    bias(request, answer -> tiles.accept(new BiasTile(answer)));
  }

  /** Builds an attention bias as one tensor, [heads, query_length, key_length]. */
  public TensorView buildBias(BuildBiasRequest request) {
    Result bias = new Result("tile", null);
    bias(request, answer -> {
      Tensor tile = answer.getTile();
      long row = answer.getQueryStart() - request.getQueryStart();
      long column = answer.getKeyStart() - request.getKeyStart();
      bias.put(tile, answer.getWholeShapeList(), 1, 2, row, column);
    });
    return bias.end();
  }

  private void bias(BuildBiasRequest request, Consumer<BuildBiasResponse> take) {
    BuildBiasResponse answer = BuildBiasResponse.getDefaultInstance();
    calls.run(Calls.begin(options), "BuildBias", request, answer, take);
  }

  /**
   * Rotates q, k or both. Pass null for a tensor that is not given. Shapes are [B, S, H, D] in the
   * order of the request's layout, or [T, H, D].
   *
   * @param request all other arguments
   * @param out memory for the results of q and k, which may be q and k themselves; null: new memory
   */
  public Rotated applyRope(
      ApplyRopeRequest request, TensorView q, TensorView k, TensorView... out) {
    TensorCall<?> call = tensors("ApplyRope", request, ApplyRopeResponse.getDefaultInstance(), out)
                             .rotated("q", q)
                             .rotated("k", k);
    call.run();
    return new Rotated(call.get("q"), call.get("k"));
  }

  /**
   * Moves rotated keys to other positions, or to another encoding.
   *
   * @param out memory for the result, which may be k itself
   */
  public TensorView reposition(RepositionRequest request, TensorView k, TensorView... out) {
    return tensors("Reposition", request, RepositionResponse.getDefaultInstance(), out)
        .rotated("k", k)
        .runFor("k");
  }

  /**
   * Combines embeddings x, [B, S, dim], [S, dim] or [T, dim], with an absolute encoding.
   *
   * @param out memory for the result, which may be x itself, except for a concatenation
   */
  public TensorView addEncoding(AddEncodingRequest request, TensorView x, TensorView... out) {
    TensorCall<?> call =
        tensors("AddEncoding", request, AddEncodingResponse.getDefaultInstance(), out);
    // Only the server knows the size of a concatenation, so the result comes as bytes.
    boolean known = request.getCombination() != Combination.COMBINATION_CONCATENATE;
    return (known ? call.changed("x", x) : call.input("x", x)).runFor("x");
  }

  /**
   * Computes attention scores [B, H, Sq, Sk] of q [B, H, Sq, D] and k [B, H, Sk, D]. If the request
   * has no dtype, the scores are float64 for float64 q, otherwise float32.
   *
   * @param out memory for the scores
   */
  public TensorView scoreRelative(
      ScoreRelativeRequest request, TensorView q, TensorView k, TensorView... out) {
    TensorCall<?> call =
        tensors("ScoreRelative", request, ScoreRelativeResponse.getDefaultInstance(), out)
            .input("q", q)
            .input("k", k);
    // The server refuses other shapes, and its error describes the fault.
    if (q != null && k != null && q.shape().length == 4 && k.shape().length == 4) {
      boolean wide = q.dtype() == Dtype.DTYPE_FLOAT64;
      Dtype own = wide ? Dtype.DTYPE_FLOAT64 : Dtype.DTYPE_FLOAT32;
      Dtype dtype = request.getDtype() == Dtype.DTYPE_UNSPECIFIED ? own : request.getDtype();
      long[] s = q.shape();
      call.result("scores").expect(dtype, List.of(s[0], s[1], s[2], k.shape()[2]));
    }
    return call.runFor("scores");
  }

  /**
   * Reorders the rows of a projection's weight or bias, [H * D, ...], so that a checkpoint for one
   * pairing works with the other.
   *
   * @param out memory for the result, which may be the weight itself, except in shared memory
   */
  public TensorView convertPairing(
      ConvertPairingRequest request, TensorView weight, TensorView... out) {
    return tensors("ConvertPairing", request, ConvertPairingResponse.getDefaultInstance(), out)
        .changed("weight", weight)
        .runFor("weight");
  }

  private <M extends Message> TensorCall<M> tensors(
      String name, Message request, M response, TensorView[] out) {
    return new TensorCall<>(calls, Calls.begin(options), name, request, response, out);
  }

  /** Makes any unary call by its name in the contract. Its tensors are fields of the request. */
  <M extends Message> M call(String name, Message request, M response) {
    return calls.run(Calls.begin(options), name, request, response, null);
  }
}
