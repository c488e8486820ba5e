package io.github.posenc;

import com.google.gson.Gson;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.gson.JsonPrimitive;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.util.JsonFormat;
import io.github.posenc.v1.ApplyRopeRequest;
import io.github.posenc.v1.BuildTableRequest;
import io.github.posenc.v1.Dtype;
import io.github.posenc.v1.Layout;
import io.github.posenc.v1.Positions;
import io.github.posenc.v1.RopeSource;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/** Replays the table of error cases. All clients must report the same errors. */
final class ErrorCases {
  private final Map<String, String> environment = new HashMap<>();

  ErrorCases(Path environmentFile) throws Exception {
    for (String line : Files.readAllLines(environmentFile)) {
      int equals = line.indexOf('=');
      if (equals > 0) environment.put(line.substring(0, equals), line.substring(equals + 1));
    }
  }

  /** Prints a line for each case. Returns the number of failed cases, or -1 without cases. */
  int run(Path table) throws Exception {
    JsonArray cases = JsonParser.parseString(Files.readString(table)).getAsJsonArray();
    int failed = 0;
    for (JsonElement element : cases) {
      JsonObject one = element.getAsJsonObject();
      if (one.has("only") && !one.getAsJsonArray("only").contains(new JsonPrimitive("java"))) continue;
      String why = replay(one);
      if (!why.isEmpty()) failed++;
      System.out.printf("errors\t%s\t%s\t%s%n", one.get("name").getAsString(),
          why.isEmpty() ? "ok" : "fail", why.replace('\n', ' ').replace('\t', ' '));
    }
    return cases.size() == 0 ? -1 : failed;
  }

  private String replay(JsonObject one) {
    try (Posenc posenc = client(one)) {
      JsonObject arguments = one.has("arguments") ? one.getAsJsonObject("arguments") : new JsonObject();
      switch (one.get("call").getAsString()) {
        case "info":
          posenc.getServerInfo();
          return "no error";
        case "table":
          table(posenc, arguments);
          return "no error";
        case "rotate":
          String wrong = rotate(posenc, arguments);
          return one.getAsJsonObject("expect").get("code").getAsString().equals("OK") ? wrong : "no error";
        default:
          return one.get("call") + " is no call";
      }
    } catch (PosencException e) {
      return compare(one.getAsJsonObject("expect"), e);
    } catch (RuntimeException | InvalidProtocolBufferException e) {
      return e.toString();
    }
  }

  private Posenc client(JsonObject one) {
    JsonObject options = one.has("options") ? one.getAsJsonObject("options") : new JsonObject();
    PosencBuilder builder = Posenc.builder(known(one.get("server").getAsString()));
    if (options.has("tls") && options.get("tls").getAsBoolean()) builder.tls();
    if (options.has("ca")) {
      builder.trust(Path.of(known(options.get("ca").getAsString().equals("right") ? "ca" : "wrong_ca")));
    }
    if (options.has("token")) builder.token(known("token_" + options.get("token").getAsString()));
    if (options.has("timeout")) {
      builder.timeout(Duration.ofMillis((long) (options.get("timeout").getAsDouble() * 1000)));
    }
    return builder.connect();
  }

  private String known(String name) {
    String value = environment.get(name.toUpperCase(Locale.ROOT));
    if (value == null) throw new IllegalStateException(name + ": not in the environment file");
    return value;
  }

  private static void table(Posenc posenc, JsonObject arguments)
      throws InvalidProtocolBufferException {
    posenc.buildTable(BuildTableRequest.newBuilder()
        .setRope(rope(arguments.get("rope")))
        .setPositions(TokenPositions.startAt(0))
        .setRows(arguments.get("rows").getAsLong())
        .build());
  }

  /** Makes the call. Returns what is wrong with its result, or "". */
  private static String rotate(Posenc posenc, JsonObject arguments)
      throws InvalidProtocolBufferException {
    long[] shape = {1, 4, 2, 8};
    if (arguments.has("shape")) {
      List<JsonElement> extents = arguments.getAsJsonArray("shape").asList();
      shape = extents.stream().mapToLong(JsonElement::getAsLong).toArray();
    }
    String dtype = arguments.has("dtype") ? arguments.get("dtype").getAsString() : "float32";
    Positions positions = TokenPositions.startAt(
        arguments.has("start") ? arguments.get("start").getAsLong() : 0);
    if (arguments.has("ids")) {
      double[] ids = arguments.getAsJsonArray("ids").asList().stream()
          .mapToDouble(id -> Double.parseDouble(id.getAsString())).toArray();
      positions = TokenPositions.ids(TensorView.of(ids, ids.length));
    }
    ApplyRopeRequest.Builder request =
        ApplyRopeRequest.newBuilder().setLayoutValue(layout(arguments.get("layout")));
    if (!isNull(arguments, "rope")) request.setRope(rope(arguments.get("rope")));
    if (!isNull(arguments, "positions")) request.setPositions(positions);
    if (arguments.has("memory")) return bigEndian(posenc, request.build());
    TensorView q = null;
    if (arguments.has("bytes")) {
      q = TensorView.of(typeOf(dtype), ByteBuffer.allocate(arguments.get("bytes").getAsInt()), shape);
    } else if (!isNull(arguments, "q")) {
      q = TensorView.allocate(typeOf(dtype), shape);
    }
    JsonObject out = arguments.getAsJsonObject("out");
    if (out == null) {
      posenc.applyRope(request.build(), q, null);
      return "";
    }
    TensorView memory = TensorView.allocate(
        typeOf(out.has("dtype") ? out.get("dtype").getAsString() : dtype),
        out.has("shape") ? new Gson().fromJson(out.get("shape"), long[].class) : shape);
    if (out.has("read_only")) memory = TensorView.of(((FloatBuffer) memory.buffer()).asReadOnlyBuffer(), shape);
    boolean ofK = out.has("of");
    posenc.applyRope(request.build(), q, null, ofK ? null : memory, ofK ? memory : null);
    return "";
  }

  private static boolean isNull(JsonObject arguments, String name) {
    return arguments.has(name) && arguments.get(name).isJsonNull();
  }

  private static Dtype typeOf(String name) {
    return Dtype.valueOf("DTYPE_" + name.toUpperCase(Locale.ROOT));
  }

  // Checks that a big-endian buffer gives the same result as an array of the same numbers.
  private static String bigEndian(Posenc posenc, ApplyRopeRequest request) {
    float[] plain = new float[64];
    for (int i = 0; i < plain.length; i++) plain[i] = i;
    FloatBuffer swapped = ByteBuffer.allocate(4 * plain.length).order(ByteOrder.BIG_ENDIAN).asFloatBuffer();
    swapped.duplicate().put(plain);
    float[] wanted = posenc.applyRope(request, TensorView.of(plain, 1, 4, 2, 8), null).q().toFloatArray();
    float[] got = posenc.applyRope(request, TensorView.of(swapped, 1, 4, 2, 8), null).q().toFloatArray();
    return Arrays.equals(wanted, got) ? "" : "the result is another";
  }

  // Reads the name of a preset, or the fields of a specification.
  private static RopeSource rope(JsonElement rope) throws InvalidProtocolBufferException {
    if (rope == null) return Sources.HALF_SPLIT;
    if (rope.isJsonPrimitive()) return Sources.preset(rope.getAsString());
    RopeSource.Builder source = RopeSource.newBuilder();
    String spec = rope.toString().replace("half_split", "PAIRING_HALF_SPLIT");
    JsonFormat.parser().merge(spec, source.getSpecBuilder());
    return source.build();
  }

  // Returns the number of a layout in requests, or 0 for null. An unknown name gets a number that
  // the contract does not have, like a value of a newer contract.
  private static int layout(JsonElement layout) {
    if (layout == null) return Layout.LAYOUT_BSHD_VALUE;
    if (layout.isJsonNull()) return 0;
    String name = "LAYOUT_" + layout.getAsString().toUpperCase(Locale.ROOT);
    for (Layout known : Layout.values()) {
      if (known.name().equals(name)) return known.getNumber();
    }
    return 99;
  }

  private static String compare(JsonObject expect, PosencException error) {
    String said = error.code() + " " + error.reason() + " " + error.field() + ": " + error.getMessage();
    if (!List.of(expect.get("code").getAsString().split("\\|")).contains(error.code())) return said;
    if (expect.has("reason") && !expect.get("reason").getAsString().equals(error.reason())) return said;
    if (expect.has("field") && !expect.get("field").getAsString().equals(error.field())) return said;
    if (expect.has("text")) {
      for (JsonElement text : expect.getAsJsonArray("text")) {
        if (!error.getMessage().contains(text.getAsString())) return said;
      }
    }
    return "";
  }
}
