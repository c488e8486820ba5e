package io.github.posenc;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Message;
import com.google.protobuf.util.JsonFormat;
import io.github.posenc.v1.AddEncodingRequest;
import io.github.posenc.v1.AddEncodingResponse;
import io.github.posenc.v1.AnalyzeRopeRequest;
import io.github.posenc.v1.ApplyRopeRequest;
import io.github.posenc.v1.ApplyRopeResponse;
import io.github.posenc.v1.BuildBiasRequest;
import io.github.posenc.v1.BuildBiasResponse;
import io.github.posenc.v1.BuildPositionsRequest;
import io.github.posenc.v1.BuildTableRequest;
import io.github.posenc.v1.BuildTableResponse;
import io.github.posenc.v1.ConvertPairingRequest;
import io.github.posenc.v1.ConvertPairingResponse;
import io.github.posenc.v1.DiagnoseRopeRequest;
import io.github.posenc.v1.Dtype;
import io.github.posenc.v1.RepositionRequest;
import io.github.posenc.v1.RepositionResponse;
import io.github.posenc.v1.ResolveRopeRequest;
import io.github.posenc.v1.ScoreRelativeRequest;
import io.github.posenc.v1.ScoreRelativeResponse;
import java.math.BigDecimal;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** Replays the vectors of proto/testdata/conformance through the client's methods. */
final class Conformance {
  private final Posenc posenc;

  Conformance(Posenc posenc) {
    this.posenc = posenc;
  }

  /** Prints a line for each case. Returns the number of failed cases, or -1 without cases. */
  int run(Path folder) throws Exception {
    List<Path> files;
    try (Stream<Path> all = Files.list(folder)) {
      files = all.filter(f -> f.toString().endsWith(".json")).sorted().collect(Collectors.toList());
    }
    int failed = 0;
    int cases = 0;
    for (Path file : files) {
      String family = file.getFileName().toString().replace(".json", "");
      for (JsonElement element : JsonParser.parseString(Files.readString(file)).getAsJsonArray()) {
        JsonObject vector = element.getAsJsonObject();
        String why = replay(vector);
        cases++;
        if (!why.isEmpty()) failed++;
        System.out.printf("%s\t%s\t%s\t%s%n", family, vector.get("name").getAsString(),
            why.isEmpty() ? "ok" : "fail", why.replace('\n', ' ').replace('\t', ' '));
      }
    }
    return cases == 0 ? -1 : failed;
  }

  /** Returns why the case fails, or "" if it passes. */
  String replay(JsonObject vector) {
    JsonElement expect = vector.get("expect");
    try {
      Map<String, Object> answer = answer(
          vector.get("rpc").getAsString(), vector.getAsJsonObject("request"));
      if (!expect.isJsonArray()) return "no error; expected " + expect;
      for (JsonElement one : expect.getAsJsonArray()) {
        String why = compare(one.getAsJsonObject(), answer);
        if (!why.isEmpty()) return one.getAsJsonObject().get("path").getAsString() + ": " + why;
      }
      return "";
    } catch (PosencException e) {
      if (!expect.isJsonObject()) return e.code() + " " + e.getMessage();
      String told = "{\"code\":\"" + e.code() + "\",\"reason\":\"ERROR_REASON_" + e.reason()
          + "\",\"field\":\"" + e.field() + "\"}";
      return JsonParser.parseString(told).equals(expect) ? "" : "is " + told + ", not " + expect;
    } catch (Exception e) {
      return e.toString();
    }
  }

  // ---- Calls ---------------------------------------------------------------------------------

  // Returns the answer: each tensor under the name of its field, and the message under "".
  private Map<String, Object> answer(String rpc, JsonObject request) throws Exception {
    Message message;
    switch (rpc) {
      case "ResolveRope":
        return of(posenc.resolveRope(parse(request, ResolveRopeRequest.newBuilder()).build()));
      case "AnalyzeRope":
        return of(posenc.analyzeRope(parse(request, AnalyzeRopeRequest.newBuilder()).build()));
      case "DiagnoseRope":
        return of(posenc.diagnoseRope(parse(request, DiagnoseRopeRequest.newBuilder()).build()));
      case "BuildPositions":
        return of(posenc.buildPositions(parse(request, BuildPositionsRequest.newBuilder()).build()));
      case "BuildTable":
        Table table = posenc.buildTable(parse(request, BuildTableRequest.newBuilder()).build());
        return of(
            BuildTableResponse.newBuilder().setAmplitude(table.amplitude()).build(),
            "cos", table.cos(), "sin", table.sin(), "table", table.table());
      case "BuildBias":
        BuildBiasRequest bias = parse(request, BuildBiasRequest.newBuilder()).build();
        return of(BuildBiasResponse.getDefaultInstance(), "tile", posenc.buildBias(bias));
      case "ApplyRope":
        ApplyRopeRequest.Builder apply = parse(request, ApplyRopeRequest.newBuilder());
        if (!moves(apply)) {
          message = posenc.call(rpc, apply.build(), ApplyRopeResponse.getDefaultInstance());
          return of(message);
        }
        TensorView q = take(apply, "q");
        TensorView k = take(apply, "k");
        Rotated rotated = posenc.applyRope(apply.build(), q, k);
        return of(ApplyRopeResponse.getDefaultInstance(), "q", rotated.q(), "k", rotated.k());
      case "Reposition":
        RepositionRequest.Builder move = parse(request, RepositionRequest.newBuilder());
        if (!moves(move)) {
          return of(posenc.call(rpc, move.build(), RepositionResponse.getDefaultInstance()));
        }
        TensorView keys = take(move, "k");
        return of(RepositionResponse.getDefaultInstance(), "k", posenc.reposition(move.build(), keys));
      case "AddEncoding":
        AddEncodingRequest.Builder add = parse(request, AddEncodingRequest.newBuilder());
        if (!moves(add)) {
          return of(posenc.call(rpc, add.build(), AddEncodingResponse.getDefaultInstance()));
        }
        TensorView x = take(add, "x");
        return of(AddEncodingResponse.getDefaultInstance(), "x", posenc.addEncoding(add.build(), x));
      case "ScoreRelative":
        ScoreRelativeRequest.Builder score = parse(request, ScoreRelativeRequest.newBuilder());
        if (!moves(score)) {
          return of(posenc.call(rpc, score.build(), ScoreRelativeResponse.getDefaultInstance()));
        }
        TensorView queries = take(score, "q");
        keys = take(score, "k");
        return of(ScoreRelativeResponse.getDefaultInstance(),
            "scores", posenc.scoreRelative(score.build(), queries, keys));
      case "ConvertPairing":
        ConvertPairingRequest.Builder convert = parse(request, ConvertPairingRequest.newBuilder());
        if (!moves(convert)) {
          return of(posenc.call(rpc, convert.build(), ConvertPairingResponse.getDefaultInstance()));
        }
        TensorView weight = take(convert, "weight");
        return of(ConvertPairingResponse.getDefaultInstance(),
            "weight", posenc.convertPairing(convert.build(), weight));
      default:
        throw new IllegalArgumentException("no such RPC: " + rpc);
    }
  }

  private static <B extends Message.Builder> B parse(JsonObject json, B builder) throws Exception {
    JsonFormat.parser().merge(json.toString(), builder);
    return builder;
  }

  private static Map<String, Object> of(Message message, Object... tensors) {
    Map<String, Object> answer = new HashMap<>();
    answer.put("", message);
    for (int i = 0; i < tensors.length; i += 2) answer.put((String) tensors[i], tensors[i + 1]);
    return answer;
  }

  // Returns whether no tensor is malformed, so that all tensors can be TensorViews.
  private static boolean moves(Message.Builder request) {
    for (FieldDescriptor field : request.getDescriptorForType().getFields()) {
      if (!isTensor(field) || !request.hasField(field)) continue;
      io.github.posenc.v1.Tensor tensor = (io.github.posenc.v1.Tensor) request.getField(field);
      long count = 1;
      for (long extent : tensor.getShapeList()) count *= extent;
      if (Elements.of(tensor.getDtype()) == null || tensor.getValuesCount() != count) return false;
      if (!tensor.getData().isEmpty()) return false;
    }
    return true;
  }

  private static boolean isTensor(FieldDescriptor field) {
    return field.getJavaType() == FieldDescriptor.JavaType.MESSAGE
        && field.getMessageType().equals(io.github.posenc.v1.Tensor.getDescriptor());
  }

  // Removes a tensor from a request, and returns it, or null if the request has no such tensor.
  private static TensorView take(Message.Builder request, String name) {
    FieldDescriptor field = request.getDescriptorForType().findFieldByName(name);
    if (!request.hasField(field)) return null;
    io.github.posenc.v1.Tensor tensor = (io.github.posenc.v1.Tensor) request.getField(field);
    request.clearField(field);
    return Numbers.tensor(
        tensor.getDtype(),
        tensor.getValuesList().stream().mapToDouble(Double::doubleValue).toArray(),
        tensor.getShapeList().stream().mapToLong(Long::longValue).toArray());
  }

  // ---- Answers -------------------------------------------------------------------------------

  private static String compare(JsonObject expect, Map<String, Object> answer) {
    String path = expect.get("path").getAsString();
    Object found = answer.containsKey(path) ? answer.get(path) : at((Message) answer.get(""), path);
    if (found instanceof io.github.posenc.v1.Tensor) {
      found = TensorView.of((io.github.posenc.v1.Tensor) found);
    }
    List<Long> shape = new ArrayList<>();
    expect.getAsJsonArray("shape").forEach(extent -> shape.add(extent.getAsLong()));
    JsonArray values = expect.getAsJsonArray("values");
    Dtype dtype = Dtype.DTYPE_FLOAT64;
    List<Object> got = new ArrayList<>();
    if (expect.has("dtype")) {
      if (!(found instanceof TensorView)) return "is no tensor";
      TensorView tensor = (TensorView) found;
      dtype = tensor.dtype();
      if (!dtype.name().equals(expect.get("dtype").getAsString())) return "is of " + dtype;
      List<Long> is = new ArrayList<>();
      for (long extent : tensor.shape()) is.add(extent);
      if (!is.equals(shape)) return "has shape " + is + ", not " + shape;
      for (double value : Numbers.doubles(tensor)) got.add(value);
    } else if (found instanceof List) {
      got.addAll((List<?>) found);
      if (!shape.equals(List.of((long) got.size()))) return "has " + got.size() + " elements";
    } else {
      got.add(found);
      if (!shape.isEmpty()) return "is one value";
    }
    if (got.size() != values.size()) return got.size() + " values, not " + values.size();
    for (int i = 0; i < got.size(); i++) {
      String truth = values.get(i).getAsString();
      if (!within(got.get(i), truth, dtype, expect.getAsJsonObject("bound"), i)) {
        return "element " + i + " is " + got.get(i) + ", not " + truth;
      }
    }
    return "";
  }

  private static Object at(Message message, String path) {
    Object here = message;
    for (String name : path.split("\\.")) {
      if (here instanceof List) {
        here = ((List<?>) here).get(Integer.parseInt(name));
        continue;
      }
      Descriptor type = ((Message) here).getDescriptorForType();
      FieldDescriptor field = type.getFields().stream()
          .filter(f -> f.getJsonName().equals(name)).findFirst().orElseThrow();
      here = ((Message) here).getField(field);
    }
    return here;
  }

  private static boolean within(Object got, String truth, Dtype dtype, JsonObject bound, int i) {
    String kind = bound.get("kind").getAsString();
    if (!(got instanceof Number)) return kind.equals("exact") && got.toString().equals(truth);
    double a = ((Number) got).doubleValue();
    if (Double.isInfinite(a) || truth.endsWith("Infinity")) {
      return !Double.isNaN(a) && a == Double.parseDouble(truth);
    }
    if (Double.isNaN(a)) return false;
    BigDecimal exact = new BigDecimal(truth);
    BigDecimal off = new BigDecimal(got instanceof Long ? got.toString() : new BigDecimal(a).toString())
        .subtract(exact).abs();
    double value = bound.has("value") ? bound.get("value").getAsDouble() : 0;
    switch (kind) {
      case "exact":
        return got instanceof Long ? off.signum() == 0 : a == Numbers.rounded(dtype, truth);
      case "ulp":
        return Numbers.steps(dtype, a, Numbers.rounded(dtype, truth)) <= value;
      case "absolute":
        return off.compareTo(new BigDecimal(value)) <= 0;
      case "relative":
        return off.compareTo(new BigDecimal(value).multiply(exact.abs())) <= 0;
      case "scaled":
        BigDecimal most = new BigDecimal(value)
            .multiply(bound.getAsJsonArray("scales").get(i).getAsBigDecimal());
        double larger = Math.max(Math.abs(a), Math.abs(exact.doubleValue()));
        most = most.add(new BigDecimal(bound.get("ulps").getAsDouble())
            .multiply(new BigDecimal(Numbers.ulp(dtype, larger))));
        return off.compareTo(most) <= 0;
      default:
        throw new IllegalArgumentException("no such bound: " + kind);
    }
  }
}
