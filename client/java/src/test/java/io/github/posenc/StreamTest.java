package io.github.posenc;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import com.google.protobuf.Message;
import io.github.posenc.v1.ApplyRopeRequest;
import io.github.posenc.v1.ApplyRopeResponse;
import io.github.posenc.v1.ApplyRopeStreamRequest;
import io.github.posenc.v1.ApplyRopeStreamResponse;
import io.github.posenc.v1.Dtype;
import io.github.posenc.v1.Layout;
import io.github.posenc.v1.Movement;
import io.github.posenc.v1.Positions;
import io.github.posenc.v1.RepositionRequest;
import io.github.posenc.v1.RepositionResponse;
import io.github.posenc.v1.RepositionStreamRequest;
import io.github.posenc.v1.RepositionStreamResponse;
import io.github.posenc.v1.Saturation;
import io.github.posenc.v1.Tensor;
import io.grpc.CallOptions;
import io.grpc.ClientCall;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.InsecureServerCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.ServerServiceDefinition;
import io.grpc.Status;
import io.grpc.protobuf.ProtoUtils;
import io.grpc.stub.ServerCalls;
import io.grpc.stub.StreamObserver;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BiFunction;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.stream.Collectors;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/**
 * Streams to the real server, and to a fake server. The fake server makes unary calls to the real
 * server, and cuts the answers at random places.
 */
final class StreamTest extends WithServer {
  private static final String SERVICE = "posenc.v1.PositionalEncodingService/";

  private static io.grpc.Server cutting;
  private static Random random;
  private static int extra; // number of bytes too many in the next answers; negative: too few
  private static final AtomicInteger messages = new AtomicInteger(); // their number in the last stream

  @BeforeAll
  static void startCutting() throws Exception {
    cutting =
        Grpc.newServerBuilderForPort(0, InsecureServerCredentials.create())
            .addService(
                ServerServiceDefinition.builder("posenc.v1.PositionalEncodingService")
                    .addMethod(
                        method("ApplyRopeStream", ApplyRopeStreamRequest.getDefaultInstance(),
                            ApplyRopeStreamResponse.getDefaultInstance()),
                        ServerCalls.asyncBidiStreamingCall(answer
                            -> new Joined<>(answer, ApplyRopeStreamRequest::hasCall,
                                ApplyRopeStreamRequest::getCall, ApplyRopeStreamRequest::getData,
                                StreamTest::apply,
                                data
                                -> ApplyRopeStreamResponse.newBuilder().setData(data).build())))
                    .addMethod(
                        method("RepositionStream", RepositionStreamRequest.getDefaultInstance(),
                            RepositionStreamResponse.getDefaultInstance()),
                        ServerCalls.asyncBidiStreamingCall(answer
                            -> new Joined<>(answer, RepositionStreamRequest::hasCall,
                                RepositionStreamRequest::getCall, RepositionStreamRequest::getData,
                                StreamTest::reposition,
                                data
                                -> RepositionStreamResponse.newBuilder().setData(data).build())))
                    .build())
            .build()
            .start();
  }

  @AfterAll
  static void stopCutting() {
    cutting.shutdownNow();
  }

  private static <A extends Message, B extends Message> MethodDescriptor<A, B> method(
      String name, A request, B response) {
    return MethodDescriptor
        .newBuilder(ProtoUtils.marshaller(request), ProtoUtils.marshaller(response))
        .setType(MethodDescriptor.MethodType.BIDI_STREAMING)
        .setFullMethodName(SERVICE + name)
        .build();
  }

  static <A> StreamObserver<A> ignoring() {
    return new StreamObserver<>() {
      @Override
      public void onNext(A message) {}

      @Override
      public void onError(Throwable error) {}

      @Override
      public void onCompleted() {}
    };
  }

  /** Joins the bytes of a stream's messages, and answers after the last message. */
  private static final class Joined<A, C, B> implements StreamObserver<A> {
    private final StreamObserver<B> answer;
    private final Predicate<A> describes;
    private final Function<A, C> description;
    private final Function<A, ByteString> bytes;
    private final BiFunction<C, ByteString, ByteString> rotate;
    private final Function<ByteString, B> response;
    private C call;
    private ByteString data = ByteString.EMPTY;

    Joined(StreamObserver<B> answer, Predicate<A> describes, Function<A, C> description,
        Function<A, ByteString> bytes, BiFunction<C, ByteString, ByteString> rotate,
        Function<ByteString, B> response) {
      this.answer = answer;
      this.describes = describes;
      this.description = description;
      this.bytes = bytes;
      this.rotate = rotate;
      this.response = response;
      messages.set(0);
    }

    @Override
    public void onNext(A message) {
      // Only the first message may describe the call.
      assertEquals(messages.getAndIncrement() == 0, describes.test(message));
      if (call == null) call = description.apply(message);
      data = data.concat(bytes.apply(message));
    }

    @Override
    public void onError(Throwable error) {}

    @Override
    public void onCompleted() {
      ByteString all = rotate.apply(call, data);
      if (extra < 0) all = all.substring(0, all.size() + extra);
      if (extra > 0) all = all.concat(all.substring(0, extra));
      for (int at = 0; at < all.size();) {
        int size = Math.min(8 * (1 + random.nextInt(500)), all.size() - at);
        answer.onNext(response.apply(all.substring(at, at + size)));
        at += size;
      }
      answer.onCompleted();
    }
  }

  private static ByteString apply(ApplyRopeRequest call, ByteString data) {
    ApplyRopeRequest.Builder whole = call.toBuilder();
    Source from = new Source(data);
    if (call.getPositions().hasIds()) from.fill(whole.getPositionsBuilder().getIdsBuilder());
    if (call.hasQ()) from.fill(whole.getQBuilder());
    if (call.hasK()) from.fill(whole.getKBuilder());
    assertEquals(0, from.rest.size());
    ApplyRopeResponse answer =
        posenc.call("ApplyRope", whole.build(), ApplyRopeResponse.getDefaultInstance());
    return answer.getQ().getData().concat(answer.getK().getData());
  }

  private static ByteString reposition(RepositionRequest call, ByteString data) {
    RepositionRequest.Builder whole = call.toBuilder();
    Source from = new Source(data);
    Movement.Builder movement = whole.getMovementBuilder();
    if (movement.getOldPositions().hasIds())
      from.fill(movement.getOldPositionsBuilder().getIdsBuilder());
    if (movement.getNewPositions().hasIds())
      from.fill(movement.getNewPositionsBuilder().getIdsBuilder());
    if (movement.hasShifts()) from.fill(movement.getShiftsBuilder());
    from.fill(whole.getKBuilder());
    assertEquals(0, from.rest.size());
    return posenc.call("Reposition", whole.build(), RepositionResponse.getDefaultInstance())
        .getK()
        .getData();
  }

  /** The bytes of a stream. fill() gives the next bytes to a tensor that has no elements yet. */
  private static final class Source {
    ByteString rest;

    Source(ByteString data) {
      rest = data;
    }

    void fill(Tensor.Builder tensor) {
      if (!tensor.getData().isEmpty() || tensor.getValuesCount() > 0) return;
      long[] shape = tensor.getShapeList().stream().mapToLong(n -> n).toArray();
      int size = (int) TensorView.bytesOf(tensor.getDtype(), shape);
      tensor.setData(rest.substring(0, size));
      rest = rest.substring(size);
    }
  }

  private static TensorView filled(Dtype dtype, long... shape) {
    TensorView tensor = TensorView.allocate(dtype, shape);
    double[] values = random.doubles(tensor.bytes() / Elements.of(dtype).bytes, -2, 2).toArray();
    return Numbers.tensor(dtype, values, shape);
  }

  private static String cutting() {
    return "127.0.0.1:" + cutting.getPort();
  }

  private static Posenc client(String target, int chunkBytes) {
    PosencBuilder builder = Posenc.builder(target).streamAboveBytes(0);
    builder.chunkBytes = chunkBytes;
    return builder.connect();
  }

  private static void assertSame(TensorView expected, TensorView actual, String what) {
    assertEquals(expected.toMessage(), actual.toMessage(), what);
  }

  @Test
  void aStreamCutAnywhereGivesTheBytesOfOneMessage() {
    for (int seed = 0; seed < 40; seed++) {
      random = new Random(seed);
      Dtype dtype = new Dtype[] {Dtype.DTYPE_FLOAT32, Dtype.DTYPE_BFLOAT16, Dtype.DTYPE_FLOAT64,
          Dtype.DTYPE_FLOAT8_E4M3FN}[seed % 4];
      int tokens = random.nextInt(40);
      TensorView q = filled(dtype, 2, tokens, 3, 16);
      TensorView k = filled(dtype, 2, tokens, 1, 16);
      Positions[] positions = {
          TokenPositions.startAt(7), TokenPositions.ids(random.longs(tokens, 0, 99).toArray())};
      ApplyRopeRequest request = ApplyRopeRequest.newBuilder()
                                     .setRope(Sources.HALF_SPLIT)
                                     .setLayout(Layout.LAYOUT_BSHD)
                                     .setSaturation(Saturation.SATURATION_FINITE)
                                     .setPositions(positions[random.nextInt(2)])
                                     .build();
      RepositionRequest move = RepositionRequest.newBuilder()
                                   .setOldRope(Sources.HALF_SPLIT)
                                   .setLayout(Layout.LAYOUT_BSHD)
                                   .setSaturation(Saturation.SATURATION_FINITE)
                                   .setMovement(Movement.newBuilder()
                                                    .setOldPositions(positions[1])
                                                    .setNewPositions(positions[random.nextInt(2)]))
                                   .build();
      Rotated whole = posenc.applyRope(request, q, k);
      TensorView moved = posenc.reposition(move, k);
      for (String target : List.of(cutting(), server.address)) {
        String what = "seed " + seed + " " + target;
        TensorView qCopy = TensorView.of(q.toMessage());
        TensorView kCopy = TensorView.of(k.toMessage());
        try (Posenc streaming = client(target, 8 * (1 + random.nextInt(300)))) {
          Rotated cut = streaming.applyRope(request, q, k);
          assertSame(whole.q(), cut.q(), what);
          assertSame(whole.k(), cut.k(), what);
          assertSame(moved, streaming.reposition(move, k), what);
          streaming.applyRope(request, qCopy, kCopy, qCopy, kCopy);
          assertSame(whole.q(), qCopy, what + " in place");
          assertSame(whole.k(), kCopy, what + " in place");
        }
      }
    }
  }

  @Test
  void anAnswerThatDoesNotFitIsAnError() {
    random = new Random(1);
    TensorView q = filled(Dtype.DTYPE_FLOAT32, 1, 300, 2, 16);
    ApplyRopeRequest request = ApplyRopeRequest.newBuilder()
                                   .setRope(Sources.HALF_SPLIT)
                                   .setLayout(Layout.LAYOUT_BSHD)
                                   .setPositions(TokenPositions.startAt(0))
                                   .build();
    try (Posenc streaming = client(cutting(), 4096)) {
      for (int bytes : new int[] {4, -4, 38400, -38400}) {
        extra = bytes;
        PosencException e =
            assertThrows(PosencException.class, () -> streaming.applyRope(request, q, null));
        assertEquals("INTERNAL", e.code(), e.getMessage());
        assertTrue(e.getMessage().contains("does not fit"), e.getMessage());
        assertEquals(32, e.requestId().length());
      }
    } finally {
      extra = 0;
    }
  }

  @Test
  void aCallbackThatThrowsEndsTheStreamWithItsException() {
    random = new Random(2);
    float[] values = new float[9600];
    ApplyRopeRequest request = ApplyRopeRequest.newBuilder()
                                   .setRope(Sources.HALF_SPLIT)
                                   .setLayout(Layout.LAYOUT_BSHD)
                                   .setPositions(TokenPositions.startAt(0))
                                   .build();
    try (Posenc streaming = client(cutting(), 4096)) {
      IllegalStateException thrown = new IllegalStateException("enough");
      Posenc watched = streaming.withProgress((done, all) -> { throw thrown; });
      TensorView q = TensorView.of(values, 1, 300, 2, 16);
      assertArrayEquals(new Object[] {thrown},
          new Object[] {assertThrows(
              IllegalStateException.class, () -> watched.applyRope(request, q, null))});
    }
  }

  private static ApplyRopeStreamRequest message(ApplyRopeRequest call, int bytes) {
    ApplyRopeStreamRequest.Builder message = ApplyRopeStreamRequest.newBuilder();
    if (call != null) message.setCall(call);
    return message.setData(ByteString.copyFrom(new byte[bytes])).build();
  }

  /** Sends a stream to the real server. Returns its error, or null. */
  private static PosencException errorOf(List<ApplyRopeStreamRequest> messages) {
    Calls calls = new Calls(Posenc.builder(server.address));
    List<Outgoing> all =
        messages.stream().map(m -> new Outgoing().message(m)).collect(Collectors.toList());
    try {
      calls.run(CallOptions.DEFAULT, "ApplyRopeStream", MethodDescriptor.MethodType.BIDI_STREAMING,
          false, all, ApplyRopeStreamResponse.getDefaultInstance(), answer -> {});
      return null;
    } catch (PosencException e) {
      return e;
    } finally {
      calls.close();
    }
  }

  private static ApplyRopeRequest described(long... shape) {
    return ApplyRopeRequest.newBuilder()
        .setRope(Sources.HALF_SPLIT)
        .setLayout(Layout.LAYOUT_BSHD)
        .setPositions(TokenPositions.startAt(0))
        .setQ(TensorView.allocate(Dtype.DTYPE_FLOAT32, shape).header())
        .build();
  }

  /** Starts a stream to the real server, and stalls until its deadline. Returns its status. */
  private static Status statusOfStalled(boolean reads, int messages) throws Exception {
    ManagedChannel channel =
        Grpc.newChannelBuilder(server.address, InsecureChannelCredentials.create()).build();
    try {
      ClientCall<ApplyRopeStreamRequest, ApplyRopeStreamResponse> call =
          channel.newCall(method("ApplyRopeStream", ApplyRopeStreamRequest.getDefaultInstance(),
                              ApplyRopeStreamResponse.getDefaultInstance()),
              CallOptions.DEFAULT.withDeadlineAfter(Duration.ofMillis(500)));
      CompletableFuture<Status> closed = new CompletableFuture<>();
      call.start(new ClientCall.Listener<>() {
        @Override
        public void onClose(Status status, Metadata trailers) {
          closed.complete(status);
        }
      }, new Metadata());
      if (reads) call.request(Integer.MAX_VALUE);
      call.sendMessage(message(described(1, 4 << 10, 8, 128), 0)); // 16 MiB
      for (int i = 0; i < messages; i++) call.sendMessage(message(null, 1 << 20));
      return closed.get(20, TimeUnit.SECONDS);
    } finally {
      channel.shutdownNow();
    }
  }

  @Test
  void aClientThatNeverReadsOrStopsSendingEndsAtItsDeadlineAndNothingIsKept() throws Exception {
    assertEquals(Status.Code.DEADLINE_EXCEEDED, statusOfStalled(false, 16).getCode());
    assertEquals(Status.Code.DEADLINE_EXCEEDED, statusOfStalled(true, 3).getCode());
    server.awaitNothingClaimed();
  }

  @Test
  void aStreamWhoseBytesAreNotThoseOfItsDescriptionIsNamedAndNothingIsKept() throws Exception {
    ApplyRopeRequest call = described(1, 2, 1, 4);
    ApplyRopeRequest filled =
        call.toBuilder()
            .setQ(call.getQ().toBuilder().setData(ByteString.copyFrom(new byte[32])))
            .build();
    Map<String, List<ApplyRopeStreamRequest>> streams = new LinkedHashMap<>();
    streams.put("TENSOR_SIZE_MISMATCH data short", List.of(message(call, 0), message(null, 28)));
    streams.put("TENSOR_SIZE_MISMATCH data long", List.of(message(call, 0), message(null, 36)));
    streams.put(
        "FIELD_INVALID data", List.of(message(call, 0), message(null, 3), message(null, 29)));
    streams.put("FIELD_INVALID call", List.of(message(call, 16), message(call, 16)));
    streams.put("FIELD_REQUIRED call", List.of(message(null, 32)));
    streams.put("FIELD_INVALID q.data", List.of(message(filled, 0)));
    streams.put(
        "FIELD_REQUIRED layout", List.of(message(call.toBuilder().clearLayout().build(), 32)));
    streams.forEach((wanted, messages) -> {
      PosencException e = errorOf(messages);
      assertEquals("INVALID_ARGUMENT", e.code(), wanted + ": " + e.getMessage());
      String[] parts = wanted.split(" ");
      assertEquals(List.of(parts[0], parts[1]), List.of(e.reason(), e.field()), e.getMessage());
    });
    assertEquals(null, errorOf(List.of(message(call, 8), message(null, 0), message(null, 24))));
    server.awaitNothingClaimed();
  }

  @Test
  void aStreamThatIsCancelledInTheMiddleEndsAndNothingIsKept() throws Exception {
    TensorView q = TensorView.allocate(Dtype.DTYPE_FLOAT32, 1, 4 << 10, 8, 128); // 16 MiB
    ApplyRopeRequest request = ApplyRopeRequest.newBuilder()
                                   .setRope(Sources.HALF_SPLIT)
                                   .setLayout(Layout.LAYOUT_BSHD)
                                   .setPositions(TokenPositions.startAt(0))
                                   .build();
    try (Posenc streaming = Posenc.builder(server.address).streamAboveBytes(0).connect()) {
      Posenc cancelling = streaming.withProgress((done, all) -> Thread.currentThread().interrupt());
      PosencException e =
          assertThrows(PosencException.class, () -> cancelling.applyRope(request, q, null));
      assertEquals("CANCELLED", e.code(), e.getMessage());
      assertTrue(Thread.interrupted());
      server.awaitNothingClaimed();
      streaming.applyRope(request, q, null, q, null);
    }
  }
}
