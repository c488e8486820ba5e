package io.github.posenc;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.posenc.v1.AbsoluteEncoding;
import io.github.posenc.v1.BuildTableRequest;
import io.github.posenc.v1.Dtype;
import io.github.posenc.v1.ExplicitFrequencies;
import io.github.posenc.v1.FourierFeatures;
import io.github.posenc.v1.LearnedTable;
import io.github.posenc.v1.RopeSource;
import io.github.posenc.v1.RopeSpec;
import io.github.posenc.v1.SincosGrid;
import io.github.posenc.v1.Sinusoidal;
import io.github.posenc.v1.SinusoidalOrder;
import io.github.posenc.v1.TableLayout;
import io.github.posenc.v1.Tensor;
import io.github.posenc.v1.Timestep;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.function.Consumer;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;

/** Tables in the caller's memory equal tables in new memory. No other memory is written. */
class TableTest {
  @TempDir static Path folder;
  private static final List<AutoCloseable> OPEN = new ArrayList<>();
  private static Posenc posenc;
  private static Posenc small; // the client of a server whose answers have at most 4 KiB
  private static String address;

  @BeforeAll
  static void start() throws Exception {
    small = sharing("small", "--max-response-bytes", "4KiB");
    posenc = sharing("large");
  }

  private static Posenc sharing(String name, String... flags) throws Exception {
    String socket = "unix:" + folder.resolve(name);
    String prefix = "/dev/shm/posenc-test-java-tables-" + ProcessHandle.current().pid() + "-" + name;
    Server server = new Server(
        folder,
        Stream.concat(
            Arrays.stream(flags),
            Stream.of("--listen", "127.0.0.1:0", "--listen", socket, "--shared-memory-prefix", prefix))
            .toArray(String[]::new));
    address = server.address;
    OPEN.add(0, server);
    Posenc client = Posenc.connect(socket);
    OPEN.add(0, client);
    return client;
  }

  @AfterAll
  static void stop() throws Exception {
    for (AutoCloseable each : OPEN) each.close();
  }

  private static BuildTableRequest.Builder rotary(RopeSource rope, long rows) {
    return BuildTableRequest.newBuilder()
        .setRope(rope)
        .setPositions(TokenPositions.startAt(3))
        .setRows(rows);
  }

  private static BuildTableRequest.Builder absolute(AbsoluteEncoding.Builder encoding) {
    return BuildTableRequest.newBuilder()
        .setAbsolute(encoding)
        .setPositions(TokenPositions.startAt(1))
        .setRows(2);
  }

  /** Returns requests for tables of every kind. */
  private static Map<String, BuildTableRequest.Builder> tables() {
    RopeSource eight = Sources.ofWidth(8);
    RopeSource byHead = Sources.of(RopeSpec.newBuilder().setRotaryDim(4).setExplicitFrequencies(
        ExplicitFrequencies.newBuilder()
            .setHeads(3).addAllValues(List.of(1.0, 2.0, 3.0, 4.0, 5.0, 6.0))));
    Map<String, BuildTableRequest.Builder> all = new LinkedHashMap<>();
    all.put("half", rotary(eight, 5));
    all.put("duplicated", rotary(eight, 5)
        .setLayout(TableLayout.TABLE_LAYOUT_DUPLICATED).setDtype(Dtype.DTYPE_FLOAT16));
    all.put("repeated", rotary(eight, 5)
        .setLayout(TableLayout.TABLE_LAYOUT_PAIR_REPEATED).setDtype(Dtype.DTYPE_BFLOAT16));
    all.put("complex", rotary(eight, 5)
        .setLayout(TableLayout.TABLE_LAYOUT_COMPLEX).setDtype(Dtype.DTYPE_FLOAT64));
    all.put("by head", rotary(byHead, 5).setLayout(TableLayout.TABLE_LAYOUT_HALF));
    all.put("ids", rotary(eight, 0).setPositions(TokenPositions.ids(9, 2, 4)));
    all.put("packed", rotary(eight, 0).setPositions(TokenPositions.packed(0, 2, 5)));
    all.put("grid", absolute(AbsoluteEncoding.newBuilder().setSincosGrid(
        SincosGrid.newBuilder().setDim(8).addExtents(2).addExtents(3).setLeadingZeroRows(1)))
        .clearRows().clearPositions());
    all.put("sinusoidal", absolute(AbsoluteEncoding.newBuilder().setSinusoidal(
        Sinusoidal.newBuilder().setDim(7).setOrder(SinusoidalOrder.SINUSOIDAL_ORDER_SIN_COS))));
    all.put("timestep", absolute(
        AbsoluteEncoding.newBuilder().setTimestep(Timestep.newBuilder().setDim(6))));
    all.put("learned", absolute(AbsoluteEncoding.newBuilder().setLearned(
        LearnedTable.newBuilder().setTable(TensorView.of(new float[12], 4, 3).toMessage()))));
    all.put("fourier", absolute(AbsoluteEncoding.newBuilder().setFourierFeatures(
        FourierFeatures.newBuilder()
            .setFrequencies(TensorView.of(new float[] {0.5f, 2, 1}, 1, 3).toMessage()))));
    return all;
  }

  private static List<TensorView> tensors(Table table) {
    return Stream.of(table.cos(), table.sin(), table.table())
        .filter(Objects::nonNull)
        .collect(Collectors.toList());
  }

  private static void assertSameElements(TensorView expected, TensorView actual, String what) {
    assertArrayEquals(expected.shape(), actual.shape(), what);
    assertEquals(expected.toMessage().getData(), actual.toMessage().getData(), what);
  }

  @Test
  void tablesOfEveryKindGoToTheirPlaces() {
    tables().forEach((kind, request) -> {
      Table wire = posenc.buildTable(request.build());
      try (SharedRegion region = posenc.sharedRegion(8192)) {
        IntBuffer all = (IntBuffer) region.tensor(Dtype.DTYPE_INT32, 0, 2048).buffer();
        for (int i = 0; i < 2048; i++) all.put(i, 7);
        List<TensorView> expected = tensors(wire);
        TensorView[] out = new TensorView[expected.size()];
        for (int i = 0; i < out.length; i++) {
          out[i] = region.tensor(expected.get(i).dtype(), 4096L * i, expected.get(i).shape());
        }
        Table table = posenc.buildTable(request.build(), out);
        assertEquals(wire.amplitude(), table.amplitude());
        assertEquals(List.of(out), tensors(table), kind);
        for (int i = 0; i < out.length; i++) {
          assertSameElements(expected.get(i), out[i], kind);
          // The first whole element after the output is unchanged.
          assertEquals(7, all.get((int) (1024L * i + (out[i].bytes() + 3) / 4)), kind);
        }
      }
    });
  }

  /** Results in shared memory are not in the answer, so a table of any size needs no stream. */
  @Test
  void aTableInSharedMemoryIsNoLargeAnswer() {
    BuildTableRequest request = rotary(Sources.ofWidth(128), 300).build();
    BuildTableRequest preset = rotary(Sources.preset("llama-2-7b"), 300).build();
    try (SharedRegion region = small.sharedRegion(2 * 300 * 256)) {
      TensorView cos = region.tensor(Dtype.DTYPE_FLOAT32, 0, 300, 64);
      TensorView sin = region.tensor(Dtype.DTYPE_FLOAT32, 300 * 256, 300, 64);
      Table wire = small.buildTable(request);
      // Only the server knows the size of a preset's table.
      for (BuildTableRequest each : List.of(request, preset)) {
        Table table = small.buildTable(each, cos, sin);
        assertSame(cos, table.cos());
        assertSameElements(wire.cos(), cos, "cos");
        assertSameElements(wire.sin(), sin, "sin");
        ((FloatBuffer) cos.buffer()).put(new float[300 * 64]);
      }
    }
  }

  @Test
  void aTableGoesToArraysInOneMessageAndAsAStream() {
    for (Posenc client : List.of(posenc, small)) {
      ResolvedRope rope = client.rope("llama-2-7b");
      Table wire = rope.table(300);
      float[] cos = new float[300 * 64];
      float[] sin = new float[300 * 64];
      rope.table(300, TensorView.of(cos, 300, 64), TensorView.of(sin, 300, 64));
      assertArrayEquals(wire.cos().toFloatArray(), cos);
      assertArrayEquals(wire.sin().toFloatArray(), sin);
      Table half = rope.table(300, null, TensorView.of(cos, 300, 64));
      assertArrayEquals(sin, cos);
      assertArrayEquals(wire.cos().toFloatArray(), half.cos().toFloatArray());
      assertNull(half.table());
    }
  }

  private static void fails(String field, String text, Executable call) {
    PosencException e = assertThrows(PosencException.class, call);
    assertEquals("INVALID_ARGUMENT", e.code(), e.getMessage());
    assertEquals(field, e.field(), e.getMessage());
    assertTrue(e.getMessage().contains(text), e.getMessage());
  }

  @Test
  void outputsThatDoNotFitAreNamed() {
    ResolvedRope rope = posenc.rope("llama-2-7b");
    TensorView right = TensorView.of(new float[3 * 64], 3, 64);
    TensorView one = TensorView.of(new float[64], 1, 64);
    fails("cos_output", "has shape [1, 64]; must be [3, 64]", () -> rope.table(3, one, right));
    fails(
        "cos_output",
        "has 256 bytes; must have 768",
        () -> rope.table(3, TensorView.of(new float[64], 3, 64), right));
    fails(
        "sin_output",
        "is DTYPE_INT32; must be DTYPE_FLOAT32",
        () -> rope.table(3, right, TensorView.of(new int[3 * 64], 3, 64)));
    fails(
        "cos_output",
        "read-only",
        () -> rope.table(3, TensorView.of(FloatBuffer.allocate(192).asReadOnlyBuffer(), 3, 64), null));
    BuildTableRequest request = rotary(rope.source(), 3).build();
    fails(
        "out",
        "more tensors than the result, which has [cos, sin]",
        () -> posenc.buildTable(request, right, right, right));
    fails(
        "out",
        "more tensors than the result, which has [table]",
        () -> posenc.buildTable(
            request.toBuilder().setLayout(TableLayout.TABLE_LAYOUT_COMPLEX).build(), right, right));
    BuildTableRequest preset = rotary(Sources.preset("llama-2-7b"), 3).build();
    fails("cos_output", "must be [3, 64]", () -> posenc.buildTable(preset, one));
    fails(
        "cos_output",
        "must be [300, 64]",
        () -> small.buildTable(rotary(Sources.preset("llama-2-7b"), 300).build(), one));
  }

  private static Tensor ones(int... shape) {
    Tensor.Builder tensor = Tensor.newBuilder().setDtype(Dtype.DTYPE_FLOAT32);
    int count = 1;
    for (int extent : shape) count *= extent;
    for (int extent : shape) tensor.addShape(extent);
    return tensor.setData(TensorView.of(new float[count], count).toMessage().getData()).build();
  }

  private static void put(Result whole, List<Long> shape, Tensor part, long row, long column) {
    whole.put(part, shape, 1, 2, row, column);
  }

  @Test
  void partsThatDoNotMakeTheWholeAreAnError() {
    List<Long> shape = List.of(2L, 4L, 6L);
    Map<String, Consumer<Result>> parts = new LinkedHashMap<>();
    parts.put("parts are missing", whole -> put(whole, shape, ones(2, 4, 3), 0, 0));
    parts.put("or come twice", whole -> {
      for (int i = 0; i < 2; i++) put(whole, shape, ones(2, 4, 6), 0, 0);
    });
    parts.put("at row 2 that does not fit", whole -> put(whole, shape, ones(2, 3, 6), 2, 0));
    parts.put("at row -1 that does not fit", whole -> put(whole, shape, ones(2, 1, 6), -1, 0));
    parts.put("at row 0 that does not fit", whole -> put(whole, shape, ones(2, 4, 3), 0, 4));
    parts.put("at row 1 that does not fit", whole -> put(whole, shape, ones(1, 1, 6), 1, 0));
    parts.put("at row 3 that does not fit", whole -> put(whole, shape, ones(6), 3, 0));
    parts.put("has no shape", whole -> put(whole, List.of(), ones(2, 4, 6), 0, 0));
    parts.put("which is none", whole -> put(whole, List.of(-2L, 4L, 6L), ones(2, 4, 6), 0, 0));
    parts.put("does not fit", whole -> {});
    parts.forEach((text, put) -> {
      Result whole = new Result("tile", null);
      PosencException e = assertThrows(PosencException.class, () -> {
        put.accept(whole);
        whole.end();
      }, text);
      assertEquals("INTERNAL", e.code(), e.getMessage());
      assertTrue(e.getMessage().contains(text), e.getMessage());
    });
  }

  @Test
  void aResultWithMoreElementsThanAnArrayIsRefused() {
    PosencException e = assertThrows(
        PosencException.class,
        () -> new Result("table", null)
            .expect(Dtype.DTYPE_FLOAT8_E5M2, List.of(1L << 31, 1L)).allocate(1));
    assertEquals("RESOURCE_EXHAUSTED", e.code(), e.getMessage());
    assertTrue(e.getMessage().contains("array"), e.getMessage());
  }

  @Test
  void aTableThatTheServerCannotPlaceComesAsBytes() {
    try (Posenc remote = Posenc.connect(address); SharedRegion region = posenc.sharedRegion(96)) {
      ResolvedRope rope = remote.rope(Sources.ofWidth(8));
      TensorView cos = region.tensor(Dtype.DTYPE_FLOAT32, 0, 3, 4);
      TensorView sin = region.tensor(Dtype.DTYPE_FLOAT32, 48, 3, 4);
      Table wire = rope.table(3);
      rope.table(3, cos, sin);
      assertSameElements(wire.cos(), cos, "cos");
      assertSameElements(wire.sin(), sin, "sin");
    }
  }
}
