package io.github.posenc;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.posenc.v1.AddEncodingRequest;
import io.github.posenc.v1.ApplyRopeRequest;
import io.github.posenc.v1.BuildBiasRequest;
import io.github.posenc.v1.BuildTableStreamRequest;
import io.github.posenc.v1.ConvertPairingRequest;
import io.github.posenc.v1.Dtype;
import io.github.posenc.v1.Layout;
import io.github.posenc.v1.RepositionRequest;
import io.github.posenc.v1.RopeSource;
import io.github.posenc.v1.RopeSpec;
import io.github.posenc.v1.ScoreRelativeRequest;
import io.grpc.Context;
import io.grpc.Grpc;
import io.grpc.InsecureServerCredentials;
import io.grpc.MethodDescriptor;
import io.grpc.ServerServiceDefinition;
import io.grpc.Status;
import io.grpc.stub.ServerCalls;
import java.io.InputStream;
import java.nio.FloatBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/** Every wrong argument causes the same exception, which names the argument. */
final class ArgumentsTest extends WithServer {
  private static final TensorView Q = TensorView.of(new float[8], 1, 1, 1, 8);

  @Test
  void whatARotationLacksIsTheServersToNameAsInEveryLanguage() {
    ResolvedRope rope = posenc.rope(Sources.ofWidth(8));
    Map<String, Executable> calls = new LinkedHashMap<>();
    calls.put("layout", () -> rope.apply(null, TokenPositions.startAt(0), Q, null));
    calls.put("positions", () -> rope.apply(Layout.LAYOUT_BSHD, null, Q, null));
    calls.put("q", () -> rope.apply(Layout.LAYOUT_BSHD, TokenPositions.startAt(0), null, null));
    calls.put("k", () -> rope.reposition(Layout.LAYOUT_BSHD, 1, null));
    calls.put("movement.old_positions", () -> rope.reposition(Layout.LAYOUT_BSHD, null, TokenPositions.startAt(0), Q));
    calls.forEach((field, call) -> {
      assertRefused(field, call);
      assertEquals("FIELD_REQUIRED", assertThrows(PosencException.class, call).reason(), field);
    });
    assertRefused("layout", () -> rope.reposition(null, 1, Q));
    assertRefused("movement", () -> rope.reposition(Layout.LAYOUT_BSHD, TokenPositions.startAt(0), null, Q));
  }

  @Test
  void noClassOfTheClientHasTheNameOfOneOfTheContracts() throws Exception {
    Path classes = Path.of(Posenc.class.getProtectionDomain().getCodeSource().getLocation().toURI());
    try (Stream<Path> all = Files.list(classes.resolve("io/github/posenc"))) {
      List<Path> clashes = all.filter(file -> Files.exists(file.resolveSibling("v1").resolve(file.getFileName())))
          .collect(Collectors.toList());
      assertEquals(List.of(), clashes);
    }
  }

  @Test
  void nullIsNamed() {
    for (Executable call : List.<Executable>of(
        () -> posenc.rope((String) null),
        () -> posenc.rope((Path) null),
        () -> posenc.rope((RopeSpec) null),
        () -> posenc.rope((RopeSource) null))) {
      assertRefused("rope", call);
    }
    for (Executable call : List.<Executable>of(
        () -> posenc.applyRope(null, Q, null),
        () -> posenc.reposition(null, Q),
        () -> posenc.addEncoding(null, Q),
        () -> posenc.scoreRelative(null, Q, Q),
        () -> posenc.convertPairing(null, Q),
        () -> posenc.buildTable(null),
        () -> posenc.buildTableStream(null, rows -> {}),
        () -> posenc.buildBias(null),
        () -> posenc.buildPositions(null),
        () -> posenc.resolveRope(null),
        () -> posenc.analyzeRope(null),
        () -> posenc.diagnoseRope(null))) {
      assertRefused("request", call);
    }
    for (Executable call : List.<Executable>of(
        () -> TensorView.of((float[]) null, 1), () -> TensorView.of((FloatBuffer) null, 1), () -> TensorView.of((long[]) null, 1))) {
      assertRefused("elements", call);
    }
    assertRefused("bits", () -> TensorView.bfloat16((short[]) null, 1));
    assertRefused("bits", () -> TensorView.float8E5m2(null, 1));
    assertRefused("shape", () -> TensorView.of(new float[1], (long[]) null));
    assertRefused("dtype", () -> TensorView.of((Dtype) null, java.nio.ByteBuffer.allocate(1), 1));
    assertRefused("dtype", () -> TensorView.allocate(null, 1));
    assertRefused("tensor", () -> TensorView.of((io.github.posenc.v1.Tensor) null));
    assertRefused("ids", () -> TokenPositions.ids((long[]) null));
    assertRefused("ids", () -> TokenPositions.ids((TensorView) null));
    assertRefused("starts", () -> TokenPositions.startsAt((long[]) null));
    assertRefused("bounds", () -> TokenPositions.packed((long[]) null));
    assertRefused("rows", () -> posenc.buildTableStream(BuildTableStreamRequest.getDefaultInstance(), null));
    assertRefused("tiles", () -> posenc.buildBias(BuildBiasRequest.getDefaultInstance(), null));
    assertRefused("target", () -> Posenc.connect(null));
    assertRefused("timeout", () -> Posenc.builder("h:1").timeout(null));
    assertRefused("tls.ca_file", () -> Posenc.builder("h:1").trust(null));
    assertRefused("service_config", () -> Posenc.builder("h:1").serviceConfig("{").connect());
    assertRefused("service_config", () -> Posenc.builder("h:1").serviceConfig("5").connect());
    assertRefused("dtype", () -> TensorView.of(new float[1], 1).toIntArray());
  }

  @Test
  void anOutputOfAsManyBytesButAnotherShapeOrTypeIsRefused() {
    TensorView turned = TensorView.of(new float[8], 8, 1, 1, 1);
    TensorView other = TensorView.of(new int[8], 1, 1, 1, 8);
    TensorView one = TensorView.of(new float[1], 1);
    for (TensorView out : new TensorView[] {turned, other, one}) {
      assertRefused("q_output", () -> posenc.applyRope(ApplyRopeRequest.getDefaultInstance(), Q, null, out, null));
      assertRefused("k_output", () -> posenc.reposition(RepositionRequest.getDefaultInstance(), Q, out));
      assertRefused("x_output", () -> posenc.addEncoding(AddEncodingRequest.getDefaultInstance(), Q, out));
      assertRefused("weight_output", () -> posenc.convertPairing(ConvertPairingRequest.getDefaultInstance(), Q, out));
      assertRefused("scores_output", () -> posenc.scoreRelative(ScoreRelativeRequest.getDefaultInstance(), Q, Q, out));
    }
    ResolvedRope rope = posenc.rope(Sources.ofWidth(8));
    assertRefused("cos_output", () -> rope.table(2, turned, null));
    assertRefused("cos_output", () -> rope.table(2, TensorView.of(new int[8], 2, 4), null));
  }

  // Returns a method of a fake server. The server does not read requests, and answers are empty.
  private static MethodDescriptor<Integer, Integer> method(String name, MethodDescriptor.MethodType type) {
    MethodDescriptor.Marshaller<Integer> empty = new MethodDescriptor.Marshaller<>() {
      @Override
      public InputStream stream(Integer message) {
        return InputStream.nullInputStream();
      }

      @Override
      public Integer parse(InputStream stream) {
        return 0;
      }
    };
    return MethodDescriptor.newBuilder(empty, empty)
        .setType(type)
        .setFullMethodName("posenc.v1.PositionalEncodingService/" + name)
        .build();
  }

  @Test
  void aTimeoutIsThatOfAllRequestsOfACall() throws Exception {
    CompletableFuture<Long> left = new CompletableFuture<>(); // time that the second request has, in ms
    ServerServiceDefinition service = ServerServiceDefinition.builder("posenc.v1.PositionalEncodingService")
        .addMethod(method("ApplyRope", MethodDescriptor.MethodType.UNARY), ServerCalls.asyncUnaryCall((request, answer) -> {
          try {
            Thread.sleep(1000); // the first request is answered late
          } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
          }
          answer.onError(Status.RESOURCE_EXHAUSTED.withDescription("too large").asException());
        }))
        .addMethod(method("ApplyRopeStream", MethodDescriptor.MethodType.BIDI_STREAMING),
            ServerCalls.asyncBidiStreamingCall(answer -> {
              left.complete(Context.current().getDeadline().timeRemaining(TimeUnit.MILLISECONDS));
              answer.onError(Status.RESOURCE_EXHAUSTED.withDescription("too large").asException());
              return StreamTest.ignoring();
            }))
        .build();
    io.grpc.Server fake = Grpc.newServerBuilderForPort(0, InsecureServerCredentials.create())
        .addService(service)
        .build()
        .start();
    try (Posenc client = Posenc.connect("127.0.0.1:" + fake.getPort())) {
      TensorView large = TensorView.of(new float[1 << 18], 1, 1, 1, 1 << 18);
      PosencException e = assertThrows(PosencException.class, () -> client
          .withTimeout(Duration.ofSeconds(8))
          .applyRope(ApplyRopeRequest.getDefaultInstance(), large, null));
      assertEquals("RESOURCE_EXHAUSTED", e.code());
      assertTrue(left.get(9, TimeUnit.SECONDS) < 7500, "the second request had " + left.get() + " of 8000 ms");
    } finally {
      fake.shutdownNow();
    }
  }
}
