package io.github.posenc;

import com.google.gson.JsonObject;
import io.github.posenc.v1.ApplyRopeRequest;
import io.github.posenc.v1.Dtype;
import io.github.posenc.v1.Layout;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Map;

/** The program that client/java/run uses in addition to the tests. It is not in the jar. */
public final class Drive {
  // The benchmarks of all clients make unmeasured calls first. Two seconds are enough without a
  // just-in-time compiler, but HotSpot compiles for five seconds, in a thread that competes with
  // the calls.
  private static final double WARM_UP_SECONDS = 6;

  private Drive() {}

  public static void main(String[] args) throws Exception {
    int failed = 0;
    switch (args[0]) {
      case "conformance":
        try (Posenc posenc = Posenc.connect(args[1])) {
          failed = new Conformance(posenc).run(Path.of(args[2]));
        }
        break;
      case "errors":
        failed = new ErrorCases(Path.of(args[2])).run(Path.of(args[1]));
        break;
      case "bench":
        bench(args[1], args[2]);
        break;
      case "hop":
        hop(args[1], Path.of(args[2]), Path.of(args[3]), Long.parseLong(args[4]));
        break;
      default:
        throw new IllegalArgumentException(args[0]);
    }
    System.exit(failed == 0 ? 0 : 1);
  }

  // The benchmarks of all clients have these cases. unary64 is an applyRope with default options,
  // which sends 64 MiB as a stream. token1 rotates one token, so its peak memory is the memory of
  // the program without large tensors. echo64 and echo1 measure grpc-java alone.
  private static void bench(String target, String name) throws Exception {
    int mib = Map.of(
        "unary64", 64, "unary1", 1, "token1", 0, "stream256", 256, "echo64", 64, "echo1", 1)
        .get(name);
    int calls = mib == 256 ? 2 : 5;
    if (name.startsWith("echo")) {
      byte[] message = new byte[mib << 20];
      try (Echo echo = new Echo()) {
        measure(name, message.length, calls, () -> echo.call(message));
      }
      return;
    }
    float[] q = new float[mib == 0 ? 4096 : mib << 18];
    for (int i = 0; i < q.length; i++) q[i] = (i % 1000) / 500f - 1;
    float[] out = new float[q.length];
    long[] shape = {1, q.length / 4096, 32, 128};
    PosencBuilder builder = Posenc.builder(target);
    if (name.startsWith("stream")) builder.streamAboveBytes(0);
    ApplyRopeRequest request = ApplyRopeRequest.newBuilder()
        .setRope(Sources.HALF_SPLIT)
        .setPositions(TokenPositions.startAt(0))
        .setLayout(Layout.LAYOUT_BSHD)
        .build();
    try (Posenc posenc = builder.connect()) {
      measure(name, 4L * q.length, calls, () ->
          posenc.applyRope(request, TensorView.of(q, shape), null, TensorView.of(out, shape), null));
    }
  }

  private static void measure(String name, long tensorBytes, int measured, Runnable call)
      throws IOException {
    double[] seconds = new double[measured];
    double first = 0;
    long begin = System.nanoTime();
    for (int calls = 0, done = 0; done < measured; calls++) {
      long start = System.nanoTime();
      call.run();
      double took = (System.nanoTime() - start) / 1e9;
      if (calls == 0) first = took;
      boolean warm = (start - begin) / 1e9 >= WARM_UP_SECONDS;
      if (warm) seconds[done++] = took;
    }
    Arrays.sort(seconds);
    long peak = 0;
    for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
      if (line.startsWith("VmHWM:")) peak = Long.parseLong(line.replaceAll("[^0-9]", "")) * 1024;
    }
    JsonObject json = new JsonObject();
    json.addProperty("client", "java");
    json.addProperty("case", name);
    json.addProperty("seconds", seconds[measured / 2]);
    json.addProperty("first_seconds", first);
    json.addProperty("peak_bytes", peak);
    json.addProperty("tensor_bytes", tensorBytes);
    System.out.println(json);
  }

  private static void hop(String target, Path in, Path out, long shift) throws Exception {
    ByteBuffer bytes = ByteBuffer.wrap(Files.readAllBytes(in));
    try (Posenc posenc = Posenc.connect(target)) {
      posenc.rope(Sources.HALF_SPLIT)
          .reposition(Layout.LAYOUT_BSHD, shift, TensorView.of(Dtype.DTYPE_BFLOAT16, bytes, 1, 16, 2, 64));
    }
    Files.write(out, bytes.array());
  }
}
