package io.github.posenc;

import static io.github.posenc.Arguments.given;

import com.google.gson.Gson;
import com.google.gson.JsonParseException;
import io.grpc.*;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.shaded.io.netty.channel.ChannelOption;
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Options of a client. Only the target is required. */
public final class PosencBuilder {
  private static final Pattern PORT = Pattern.compile(":([0-9]{5,})(?=,|$)");
  // HTTP/2's flow-control window. With gRPC's default of 1 MiB, streams took a tenth longer.
  // Windows of 16 MiB and 64 MiB were not faster than a window of 4 MiB.
  private static final int WINDOW_BYTES = 4 << 20;

  final String target;
  Duration timeout = Duration.ofSeconds(60);
  int maxMessageBytes = 512 << 20;
  // Netty holds a whole message when it sends, and again when it receives. A tensor of 64 MiB in
  // one message needed at least 240 MB in addition to the tensor, the result and an idle JVM. In a
  // stream the tensor needed 55 MB.
  long streamAboveBytes = 16 << 20;
  // Netty copies each message when it sends and when it receives. Messages of 1 MiB fit Netty's
  // pooled buffers and a cache: 64 MiB took half to two thirds of the time that they took in
  // messages of 4 MiB. The size is a multiple of nearly every head's size, so that the server can
  // rotate in place.
  int chunkBytes = (1 << 20) - (64 << 10);
  private String serviceConfig; // null: service_config.json of the jar
  private boolean tls;
  private String caFile;
  private String certFile;
  private String keyFile;
  private String serverName;
  String token;
  String tokenFile;
  LocalServer local; // the server at the target, if this process started it

  PosencBuilder(String target) {
    this.target = given("target", target);
    // gRPC would report a wrong port only in calls, like a server that does not answer.
    Matcher port = PORT.matcher(target.startsWith("unix") ? "" : target);
    while (port.find()) {
      if (port.group(1).length() == 5 && Integer.parseInt(port.group(1)) < 1 << 16) continue;
      throw PosencException.invalid("target", target + ": a port must be 1 to 65535");
    }
  }

  /** Makes a builder from an environment; docs/tls-and-tokens.md lists the names. */
  static PosencBuilder of(Map<String, String> environment) {
    Map<String, String> set = new HashMap<>(environment);
    set.values().removeIf(String::isEmpty);
    PosencBuilder builder = new PosencBuilder(set.getOrDefault("POSENC_SERVER", "localhost:50051"));
    builder.tls = "1".equals(set.get("POSENC_TLS"));
    builder.caFile = set.get("POSENC_TLS_CA");
    builder.certFile = set.get("POSENC_TLS_CERT");
    builder.keyFile = set.get("POSENC_TLS_KEY");
    builder.serverName = set.get("POSENC_TLS_SERVER_NAME");
    builder.token = set.get("POSENC_TOKEN");
    builder.tokenFile = set.get("POSENC_TOKEN_FILE");
    return builder;
  }

  /**
   * Sets the timeout of a unary call. For a stream, the timeout is the longest time without
   * progress. Default: 60 s.
   */
  public PosencBuilder timeout(Duration timeout) {
    this.timeout = given("timeout", timeout);
    return this;
  }

  /**
   * Sets the maximum size of a message in bytes, in both directions. The default is 512 MiB, which
   * is also the server's default. If the server's limits are raised, raise this limit, too.
   */
  public PosencBuilder maxMessageBytes(long bytes) {
    this.maxMessageBytes = (int) Math.max(0, Math.min(bytes, Integer.MAX_VALUE));
    // A chunk has whole elements of up to 8 bytes. The message also has some bytes of framing.
    this.chunkBytes = Math.max(8, Math.min(chunkBytes, maxMessageBytes - 64) / 8 * 8);
    return this;
  }

  /**
   * Sets the size in bytes above which applyRope and reposition use a stream instead of one
   * message. Default: 16 MiB. Tensors over maxMessageBytes are always sent as streams. gRPC's Netty
   * holds a whole message outside of the heap. A stream needs less memory, and transfer overlaps
   * with computation. To send all smaller tensors in one message, set this size to maxMessageBytes.
   */
  public PosencBuilder streamAboveBytes(long bytes) {
    this.streamAboveBytes = bytes;
    return this;
  }

  /** Sets gRPC's service config, as JSON. The default is service_config.json of the jar. */
  public PosencBuilder serviceConfig(String json) {
    this.serviceConfig = given("service_config", json);
    return this;
  }

  /** Requires TLS, and trusts the system's certificate authorities. */
  public PosencBuilder tls() {
    this.tls = true;
    return this;
  }

  /** Requires TLS, and trusts only the authorities whose certificates are in this PEM file. */
  public PosencBuilder trust(Path caFile) {
    this.caFile = given("tls.ca_file", caFile).toString();
    return this;
  }

  /** Requires TLS with a client certificate and its key without a passphrase, as PEM files. */
  public PosencBuilder certificate(Path certFile, Path keyFile) {
    this.certFile = given("tls.cert_file", certFile).toString();
    this.keyFile = given("tls.key_file", keyFile).toString();
    return this;
  }

  /** Requires TLS. The server's certificate must have this name instead of the target's name. */
  public PosencBuilder serverName(String name) {
    this.serverName = given("tls.server_name", name);
    return this;
  }

  boolean isTls() {
    return tls || caFile != null || certFile != null || keyFile != null || serverName != null;
  }

  /**
   * Sets the bearer token of every call. A token needs TLS, or a unix socket or loopback address as
   * the target.
   */
  public PosencBuilder token(String token) {
    this.token = token;
    return this;
  }

  /** Sets a file that contains only the token. The file is read again when it changes. */
  public PosencBuilder tokenFile(Path file) {
    this.tokenFile = given("token_file", file).toString();
    return this;
  }

  /**
   * Makes the client. Does not wait for the network. If no server answers, the first call fails.
   *
   * @throws PosencException INVALID_ARGUMENT if a file cannot be used, or the token cannot be sent
   */
  public Posenc connect() {
    return new Posenc(new Calls(this), CallOptions.DEFAULT);
  }

  /** Makes a channel, which connects at its first call. */
  ManagedChannel channel(boolean retries) {
    try {
      ManagedChannelBuilder<?> builder =
          Grpc.newChannelBuilder(target, credentials())
              .userAgent("posenc-java/" + Posenc.VERSION)
              .defaultServiceConfig(config())
              // Tensors do not compress well, so the client neither offers nor accepts compression.
              .decompressorRegistry(
                  DecompressorRegistry.emptyInstance().with(Codec.Identity.NONE, false))
              // A call that has sent more bytes than this is not retried. gRPC keeps references to
              // the caller's memory, not copies.
              .retryBufferSize(Long.MAX_VALUE)
              .perRpcBufferLimit(Integer.MAX_VALUE);
      if (!retries) builder.disableRetry();
      if (serverName != null) builder.overrideAuthority(serverName);
      if (builder instanceof NettyChannelBuilder) {
        NettyChannelBuilder netty = (NettyChannelBuilder) builder;
        netty.flowControlWindow(WINDOW_BYTES);
        // gRPC sets TCP's keepalive. Netty cannot set it on a unix socket, and would log a warning
        // for every connection. Null removes the option.
        if (target.startsWith("unix:")) netty.withOption(ChannelOption.SO_KEEPALIVE, null);
      }
      return builder.build();
    } catch (JsonParseException | IllegalStateException e) { // no JSON, or values that gRPC refuses
      throw PosencException.invalid("service_config", "must be a service config of gRPC: " + e.getMessage());
    } catch (IOException e) {
      throw PosencException.invalid("tls", "a file cannot be used: " + e.getMessage());
    } catch (IllegalArgumentException e) { // also for TLS files that are not PEM
      throw PosencException.invalid("target", target + ": " + e.getMessage());
    }
  }

  @SuppressWarnings("unchecked")
  private Map<String, ?> config() throws IOException {
    try (InputStream published = PosencBuilder.class.getResourceAsStream("service_config.json")) {
      String json = new String(published.readAllBytes(), StandardCharsets.UTF_8);
      return new Gson().fromJson(serviceConfig == null ? json : serviceConfig, Map.class);
    }
  }

  private ChannelCredentials credentials() throws IOException {
    if (!isTls()) return InsecureChannelCredentials.create();
    TlsChannelCredentials.Builder builder = TlsChannelCredentials.newBuilder();
    if (caFile != null) builder.trustManager(new File(caFile));
    if (certFile != null || keyFile != null) {
      String cert = given("tls.cert_file", certFile);
      builder.keyManager(new File(cert), new File(given("tls.key_file", keyFile)));
    }
    return builder.build();
  }
}
