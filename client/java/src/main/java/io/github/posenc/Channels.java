package io.github.posenc;

import com.google.gson.Gson;
import io.grpc.*;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.shaded.io.netty.channel.ChannelOption;
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/** The connections of a client, made on demand: calls use them in turn. */
final class Channels {
  // About one chunk of a stream. With gRPC's default of 1 MiB, streams took a tenth longer; 16 MiB
  // and 64 MiB gained nothing.
  private static final int WINDOW_BYTES = 4 << 20;

  private final PosencBuilder options;
  private final ManagedChannel[] channels;
  private ManagedChannel once; // without retries; null until its first use
  private int turn;
  private boolean closed;

  Channels(PosencBuilder options) {
    this.options = options;
    this.channels = new ManagedChannel[Math.max(options.connections, 1)];
    this.channels[0] = create(true); // reports wrong options now
  }

  /**
   * Returns the next channel.
   *
   * @param onlyOnce the call must not be sent a second time: retries are an option of the channel
   */
  synchronized ManagedChannel next(boolean onlyOnce) {
    if (closed) {
      throw PosencException.local(Status.Code.CANCELLED, "the client is closed; make another one");
    }
    if (onlyOnce) {
      if (once == null) once = create(false);
      return once;
    }
    int index = turn;
    turn = (turn + 1) % channels.length;
    if (channels[index] == null) channels[index] = create(true);
    return channels[index];
  }

  synchronized void close() {
    closed = true;
    if (once != null) once.shutdownNow();
    for (ManagedChannel channel : channels) {
      if (channel != null) channel.shutdownNow();
    }
  }

  private ManagedChannel create(boolean retries) {
    try {
      ManagedChannelBuilder<?> builder =
          Grpc.newChannelBuilder(options.target, credentials())
              .userAgent("posenc-java/" + Posenc.VERSION)
              .maxInboundMessageSize(options.maxMessageBytes)
              // Tensors do not compress: the client neither offers nor accepts compression, not
              // even by name.
              .decompressorRegistry(
                  DecompressorRegistry.emptyInstance().with(Codec.Identity.NONE, false))
              // A call that has sent more than this is not retried. gRPC keeps references to the
              // caller's memory, not copies.
              .retryBufferSize(Long.MAX_VALUE)
              .perRpcBufferLimit(Integer.MAX_VALUE);
      if (retries) {
        builder.enableRetry();
      } else {
        builder.disableRetry();
      }
      configure(builder);
      if (options.serverName != null) builder.overrideAuthority(options.serverName);
      if (builder instanceof NettyChannelBuilder) {
        NettyChannelBuilder netty = (NettyChannelBuilder) builder;
        netty.flowControlWindow(WINDOW_BYTES);
        // gRPC sets TCP's keepalive, which Netty cannot set on a unix socket: it would log a
        // warning for every connection. Null removes the option.
        if (options.target.startsWith("unix:")) netty.withOption(ChannelOption.SO_KEEPALIVE, null);
      }
      return builder.build();
    } catch (IllegalArgumentException e) { // also of files of TLS that hold no PEM
      throw PosencException.invalid("target", options.target + ": " + e.getMessage());
    }
  }

  private void configure(ManagedChannelBuilder<?> builder) {
    try {
      builder.defaultServiceConfig(
          options.serviceConfig == null ? published() : options.serviceConfig);
    } catch (RuntimeException e) { // of several kinds
      throw PosencException.invalid("service_config", "is none of gRPC's: " + e.getMessage());
    }
  }

  @SuppressWarnings("unchecked")
  private static Map<String, ?> published() {
    try (InputStream file = Channels.class.getResourceAsStream("service_config.json");
         Reader reader = new InputStreamReader(file, StandardCharsets.UTF_8)) {
      return new Gson().fromJson(reader, Map.class);
    } catch (IOException e) {
      throw new IllegalStateException("the jar's service_config.json cannot be read", e);
    }
  }

  private ChannelCredentials credentials() {
    if (!options.tls) return InsecureChannelCredentials.create();
    TlsChannelCredentials.Builder tls = TlsChannelCredentials.newBuilder();
    String option = "tls.ca_file";
    try {
      if (options.caFile != null) tls.trustManager(options.caFile.toFile());
      option = "tls.cert_file";
      if (options.certFile != null) {
        tls.keyManager(options.certFile.toFile(), options.keyFile.toFile());
      }
      return tls.build();
    } catch (IOException e) {
      throw PosencException.invalid(option, e.getMessage());
    }
  }
}
