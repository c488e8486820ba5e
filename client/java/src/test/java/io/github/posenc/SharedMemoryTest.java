package io.github.posenc;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.Any;
import com.google.protobuf.Message;
import com.google.protobuf.Parser;
import com.google.rpc.ErrorInfo;
import io.github.posenc.v1.AbsoluteEncoding;
import io.github.posenc.v1.AddEncodingRequest;
import io.github.posenc.v1.ApplyRopeRequest;
import io.github.posenc.v1.ApplyRopeResponse;
import io.github.posenc.v1.Combination;
import io.github.posenc.v1.ConvertPairingRequest;
import io.github.posenc.v1.Dtype;
import io.github.posenc.v1.GetServerInfoRequest;
import io.github.posenc.v1.GetServerInfoResponse;
import io.github.posenc.v1.Layout;
import io.github.posenc.v1.Movement;
import io.github.posenc.v1.Pairing;
import io.github.posenc.v1.RelativeScore;
import io.github.posenc.v1.RepositionRequest;
import io.github.posenc.v1.ScoreRelativeRequest;
import io.github.posenc.v1.ShawScore;
import io.github.posenc.v1.SharedMemoryInfo;
import io.github.posenc.v1.Sinusoidal;
import io.github.posenc.v1.SinusoidalOrder;
import io.grpc.Grpc;
import io.grpc.InsecureServerCredentials;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.ServerServiceDefinition;
import io.grpc.Status;
import io.grpc.stub.ServerCalls;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.Buffer;
import java.nio.DoubleBuffer;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.ShortBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;

/** Compares calls in shared memory with calls with bytes. ClientTest checks calls with bytes. */
class SharedMemoryTest {
  private static final long[] SHAPE = {1, 5, 2, 8};
  private static final long BYTES = 5 * 2 * 8 * 4;
  private static final String SERVICE = "posenc.v1.PositionalEncodingService/";

  @TempDir static Path folder;
  private static String prefix;
  private static Server server;
  private static Posenc posenc;

  @BeforeAll
  static void start() throws Exception {
    prefix = "posenc-test-java-" + ProcessHandle.current().pid() + "-";
    // The server has two addresses. The first is a TCP address.
    String socket = "unix:" + folder.resolve("socket");
    server = new Server(
        folder, "--listen", "127.0.0.1:0", "--listen", socket, "--shared-memory-prefix",
        "/dev/shm/" + prefix);
    posenc = Posenc.connect(socket);
  }

  @AfterAll
  static void stop() throws Exception {
    posenc.close();
    server.close();
    assertEquals(List.of(), files());
  }

  private static List<String> files() throws IOException {
    try (Stream<Path> all = Files.list(Path.of("/dev/shm"))) {
      return all.map(path -> path.getFileName().toString())
          .filter(name -> name.startsWith(prefix))
          .collect(Collectors.toList());
    }
  }

  private static float[] values(int count) {
    float[] values = new float[count];
    for (int i = 0; i < count; i++) values[i] = (float) Math.sin(i + 1);
    return values;
  }

  private static TensorView filled(SharedRegion region, long offset, float[] values, long... shape) {
    TensorView tensor = region.tensor(Dtype.DTYPE_FLOAT32, offset, shape);
    ((FloatBuffer) tensor.buffer()).put(values);
    return tensor;
  }

  private static ApplyRopeRequest request() {
    return ApplyRopeRequest.newBuilder()
        .setRope(Sources.HALF_SPLIT)
        .setLayout(Layout.LAYOUT_BSHD)
        .setPositions(TokenPositions.startAt(3))
        .build();
  }

  private static void fails(String field, Executable call) {
    PosencException e = assertThrows(PosencException.class, call);
    assertEquals("INVALID_ARGUMENT", e.code(), e.getMessage());
    assertEquals(field, e.field(), e.getMessage());
  }

  private static void isGone(String field, Executable call) {
    PosencException e = assertThrows(PosencException.class, call);
    assertEquals(List.of("NOT_FOUND", "SHARED_MEMORY_UNAVAILABLE", field), List.of(e.code(), e.reason(), e.field()));
  }

  @Test
  void tensorsAreRotatedWhereTheyLie() {
    float[] x = values(80);
    TensorView expected = posenc.applyRope(request(), TensorView.of(x, SHAPE), null).q();
    try (SharedRegion region = posenc.sharedRegion(2 * BYTES)) {
      assertTrue(region.name().startsWith(prefix));
      TensorView q = filled(region, 0, x, SHAPE);
      TensorView k = filled(region, BYTES, x, SHAPE);
      posenc.rope(Sources.HALF_SPLIT).apply(Layout.LAYOUT_BSHD, TokenPositions.startAt(3), q, k);
      assertArrayEquals(expected.toFloatArray(), q.toFloatArray());
      assertArrayEquals(expected.toFloatArray(), k.toFloatArray());
    }
  }

  @Test
  void inputsAndResultsMayLieInDifferentMemory() {
    float[] x = values(80);
    RepositionRequest request = RepositionRequest.newBuilder()
        .setOldRope(Sources.HALF_SPLIT)
        .setMovement(Movement.newBuilder().setShift(-4))
        .setLayout(Layout.LAYOUT_BSHD)
        .build();
    float[] expected = posenc.reposition(request, TensorView.of(x, SHAPE)).toFloatArray();
    try (SharedRegion region = posenc.sharedRegion(2 * BYTES)) {
      TensorView view = filled(region, 0, x, SHAPE);
      TensorView other = filled(region, BYTES, x, SHAPE);
      TensorView own = TensorView.of(new float[80], SHAPE);
      TensorView[][] pairs = {{view, other}, {view, own}, {TensorView.of(x, SHAPE), other}, {view, null}};
      for (TensorView[] pair : pairs) {
        ((FloatBuffer) other.buffer()).put(new float[80]);
        TensorView moved = posenc.reposition(request, pair[0], pair[1]);
        if (pair[1] != null) assertSame(pair[1], moved);
        assertArrayEquals(expected, moved.toFloatArray());
        assertArrayEquals(x, view.toFloatArray());
      }
      fails("k_output", () -> posenc.reposition(request, view, region.tensor(Dtype.DTYPE_FLOAT32, 0, 1)));
    }
  }

  @Test
  void buffersHaveTheKindOfEveryDtype() {
    try (SharedRegion region = posenc.sharedRegion(2 * BYTES)) {
      Map<Dtype, Class<? extends Buffer>> kinds = Map.of(
          Dtype.DTYPE_FLOAT64, DoubleBuffer.class,
          Dtype.DTYPE_FLOAT16, ShortBuffer.class,
          Dtype.DTYPE_BFLOAT16, ShortBuffer.class);
      kinds.forEach((dtype, kind) -> {
        TensorView q = region.tensor(dtype, 0, SHAPE);
        assertTrue(kind.isInstance(q.buffer()), dtype.name());
        posenc.rope(Sources.HALF_SPLIT).apply(Layout.LAYOUT_BSHD, TokenPositions.startAt(3), q, null);
      });
    }
  }

  @Test
  void otherTensorsGoByTheirPlaceToo() {
    float[] x = values(48);
    io.github.posenc.v1.Tensor ones = TensorView.of(values(24), 3, 8).toMessage();
    ScoreRelativeRequest score = ScoreRelativeRequest.newBuilder()
        .setScore(RelativeScore.newBuilder().setShaw(ShawScore.newBuilder().setKeyTable(ones)))
        .build();
    AddEncodingRequest add = AddEncodingRequest.newBuilder()
        .setEncoding(AbsoluteEncoding.newBuilder().setSinusoidal(
            Sinusoidal.newBuilder()
                .setDim(8)
                .setOrder(SinusoidalOrder.SINUSOIDAL_ORDER_INTERLEAVED)))
        .setPositions(TokenPositions.startAt(3))
        .build();
    ConvertPairingRequest convert = ConvertPairingRequest.newBuilder()
        .setOldPairing(Pairing.PAIRING_INTERLEAVED)
        .setNewPairing(Pairing.PAIRING_HALF_SPLIT)
        .setHeads(1)
        .build();
    TensorView heads = TensorView.of(x, 1, 2, 3, 8);
    float[] scores = posenc.scoreRelative(score, heads, heads).toFloatArray();
    float[] sums = posenc.addEncoding(add, TensorView.of(x, 6, 8)).toFloatArray();
    try (SharedRegion region = posenc.sharedRegion(4096)) {
      TensorView view = filled(region, 0, x, 1, 2, 3, 8);
      TensorView out = region.tensor(Dtype.DTYPE_FLOAT32, 1024, 1, 2, 3, 3);
      assertSame(out, posenc.scoreRelative(score, view, view, out));
      assertArrayEquals(scores, out.toFloatArray());
      TensorView small = region.tensor(Dtype.DTYPE_FLOAT32, 1024, 1);
      fails("scores_output", () -> posenc.scoreRelative(score, view, view, small));
      TensorView rows = region.tensor(Dtype.DTYPE_FLOAT32, 0, 6, 8);
      assertSame(rows, posenc.addEncoding(add, rows, rows));
      assertArrayEquals(sums, rows.toFloatArray());
      // A concatenation is twice as large as x. If the output is too small, the bytes after it
      // stay unchanged.
      IntBuffer behind = (IntBuffer) region.tensor(Dtype.DTYPE_INT32, 2048, 40).buffer();
      behind.put(0, 7);
      AddEncodingRequest wide =
          add.toBuilder().setCombination(Combination.COMBINATION_CONCATENATE).build();
      TensorView narrow = region.tensor(Dtype.DTYPE_FLOAT32, 2048 - 192, 6, 8);
      fails("x_output", () -> posenc.addEncoding(wide, rows, narrow));
      assertEquals(7, behind.get(0));
      TensorView weight = region.tensor(Dtype.DTYPE_FLOAT32, 0, 8, 4);
      fails("weight_output", () -> posenc.convertPairing(convert, weight, weight));
    }
  }

  @Test
  void whereTheServerSharesNothingTheSameCodeSendsBytes() throws Exception {
    float[] x = values(80);
    try (Posenc remote = Posenc.connect(server.address);
        SharedRegion region = remote.sharedRegion(BYTES)) {
      assertEquals("", region.name());
      TensorView q = filled(region, 0, x, SHAPE);
      TensorView same = region.tensor(Dtype.DTYPE_FLOAT32, 0, SHAPE);
      remote.rope(Sources.HALF_SPLIT).apply(Layout.LAYOUT_BSHD, TokenPositions.startAt(3), same, null);
      TensorView expected = posenc.applyRope(request(), TensorView.of(x, SHAPE), null).q();
      assertArrayEquals(expected.toFloatArray(), q.toFloatArray());
    }
  }

  private static <M extends Message> MethodDescriptor.Marshaller<M> messages(Parser<M> parser) {
    return new MethodDescriptor.Marshaller<M>() {
      @Override
      public InputStream stream(M message) {
        return message.toByteString().newInput();
      }

      @Override
      public M parse(InputStream stream) {
        try {
          return parser.parseFrom(stream);
        } catch (IOException e) {
          throw new UncheckedIOException(e);
        }
      }
    };
  }

  private static <A extends Message, B extends Message> MethodDescriptor<A, B> method(
      String name, Parser<A> request, Parser<B> response) {
    return MethodDescriptor.newBuilder(messages(request), messages(response))
        .setType(MethodDescriptor.MethodType.UNARY)
        .setFullMethodName(SERVICE + name)
        .build();
  }

  /** Starts a server that refuses places in shared memory, and returns other tensors unchanged. */
  private static io.grpc.Server refusing(
      Status.Code code, String reason, List<ApplyRopeRequest> calls) throws IOException {
    GetServerInfoResponse info = GetServerInfoResponse.newBuilder()
        .setSharedMemory(SharedMemoryInfo.newBuilder()
            .setDirectory("/dev/shm").setPrefix(prefix).setMaxBytes(1 << 20))
        .build();
    Any detail = Any.newBuilder()
        .setTypeUrl("type.googleapis.com/google.rpc.ErrorInfo")
        .setValue(ErrorInfo.newBuilder().setReason(reason).build().toByteString())
        .build();
    Metadata trailers = new Metadata();
    trailers.put(
        Metadata.Key.of("grpc-status-details-bin", Metadata.BINARY_BYTE_MARSHALLER),
        com.google.rpc.Status.newBuilder().addDetails(detail).build().toByteArray());
    return Grpc.newServerBuilderForPort(0, InsecureServerCredentials.create())
        .addService(ServerServiceDefinition.builder("posenc.v1.PositionalEncodingService")
            .addMethod(
                method("GetServerInfo", GetServerInfoRequest.parser(), GetServerInfoResponse.parser()),
                ServerCalls.asyncUnaryCall((request, answer) -> {
                  answer.onNext(info);
                  answer.onCompleted();
                }))
            .addMethod(
                method("ApplyRope", ApplyRopeRequest.parser(), ApplyRopeResponse.parser()),
                ServerCalls.asyncUnaryCall((request, answer) -> {
                  calls.add(request);
                  if (request.getQ().hasShared()) {
                    answer.onError(code.toStatus().withDescription("no").asException(trailers));
                    return;
                  }
                  answer.onNext(ApplyRopeResponse.newBuilder().setQ(request.getQ()).build());
                  answer.onCompleted();
                }))
            .build())
        .build()
        .start();
  }

  @Test
  void aServerThatRefusesPlacesGetsBytes() throws Exception {
    for (Status.Code code : List.of(Status.Code.UNIMPLEMENTED, Status.Code.PERMISSION_DENIED)) {
      List<ApplyRopeRequest> calls = new CopyOnWriteArrayList<>();
      io.grpc.Server fake = refusing(code, "ERROR_REASON_SHARED_MEMORY_UNAVAILABLE", calls);
      try (Posenc client = Posenc.connect("127.0.0.1:" + fake.getPort());
          SharedRegion region = client.sharedRegion(BYTES)) {
        TensorView q = filled(region, 0, values(80), SHAPE);
        assertSame(q, client.applyRope(request(), q, null, q, null).q());
        assertEquals(2, calls.size());
        assertEquals(BYTES, calls.get(1).getQ().getData().size());
        assertFalse(calls.get(1).hasQOutput());
      } finally {
        fake.shutdownNow();
      }
    }
  }

  @Test
  void aCallInPlaceIsSentOnceAndItsErrorSaysWhatToDo() throws Exception {
    List<ApplyRopeRequest> calls = new CopyOnWriteArrayList<>();
    io.grpc.Server fake = refusing(Status.Code.UNAVAILABLE, "", calls);
    try (Posenc client = Posenc.connect("127.0.0.1:" + fake.getPort());
        SharedRegion region = client.sharedRegion(2 * BYTES)) {
      TensorView q = filled(region, 0, values(80), SHAPE);
      TensorView other = region.tensor(Dtype.DTYPE_FLOAT32, BYTES, SHAPE);
      PosencException e = assertThrows(
          PosencException.class, () -> client.applyRope(request(), q, null, q, null));
      assertEquals("UNAVAILABLE", e.code());
      assertTrue(e.getMessage().contains("may have been rotated by then"), e.getMessage());
      assertEquals(1, calls.size());
      e = assertThrows(
          PosencException.class, () -> client.applyRope(request(), q, null, other, null));
      assertFalse(e.getMessage().contains("anew"), e.getMessage());
      assertEquals(5, calls.size());
    } finally {
      fake.shutdownNow();
    }
  }

  // Files with the directory's group let containers of different users share a Kubernetes volume with an fsGroup.
  @Test
  void aDirectoryThatGivesItsGroupGetsFilesOfTheGroup() throws Exception {
    Path directory = Files.createTempDirectory("posenc");
    Files.setAttribute(directory, "unix:mode", 02770);
    SharedRegion region = posenc.sharedRegion(10000, prefix + "group", directory);
    Path file = directory.resolve(prefix + "group");
    assertEquals(10000, Files.size(file));
    assertEquals("rw-rw----", PosixFilePermissions.toString(Files.getPosixFilePermissions(file)));
    region.close();
    Files.delete(directory);
  }

  @Test
  void regionsAreFilesOfTheirFullSizeThatGoWhenClosed() throws Exception {
    SharedRegion region = posenc.sharedRegion(10000, prefix + "named", null);
    Path file = Path.of("/dev/shm", prefix + "named");
    assertEquals(10000, Files.size(file));
    assertEquals("rw-------", PosixFilePermissions.toString(Files.getPosixFilePermissions(file)));
    fails("name", () -> posenc.sharedRegion(8, prefix + "named", null));
    TensorView q = filled(region, 0, values(80), SHAPE);
    region.close();
    region.close();
    assertFalse(Files.exists(file));
    isGone("q.shared.name", () -> posenc.applyRope(request(), q, null));
    isGone("q_output.name", () -> posenc.applyRope(request(), TensorView.of(values(80), SHAPE), null, q));
    fails("region", () -> region.tensor(Dtype.DTYPE_FLOAT32, 0, 1));
  }

  @Test
  void whatCannotBeIsNamed() {
    fails("bytes", () -> posenc.sharedRegion(0));
    fails("bytes", () -> posenc.sharedRegion(-1));
    fails("bytes", () -> posenc.sharedRegion(Long.MAX_VALUE));
    for (String name : List.of("", "..")) fails("name", () -> posenc.sharedRegion(8, name, null));
    try (SharedRegion other = posenc.sharedRegion(BYTES, "other-" + prefix, null)) {
      TensorView q = other.tensor(Dtype.DTYPE_FLOAT32, 0, SHAPE);
      isGone("q.shared.name", () -> posenc.applyRope(request(), q, null)); // wrong prefix
    }
    fails("directory", () -> posenc.sharedRegion(8, null, Path.of("/nowhere")));
    try (SharedRegion region = posenc.sharedRegion(64)) {
      fails("shape", () -> region.tensor(Dtype.DTYPE_FLOAT32, 0, 17));
      fails("shape", () -> region.tensor(Dtype.DTYPE_FLOAT32, 4, 16));
      fails("shape", () -> region.tensor(Dtype.DTYPE_FLOAT32, 0, -1, 4));
      fails("shape", () -> region.tensor(Dtype.DTYPE_FLOAT32, 0, 1L << 40, 1L << 40));
      fails("shape", () -> region.tensor(Dtype.DTYPE_FLOAT32, 2, 4));
      fails("shape", () -> region.tensor(Dtype.DTYPE_FLOAT32, -4, 4));
      fails("shape", () -> region.tensor(Dtype.DTYPE_UNSPECIFIED, 0, 4));
      assertEquals(0, region.tensor(Dtype.DTYPE_FLOAT32, 0, 0, 1L << 40).bytes());
    }
  }
}
