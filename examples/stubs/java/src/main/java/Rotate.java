import com.google.protobuf.ByteString;
import io.github.posenc.v1.ApplyRopeRequest;
import io.github.posenc.v1.ApplyRopeResponse;
import io.github.posenc.v1.Dtype;
import io.github.posenc.v1.Layout;
import io.github.posenc.v1.PositionalEncodingServiceGrpc;
import io.github.posenc.v1.Positions;
import io.github.posenc.v1.RopeSource;
import io.github.posenc.v1.Tensor;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.Metadata;
import io.grpc.stub.MetadataUtils;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** Rotates q with only generated code: mvn compile exec:java -Dexec.args=localhost:50051. */
public final class Rotate {
  /** The server's default limit; gRPC's is 4 MiB. */
  private static final int LIMIT = 512 << 20;

  public static void main(String[] arguments) throws InterruptedException {
    int elements = 1024 * 32 * 128; // 16 MiB
    // Java's buffers are big-endian by default, and the server cannot detect a wrong byte order.
    ByteBuffer q = ByteBuffer.allocate(4 * elements).order(ByteOrder.LITTLE_ENDIAN);
    for (int i = 0; i < elements; ++i) q.putFloat(4 * i, 1);
    ApplyRopeRequest request =
        ApplyRopeRequest.newBuilder()
            .setRope(RopeSource.newBuilder().setPreset("llama-3.1-8b"))
            .setPositions(Positions.newBuilder().setStart(0))
            .setLayout(Layout.LAYOUT_BSHD)
            .setQ(
                Tensor.newBuilder()
                    .setDtype(Dtype.DTYPE_FLOAT32)
                    .addAllShape(List.of(1L, 1024L, 32L, 128L))
                    .setData(ByteString.copyFrom(q)))
            .build();
    Metadata metadata = new Metadata();
    metadata.put(
        Metadata.Key.of("posenc-message-bytes", Metadata.ASCII_STRING_MARSHALLER),
        String.valueOf(request.getSerializedSize()));

    ManagedChannel channel =
        ManagedChannelBuilder.forTarget(arguments[0])
            .usePlaintext()
            .maxInboundMessageSize(LIMIT)
            .build();
    try {
      ApplyRopeResponse answer =
          PositionalEncodingServiceGrpc.newBlockingStub(channel)
              .withInterceptors(MetadataUtils.newAttachHeadersInterceptor(metadata))
              .withDeadlineAfter(30, TimeUnit.SECONDS)
              .applyRope(request);
      ByteString bytes = answer.getQ().getData();
      FloatBuffer rotated =
          bytes.asReadOnlyByteBuffer().order(ByteOrder.LITTLE_ENDIAN).asFloatBuffer();
      System.out.printf(
          "%d bytes, rotated; at position 0 %.0f, at position 1 %.6f%n",
          bytes.size(), rotated.get(0), rotated.get(32 * 128));
    } finally {
      channel.shutdown().awaitTermination(10, TimeUnit.SECONDS);
    }
  }
}
