package io.github.posenc;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.gson.JsonPrimitive;
import io.github.posenc.v1.ApplyRopeRequest;
import io.github.posenc.v1.BlockFormat;
import io.github.posenc.v1.Dtype;
import io.github.posenc.v1.Layout;
import io.github.posenc.v1.ModelPart;
import io.github.posenc.v1.RepositionRequest;
import io.github.posenc.v1.RopeSource;
import io.github.posenc.v1.Saturation;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.net.ServerSocket;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

class ClientTest extends WithServer {

  private static float[] random(int count) {
    Random random = new Random(7);
    float[] values = new float[count];
    for (int i = 0; i < count; i++) values[i] = (float) random.nextGaussian();
    return values;
  }

  // Returns element `index` of the rotated x by RoFormer's formula in double. x is [1, tokens,
  // heads, channels], and token t has the position start + t.
  private static double rotated(float[] x, int heads, int channels, long start, int index) {
    int channel = index % channels;
    int half = channels / 2;
    int pair = channel % half;
    long position = start + index / (heads * channels);
    double angle = position * Math.pow(10000, -2.0 * pair / channels);
    double first = x[index - channel + pair];
    double second = x[index - channel + pair + half];
    return channel < half
        ? first * Math.cos(angle) - second * Math.sin(angle)
        : first * Math.sin(angle) + second * Math.cos(angle);
  }

  private static void assertRotated(float[] before, float[] after, int heads, int channels, long start) {
    for (int i = 0; i < before.length; i++) {
      // The bound is 4 * 2^-24 times the length of the pair, which is below 8 here.
      assertEquals(rotated(before, heads, channels, start, i), after[i], 8 * Math.scalb(4.0, -24), "at " + i);
    }
  }

  // Makes a client that sends tensors over 16 MiB in one message.
  private static Posenc inOneMessage(String target) {
    return Posenc.builder(target).streamAboveBytes(512 << 20).connect();
  }

  private static ApplyRopeRequest.Builder request() {
    return ApplyRopeRequest.newBuilder()
        .setRope(Sources.HALF_SPLIT)
        .setLayout(Layout.LAYOUT_BSHD)
        .setPositions(TokenPositions.startAt(3));
  }

  @Test
  void rotatesQueriesAndKeysInPlace() {
    float[] q = random(1 * 16 * 4 * 64);
    float[] k = random(1 * 16 * 2 * 64);
    float[] q0 = q.clone();
    float[] k0 = k.clone();
    posenc.rope(Sources.HALF_SPLIT).apply(
        Layout.LAYOUT_BSHD, TokenPositions.startAt(3), TensorView.of(q, 1, 16, 4, 64), TensorView.of(k, 1, 16, 2, 64));
    assertRotated(q0, q, 4, 64, 3);
    assertRotated(k0, k, 2, 64, 3);
  }

  @Test
  void givesNewMemoryAndLeavesTheInputAlone() {
    float[] q = random(1 * 5 * 2 * 8);
    float[] q0 = q.clone();
    Rotated rotated = posenc.applyRope(request().build(), TensorView.of(q, 1, 5, 2, 8), null);
    assertArrayEquals(q0, q);
    assertRotated(q0, rotated.q().toFloatArray(), 2, 8, 3);
    assertEquals(null, rotated.k());
  }

  @Test
  void numbersAreTheSameInEveryKindOfBuffer() {
    float[] q = random(1 * 300 * 2 * 64);
    long[] shape = {1, 300, 2, 64};
    float[] expected = posenc.applyRope(request().build(), TensorView.of(q, shape), null).q().toFloatArray();
    for (ByteOrder order : new ByteOrder[] {ByteOrder.BIG_ENDIAN, ByteOrder.LITTLE_ENDIAN}) {
      for (boolean direct : new boolean[] {false, true}) {
        ByteBuffer bytes = direct ? ByteBuffer.allocateDirect(4 * q.length) : ByteBuffer.allocate(4 * q.length);
        FloatBuffer floats = bytes.order(order).asFloatBuffer();
        floats.put(q).rewind();
        TensorView tensor = TensorView.of(floats, shape);
        posenc.applyRope(request().build(), tensor, null, tensor, null);
        float[] got = new float[q.length];
        floats.get(got);
        assertArrayEquals(expected, got, order + " direct " + direct);
      }
    }
  }

  @Test
  void rawBytesAreLittleEndianWhateverTheirBufferSays() {
    float[] q = random(1 * 300 * 2 * 64);
    float[] expected =
        posenc.applyRope(request().build(), TensorView.of(q, 1, 300, 2, 64), null).q().toFloatArray();
    ByteBuffer bytes = ByteBuffer.allocateDirect(4 * q.length).order(ByteOrder.LITTLE_ENDIAN);
    bytes.asFloatBuffer().put(q);
    bytes.order(ByteOrder.BIG_ENDIAN);
    TensorView tensor = TensorView.of(Dtype.DTYPE_FLOAT32, bytes, 1, 300, 2, 64);
    posenc.applyRope(request().build(), tensor, null, tensor, null);
    float[] got = new float[q.length];
    bytes.order(ByteOrder.LITTLE_ENDIAN).asFloatBuffer().get(got);
    assertArrayEquals(expected, got);
  }

  @Test
  void aStreamGivesTheBytesOfOneMessage() {
    float[] q = random(2 * 3000 * 4 * 128);
    float[] k = random(2 * 3000 * 2 * 128);
    AtomicLong done = new AtomicLong();
    long[] shape = {2, 3000, 4, 128};
    long[] keys = {2, 3000, 2, 128};
    try (Posenc streaming = Posenc.builder(server.address).streamAboveBytes(0).connect();
        Posenc unary = inOneMessage(server.address)) {
      Rotated whole = unary.withProgress((bytes, all) -> done.set(-1))
          .applyRope(request().build(), TensorView.of(q, shape), TensorView.of(k, keys));
      assertEquals(0, done.get()); // only streams report progress
      Rotated chunks = streaming.withProgress((bytes, all) -> done.set(bytes))
          .applyRope(request().build(), TensorView.of(q, shape), TensorView.of(k, keys));
      assertArrayEquals(whole.q().toFloatArray(), chunks.q().toFloatArray());
      assertArrayEquals(whole.k().toFloatArray(), chunks.k().toFloatArray());
      assertEquals(4L * (q.length + k.length), done.get());
      TensorView moved = streaming.reposition(
          RepositionRequest.newBuilder()
              .setOldRope(Sources.HALF_SPLIT)
              .setLayout(Layout.LAYOUT_BSHD)
              .setMovement(io.github.posenc.v1.Movement.newBuilder().setShift(-3))
              .build(),
          chunks.k());
      int sequence = k.length / 2;
      float[] second = java.util.Arrays.copyOfRange(k, sequence, k.length);
      for (int i = 0; i < sequence; i += 1009) {
        assertEquals(rotated(k, 2, 128, 0, i), moved.toFloatArray()[i], 1e-4, "at " + i);
        assertEquals(
            rotated(second, 2, 128, 0, i), moved.toFloatArray()[sequence + i], 1e-4, "at " + i);
      }
    }
  }

  @Test
  void messagesOver16MiBGoAsStreamsUnlessTheOptionsSayOtherwise() {
    AtomicLong chunks = new AtomicLong();
    Posenc watched = posenc.withProgress((bytes, all) -> chunks.incrementAndGet());
    // The request without elements has more than 0 bytes, but less than 1 KiB. So `below` is sent
    // as one message, and `above` as a stream.
    TensorView below = TensorView.allocate(Dtype.DTYPE_FLOAT32, 1, (16 << 20) / 1024 - 1, 2, 128);
    TensorView above = TensorView.allocate(Dtype.DTYPE_FLOAT32, 1, (16 << 20) / 1024, 2, 128);
    watched.applyRope(request().build(), below, null);
    assertEquals(0, chunks.get());
    watched.applyRope(request().build(), above, null);
    assertTrue(chunks.get() > 1, chunks + " chunks");
    TensorView keys = TensorView.allocate(Dtype.DTYPE_FLOAT32, 1, 4, 2, 8);
    try (Posenc narrow = Posenc.builder(server.address).maxMessageBytes(200).connect()) {
      chunks.set(0);
      narrow.withProgress((bytes, all) -> chunks.incrementAndGet())
          .applyRope(request().build(), keys, null);
      assertTrue(chunks.get() > 1, chunks + " chunks");
    }
  }

  @Test
  void mistakesInLargeRequestsAreTheServersToNameAsInSmallOnes() {
    try (Posenc streaming = Posenc.builder(server.address).streamAboveBytes(0).connect()) {
      TensorView fits = TensorView.of(new float[64], 1, 4, 2, 8);
      TensorView flat = TensorView.of(new float[64], 8, 8);
      TensorView shorter = TensorView.of(new float[63], 1, 4, 2, 8);
      List<ApplyRopeRequest> requests = List.of(
          request().clearLayout().build(),
          request().setLayoutValue(99).build(),
          request().setDirectionValue(99).build(),
          request().setPositions(TokenPositions.ids(TensorView.of(new int[3], 3))).build());
      for (ApplyRopeRequest wrong : requests) assertSameError(streaming, wrong, fits);
      assertSameError(streaming, request().build(), flat);
      assertSameError(streaming, request().build(), shorter);
    }
  }

  private static void assertSameError(Posenc streaming, ApplyRopeRequest wrong, TensorView q) {
    PosencException whole =
        assertThrows(PosencException.class, () -> posenc.applyRope(wrong, q, null));
    PosencException cut =
        assertThrows(PosencException.class, () -> streaming.applyRope(wrong, q, null));
    assertFalse(whole.reason().isEmpty(), whole.getMessage());
    assertEquals(
        List.of(whole.code(), whole.reason(), whole.field()),
        List.of(cut.code(), cut.reason(), cut.field()));
  }

  @Test
  void aServerWithALowerLimitGetsAStream() throws Exception {
    try (Server small = new Server(folder, "--max-request-bytes", "8MiB");
        Posenc client = inOneMessage(small.address)) {
      float[] q = random(1 * 4096 * 8 * 128);
      float[] q0 = q.clone();
      client.rope(Sources.HALF_SPLIT).apply(Layout.LAYOUT_BSHD, TokenPositions.startAt(0), TensorView.of(q, 1, 4096, 8, 128), null);
      for (int i = 0; i < q.length; i += 1009) {
        assertEquals(rotated(q0, 8, 128, 0, i), q[i], 8 * Math.scalb(4.0, -24), "at " + i);
      }
    }
  }

  @Test
  void unixSocketsWork() throws Exception {
    Path socket = Files.createTempDirectory("posenc").resolve("s");
    try (Server local = new Server(folder, "--listen", "unix:" + socket);
        Posenc client = Posenc.connect("unix:" + socket)) {
      assertFalse(client.getServerInfo().getPresetsList().isEmpty());
    }
  }

  @Test
  void tablesOverALimitComeAsAStream() {
    long rows = 40000; // 20 MB
    Table table;
    try (Posenc narrow = Posenc.builder(server.address).maxMessageBytes(5 << 20).connect()) {
      table = narrow.rope(Sources.ofWidth(128)).table(rows);
    }
    assertArrayEquals(new long[] {rows, 64}, table.cos().shape());
    for (int row = 0; row < rows; row += 999) { // the first pair rotates by one radian per row
      assertEquals(Math.cos(row), table.cos().toFloatArray()[row * 64], 1e-7, "row " + row);
      assertEquals(Math.sin(row), table.sin().toFloatArray()[row * 64], 1e-7, "row " + row);
    }
  }

  @Test
  void errorsNameReasonFieldAndRequest() {
    PosencException e = assertThrows(
        PosencException.class,
        () -> posenc.withRequestId("mine").applyRope(
            request().clearLayout().build(), TensorView.of(new float[16], 1, 1, 1, 16), null));
    assertEquals("INVALID_ARGUMENT", e.code());
    assertEquals("FIELD_REQUIRED", e.reason());
    assertEquals("layout", e.field());
    assertEquals("mine", e.requestId());
  }

  @Test
  void readOnlyAndShortOutputsAreRefusedBeforeTheCall() {
    TensorView q = TensorView.of(new float[16], 1, 1, 1, 16);
    FloatBuffer readOnly = FloatBuffer.allocate(16).asReadOnlyBuffer();
    for (TensorView out : new TensorView[] {TensorView.of(readOnly, 1, 1, 1, 16), TensorView.of(new float[15], 15)}) {
      PosencException e =
          assertRefused("q_output", () -> posenc.applyRope(request().build(), q, null, out, null));
      assertTrue(e.getMessage().startsWith("q_output: "), e.getMessage());
    }
  }

  @Test
  void anOutputForATensorThatIsNotGivenIsRefused() {
    TensorView q = TensorView.of(new float[16], 1, 1, 1, 16);
    PosencException e = assertThrows(
        PosencException.class, () -> posenc.applyRope(request().build(), q, null, null, q));
    assertEquals("INVALID_ARGUMENT", e.code());
    assertTrue(e.getMessage().startsWith("k_output: is given, but k is not"), e.getMessage());
  }

  @Test
  void aServerThatIsAwayIsNamed() throws Exception {
    int port;
    try (ServerSocket socket = new ServerSocket(0)) {
      port = socket.getLocalPort();
    }
    try (Posenc away = Posenc.builder("127.0.0.1:" + port).timeout(Duration.ofSeconds(10)).connect()) {
      PosencException e = assertThrows(PosencException.class, away::getServerInfo);
      assertTrue(e.getMessage().contains("127.0.0.1:" + port), e.getMessage());
    }
  }

  @Test
  void aServerThatDoesNotAnswerAStreamEndsTheCallAtItsDeadline() throws Exception {
    // This server accepts connections, and never answers.
    try (ServerSocket silent = new ServerSocket(0);
        Posenc client = Posenc.builder("127.0.0.1:" + silent.getLocalPort())
            .timeout(Duration.ofSeconds(2)).streamAboveBytes(0).connect()) {
      for (Posenc each : List.of(client, client.withTimeout(Duration.ofSeconds(2)))) {
        PosencException e = assertThrows(PosencException.class,
            () -> each.applyRope(request().build(), TensorView.of(new float[80], 1, 5, 2, 8), null));
        assertEquals("DEADLINE_EXCEEDED", e.code());
        String remedy = silent.getLocalPort() + "); the timeout is over: is the server there, ";
        assertTrue(e.getMessage().contains(remedy), e.getMessage());
      }
    }
  }

  @Test
  void whatCannotBeSentIsNamed() {
    Map<String, Executable> wrong = Map.of(
        "target", () -> Posenc.connect(""),
        "request_id", () -> posenc.withRequestId("two\nlines"),
        "traceparent", () -> posenc.withTraceparent("\u00fc"));
    wrong.forEach(WithServer::assertRefused);
    for (String target : new String[] {
      "http://localhost:50051", "https://posenc:1", "127.0.0.1:65536", "dns:///posenc:99999", "[::1]:70000",
      "127.0.0.1:99999999999999999999"
    }) {
      assertRefused("target", () -> Posenc.connect(target));
    }
    Posenc.connect("127.0.0.1:65535").close();
  }

  @Test
  void anUnknownValueIsNamedWithItsFieldAndNoVersionIsBlamed() {
    TensorView q = TensorView.of(new float[8], 1, 1, 1, 8);
    PosencException e = assertThrows(
        PosencException.class,
        () -> posenc.applyRope(request().setLayoutValue(99).build(), q, null));
    assertEquals("layout", e.field());
    assertTrue(e.getMessage().startsWith("layout: value 99 "), e.getMessage());
    assertFalse(e.getMessage().contains("another version"), e.getMessage());
  }

  @Test
  void aRopeRotatesFloat8AsItIsToldToSaturate() {
    byte[] ones = {0x38, 0x38};
    ResolvedRope rope = posenc.rope(Sources.HALF_SPLIT);
    TensorView k = TensorView.float8E4m3fn(ones, 1, 1, 1, 2);
    PosencException e = assertThrows(
        PosencException.class, () -> rope.apply(Layout.LAYOUT_BSHD, TokenPositions.startAt(0), null, k));
    assertEquals("saturation", e.field());
    rope.withSaturation(Saturation.SATURATION_FINITE)
        .apply(Layout.LAYOUT_BSHD, TokenPositions.startAt(0), null, k);
    assertArrayEquals(new byte[] {0x38, 0x38}, ones);
  }

  @Test
  void aRopeMovesInt8AndBytesOfBlocks() {
    byte[] numbers = {100, -50, 0, 127};
    ResolvedRope rope = posenc.rope(Sources.HALF_SPLIT);
    rope.withSaturation(Saturation.SATURATION_FINITE)
        .reposition(Layout.LAYOUT_BSHD, 0, TensorView.int8(numbers, 1, 1, 1, 4));
    assertArrayEquals(new byte[] {100, -50, 0, 127}, numbers);
    byte[] block = new byte[34];
    block[1] = 0x3c; // the scale 1
    block[2] = 127;
    byte[] moved = block.clone();
    rope.withBlockFormat(BlockFormat.BLOCK_FORMAT_Q8_0)
        .reposition(Layout.LAYOUT_BSHD, 0, TensorView.int8(moved, 1, 1, 1, 34));
    assertArrayEquals(block, moved);
  }

  @Test
  void aCallInAnotherThreadCompletesItsFuture() throws Exception {
    float[] q = random(1 * 5 * 2 * 8);
    TensorView tensor = TensorView.of(q, 1, 5, 2, 8);
    Rotated rotated = posenc.async(p -> p.applyRope(request().build(), tensor, null)).get();
    assertRotated(q, rotated.q().toFloatArray(), 2, 8, 3);
    ExecutionException e = assertThrows(
        ExecutionException.class,
        () -> posenc.async(p -> p.applyRope(request().clearLayout().build(), tensor, null)).get());
    assertEquals("layout", ((PosencException) e.getCause()).field());
  }

  @Test
  void aServerThatIsAwayIsNamedWithARemedy() {
    try (Posenc client = Posenc.connect("127.0.0.1:1")) {
      PosencException e = assertThrows(PosencException.class, client::getServerInfo);
      assertTrue(e.getMessage().contains("(server 127.0.0.1:1); is the server there, "), e.getMessage());
    }
  }

  @Test
  void aCancelledFutureAndAnInterruptEndTheCall() throws Exception {
    // This server accepts connections, and never answers.
    try (ServerSocket silent = new ServerSocket(0);
        Posenc client = Posenc.connect("127.0.0.1:" + silent.getLocalPort())) {
      CompletableFuture<PosencException> ended = new CompletableFuture<>();
      CompletableFuture<?> call = client.async(p -> {
        try {
          return p.getServerInfo();
        } catch (PosencException e) {
          ended.complete(e);
          throw e;
        }
      });
      Thread.sleep(200);
      call.cancel(true);
      assertEquals("CANCELLED", ended.get(20, TimeUnit.SECONDS).code());
      Thread.currentThread().interrupt();
      assertEquals(
          "CANCELLED", assertThrows(PosencException.class, client::getServerInfo).code());
      assertTrue(Thread.interrupted());
    }
  }

  @Test
  void anErrorKeepsItsFactsWhenItIsSerialized() throws Exception {
    PosencException e = assertThrows(
        PosencException.class,
        () -> posenc.applyRope(
            request().clearLayout().build(), TensorView.of(new float[16], 1, 1, 1, 16), null));
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    new ObjectOutputStream(bytes).writeObject(e);
    PosencException read = (PosencException)
        new ObjectInputStream(new ByteArrayInputStream(bytes.toByteArray())).readObject();
    assertEquals(e.metadata(), read.metadata());
    assertEquals("layout", read.field());
    assertEquals(
        List.of(e.code(), e.reason(), e.requestId(), e.getMessage()),
        List.of(read.code(), read.reason(), read.requestId(), read.getMessage()));
  }

  @Test
  void aClientThatIsClosedSaysSo() {
    Posenc closed = Posenc.connect("localhost:1");
    closed.close();
    PosencException e = assertThrows(PosencException.class, closed::getServerInfo);
    assertEquals("CANCELLED", e.code());
  }

  @Test
  void aTimeoutMayBeLongerThanTheClock() {
    Posenc patient = posenc.withTimeout(Duration.ofSeconds(Long.MAX_VALUE));
    assertFalse(patient.getServerInfo().getVersion().isEmpty());
  }

  @Test
  void tokensAreNotSentInTheClearToOtherMachines() {
    for (String target : new String[] {"posenc.example:50051", "dns:///10.0.0.1:50051", "127.evil.example:1"}) {
      PosencException e =
          assertThrows(PosencException.class, () -> Posenc.builder(target).token("t").connect());
      assertTrue(e.getMessage().startsWith("token: would be sent in the clear"), e.getMessage());
    }
    Posenc.builder("[::1]:50051").token("t").connect().close();
  }

  @Test
  void thePartThatIsAskedForIsResolved() {
    RopeSource model =
        RopeSource.newBuilder().setConfigJson("{\"model_type\":\"qwen2_vl\",\"vision_config\":{\"embed_dim\":1280}}").build();
    assertEquals(
        80, posenc.rope(model.toBuilder().setPart(ModelPart.MODEL_PART_VISION).build())
            .spec().getRotaryDim());
  }

  @Test
  void everyVectorPassesAndNoneWithAChangedValue() throws Exception {
    Path vectors = Path.of(System.getProperty("root"), "proto/testdata/conformance");
    Conformance conformance = new Conformance(posenc);
    assertEquals(0, conformance.run(vectors));
    JsonArray cases = JsonParser
        .parseString(Files.readString(vectors.resolve("apply_rope.json"))).getAsJsonArray();
    JsonObject changed = cases.get(0).getAsJsonObject();
    JsonArray values = changed.getAsJsonArray("expect").get(0).getAsJsonObject().getAsJsonArray("values");
    values.set(0, new JsonPrimitive(values.get(0).getAsDouble() + 1e-3));
    assertFalse(conformance.replay(changed).isEmpty());
  }
}
