package io.github.posenc;

import io.grpc.CallOptions;
import io.grpc.Drainable;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.InsecureServerCredentials;
import io.grpc.KnownLength;
import io.grpc.ManagedChannel;
import io.grpc.MethodDescriptor;
import io.grpc.Server;
import io.grpc.ServerServiceDefinition;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.ServerCalls;
import java.io.ByteArrayInputStream;
import java.io.Closeable;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.util.concurrent.TimeUnit;

/**
 * Measures grpc-java alone: a unary call to an echo server in another process. A client that uses
 * grpc-java cannot make a unary call faster. The flow-control window is as large as the client's.
 * Each side copies a message once when it sends and once when it receives, which is the minimum.
 */
final class Echo implements Closeable {
  private static final int WINDOW_BYTES = 4 << 20;

  private static final MethodDescriptor.Marshaller<byte[]> BYTES =
      new MethodDescriptor.Marshaller<byte[]>() {
        @Override
        public InputStream stream(byte[] message) {
          return new Array(message);
        }

        @Override
        public byte[] parse(InputStream stream) {
          try {
            byte[] message = new byte[stream.available()];
            stream.readNBytes(message, 0, message.length);
            return message;
          } catch (IOException e) {
            throw new UncheckedIOException(e);
          }
        }
      };

  private static final MethodDescriptor<byte[], byte[]> METHOD =
      MethodDescriptor.newBuilder(BYTES, BYTES)
          .setType(MethodDescriptor.MethodType.UNARY)
          .setFullMethodName("echo/Echo")
          .build();

  private final Process server;
  private final ManagedChannel channel;

  /** Starts the server. */
  Echo() throws IOException {
    // The server's Java virtual machine gets the options of this virtual machine.
    ProcessBuilder command = new ProcessBuilder(ProcessHandle.current().info().command().orElseThrow());
    command.command().addAll(
        java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments());
    command.command().add("-cp");
    command.command().add(System.getProperty("java.class.path"));
    command.command().add(Echo.class.getName());
    server = command.redirectError(ProcessBuilder.Redirect.INHERIT).start();
    StringBuilder port = new StringBuilder();
    for (int c = server.getInputStream().read(); c > '\n'; c = server.getInputStream().read()) {
      port.append((char) c);
    }
    channel = ((NettyChannelBuilder)
        Grpc.newChannelBuilder("127.0.0.1:" + port, InsecureChannelCredentials.create()))
            .flowControlWindow(WINDOW_BYTES)
            .maxInboundMessageSize(Integer.MAX_VALUE)
            .build();
  }

  byte[] call(byte[] message) {
    return ClientCalls.blockingUnaryCall(channel, METHOD, CallOptions.DEFAULT, message);
  }

  @Override
  public void close() {
    channel.shutdownNow();
    server.destroy();
  }

  /** Serves until standard input ends, which happens when the process that started it ends. */
  public static void main(String[] args) throws Exception {
    Server server = ((NettyServerBuilder)
        Grpc.newServerBuilderForPort(0, InsecureServerCredentials.create()))
            .flowControlWindow(WINDOW_BYTES)
            .maxInboundMessageSize(Integer.MAX_VALUE)
            .addService(ServerServiceDefinition.builder("echo")
                .addMethod(METHOD, ServerCalls.asyncUnaryCall((message, answer) -> {
                  answer.onNext(message);
                  answer.onCompleted();
                }))
                .build())
            .build()
            .start();
    System.out.println(server.getPort());
    while (System.in.read() >= 0) continue;
    server.shutdownNow().awaitTermination(1, TimeUnit.SECONDS);
  }

  private static final class Array extends ByteArrayInputStream implements KnownLength, Drainable {
    Array(byte[] bytes) {
      super(bytes);
    }

    @Override
    public int drainTo(OutputStream out) throws IOException {
      int bytes = available();
      out.write(buf, pos, bytes);
      pos = count;
      return bytes;
    }
  }
}
