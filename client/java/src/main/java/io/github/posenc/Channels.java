package io.github.posenc;

import com.google.gson.Gson;
import io.grpc.ChannelCredentials;
import io.grpc.Codec;
import io.grpc.DecompressorRegistry;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.Status;
import io.grpc.TlsChannelCredentials;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.shaded.io.netty.channel.ChannelOption;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.Reader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;

/**
 * The connections of a client, made on demand: small calls share one, large calls use several in
 * turn. On a single connection, concurrent large calls would delay each other.
 */
final class Channels {
  // About one chunk of a stream. With gRPC's default of 1 MiB, streams took a tenth longer; 16 MiB
  // and 64 MiB gained nothing.
  private static final int WINDOW_BYTES = 4 << 20;

  private final PosencBuilder options;
  private final ManagedChannel small;
  private final ManagedChannel[] bulk;
  private ManagedChannel once; // without retries; null until its first use
  private int turn;
  private volatile boolean closed;

  Channels(PosencBuilder options) {
    this.options = options;
    this.small = create(true);
    this.bulk = new ManagedChannel[Math.max(options.bulkChannels, 0)];
  }

  ManagedChannel small() {
    if (closed) {
      throw PosencException.local(
          Status.Code.CANCELLED, "the client is closed; make another one", "");
    }
    return small;
  }

  synchronized ManagedChannel bulk() {
    if (bulk.length == 0 || closed) return small();
    int index = turn;
    turn = (turn + 1) % bulk.length;
    if (bulk[index] == null) bulk[index] = create(true);
    return bulk[index];
  }

  /**
   * Returns the channel for calls that must not be sent a second time: in gRPC, retries are an
   * option of the channel.
   */
  synchronized ManagedChannel once() {
    if (closed) return small();
    if (once == null) once = create(false);
    return once;
  }

  synchronized void close() {
    closed = true;
    if (once != null) once.shutdownNow();
    small.shutdownNow();
    for (ManagedChannel channel : bulk) {
      if (channel != null) channel.shutdownNow();
    }
  }

  private ManagedChannel create(boolean retries) {
    int maxBytes = (int) Math.max(0, Math.min(options.maxMessageBytes, Integer.MAX_VALUE));
    ManagedChannelBuilder<?> builder;
    try {
      builder = Grpc.newChannelBuilder(options.target, credentials());
    } catch (IllegalArgumentException e) {
      throw PosencException.invalid("target", options.target + ": " + e.getMessage());
    }
    builder
        .userAgent("posenc-java/" + Posenc.VERSION)
        .maxInboundMessageSize(maxBytes)
        // Tensors do not compress: the client neither offers nor accepts compression, not even by
        // name.
        .decompressorRegistry(
            DecompressorRegistry.emptyInstance().with(Codec.Identity.NONE, false))
        // A call that has sent more than this is not retried. gRPC keeps references to the caller's
        // memory, not copies.
        .retryBufferSize(Long.MAX_VALUE)
        .perRpcBufferLimit(Integer.MAX_VALUE);
    try {
      builder.defaultServiceConfig(options.serviceConfig == null ? published() : options.serviceConfig);
    } catch (RuntimeException e) { // of several kinds
      throw PosencException.invalid("service_config", "is none of gRPC's: " + e.getMessage());
    }
    if (retries) {
      builder.enableRetry();
    } else {
      builder.disableRetry();
    }
    if (options.serverName != null) builder.overrideAuthority(options.serverName);
    if (builder instanceof NettyChannelBuilder) {
      NettyChannelBuilder netty = (NettyChannelBuilder) builder;
      netty.flowControlWindow(WINDOW_BYTES);
      // gRPC sets TCP's keepalive, which Netty cannot set on a unix socket: it would log a warning
      // for every connection. Null removes the option.
      if (options.target.startsWith("unix:")) netty.withOption(ChannelOption.SO_KEEPALIVE, null);
    }
    try {
      return builder.build();
    } catch (IllegalArgumentException e) {
      throw PosencException.invalid("target", options.target + ": " + e.getMessage());
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
      if (options.caFile != null) tls.trustManager(readable(option, options.caFile));
      if (options.certFile != null || options.keyFile != null) {
        option = options.certFile == null ? "tls.cert_file" : "tls.key_file";
        if (options.certFile == null || options.keyFile == null) {
          throw PosencException.invalid(
              option, "is missing; certificate and key come together");
        }
        tls.keyManager(
            readable("tls.cert_file", options.certFile), readable(option, options.keyFile));
      }
      return tls.build();
    } catch (IOException e) {
      throw PosencException.invalid(option, e.getMessage());
    }
  }

  private static InputStream readable(String option, Path file) {
    try {
      byte[] text = Files.readAllBytes(file);
      if (!new String(text, StandardCharsets.ISO_8859_1).contains("-----BEGIN ")) {
        throw new IOException("holds no PEM");
      }
      return new ByteArrayInputStream(text);
    } catch (IOException e) {
      throw PosencException.invalid(option, file + " cannot be read: " + e);
    }
  }
}
