package io.github.posenc;

import static io.github.posenc.Arguments.given;

import com.google.gson.Gson;
import com.google.gson.JsonParseException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Options of a client. Only the target is required. */
public final class PosencBuilder {
  private static final Pattern PORT = Pattern.compile(":([0-9]{5,})(?=,|$)");

  final String target;
  Duration timeout = Duration.ofSeconds(60);
  int maxMessageBytes = 512 << 20;
  // Netty holds a whole message on its way out and again on its way in: beside tensor, result and
  // an idle JVM, 64 MiB took 240 MB and more in one message, and 55 MB as a stream.
  private long streamAboveBytes = 16 << 20;
  // Netty copies a message both ways. In messages of 1 MiB, which fit its pooled buffers and a
  // cache, 64 MiB took half to two thirds of the time that they took in messages of 4 MiB. A
  // multiple of nearly every head, so that the server answers in place.
  int chunkBytes = (1 << 20) - (64 << 10);
  int connections = 1;
  Map<String, ?> serviceConfig;
  boolean tls;
  Path caFile;
  Path certFile;
  Path keyFile;
  String serverName;
  String token;
  Path tokenFile;

  PosencBuilder(String target) {
    if (target == null || target.isEmpty()) {
      throw PosencException.invalid("target", "is missing; such as localhost:50051");
    }
    // gRPC would report these only in calls, as if the server did not answer.
    if (target.matches("https?://.*")) {
      throw PosencException.invalid("target", target + ": must have no scheme; tls() is TLS");
    }
    Matcher port = PORT.matcher(target.startsWith("unix") ? "" : target);
    while (port.find()) {
      if (port.group(1).length() == 5 && Integer.parseInt(port.group(1)) < 1 << 16) continue;
      throw PosencException.invalid("target", target + ": a port must be 1 to 65535");
    }
    this.target = target;
  }

  /** Makes a builder from an environment; docs/tls-and-tokens.md lists the names. */
  static PosencBuilder of(Map<String, String> environment) {
    Map<String, String> set = new HashMap<>(environment);
    set.values().removeIf(String::isEmpty);
    PosencBuilder builder = new PosencBuilder(set.getOrDefault("POSENC_SERVER", "localhost:50051"));
    if (set.getOrDefault("POSENC_TLS", "").equals("1")) builder.tls();
    if (set.containsKey("POSENC_TLS_CA")) builder.trust(Path.of(set.get("POSENC_TLS_CA")));
    if (set.containsKey("POSENC_TLS_CERT") || set.containsKey("POSENC_TLS_KEY")) {
      builder.certificate(path(set, "POSENC_TLS_CERT"), path(set, "POSENC_TLS_KEY"));
    }
    if (set.containsKey("POSENC_TLS_SERVER_NAME")) {
      builder.serverName(set.get("POSENC_TLS_SERVER_NAME"));
    }
    return builder.token(set.get("POSENC_TOKEN")).tokenFile(path(set, "POSENC_TOKEN_FILE"));
  }

  private static Path path(Map<String, String> set, String name) {
    return set.containsKey(name) ? Path.of(set.get(name)) : null;
  }

  /**
   * Sets the deadline of a unary call; for streams, the longest time without any progress. Default:
   * 60 s.
   */
  public PosencBuilder timeout(Duration timeout) {
    this.timeout = given("timeout", timeout);
    return this;
  }

  /**
   * Sets the bytes of the largest message, either way. Default: 512 MiB, like the server's; raise
   * it if the server's limits are raised.
   */
  public PosencBuilder maxMessageBytes(long bytes) {
    this.maxMessageBytes = (int) Math.max(0, Math.min(bytes, Integer.MAX_VALUE));
    // A chunk has whole elements, and a message some bytes beside them.
    this.chunkBytes = Math.max(8, Math.min(chunkBytes, maxMessageBytes - 64) / 8 * 8);
    return this;
  }

  /**
   * Sets the bytes above which applyRope and reposition use a stream instead of one message.
   * Default: 16 MiB, or maxMessageBytes if that is less. gRPC's Netty holds a whole message outside
   * of the heap; a stream takes less memory, and transfer overlaps with computation. To always use
   * one message, set maxMessageBytes here.
   */
  public PosencBuilder streamAboveBytes(long bytes) {
    this.streamAboveBytes = bytes;
    return this;
  }

  long streamAboveBytes() {
    return Math.min(streamAboveBytes, maxMessageBytes);
  }

  /** Sets the number of connections, which calls use in turn. Default: 1. */
  public PosencBuilder connections(int connections) {
    this.connections = connections;
    return this;
  }

  /** Sets gRPC's service config, as JSON, instead of the published one. */
  @SuppressWarnings("unchecked")
  public PosencBuilder serviceConfig(String json) {
    try {
      return serviceConfig(new Gson().fromJson(json, Map.class));
    } catch (JsonParseException e) {
      throw PosencException.invalid("service_config", "is no JSON of an object: " + e.getMessage());
    }
  }

  /** Sets the service config as a map, with numbers as Double for grpc-java. */
  public PosencBuilder serviceConfig(Map<String, ?> config) {
    this.serviceConfig = config;
    return this;
  }

  /** Requires TLS, with the system's authorities. */
  public PosencBuilder tls() {
    this.tls = true;
    return this;
  }

  /** Requires TLS with these authorities instead: certificates, as PEM. */
  public PosencBuilder trust(Path caFile) {
    this.caFile = given("tls.ca_file", caFile);
    return tls();
  }

  /** Requires TLS with a certificate of the client, and its key without a passphrase: PEM. */
  public PosencBuilder certificate(Path certFile, Path keyFile) {
    this.certFile = given("tls.cert_file", certFile);
    this.keyFile = given("tls.key_file", keyFile);
    return tls();
  }

  /** Requires TLS with another name in the server's certificate than the target's. */
  public PosencBuilder serverName(String name) {
    this.serverName = given("tls.server_name", name);
    return tls();
  }

  /**
   * Sets the bearer token of every call. It is never sent in the clear to another machine: it needs
   * TLS, or a target that is a unix socket or a loopback address.
   */
  public PosencBuilder token(String token) {
    this.token = token;
    return this;
  }

  /** Sets a file that holds only the token; it is read again when it changes. */
  public PosencBuilder tokenFile(Path file) {
    this.tokenFile = file;
    return this;
  }

  /**
   * Makes the client. Never waits for the network: if no server answers, the first call fails.
   *
   * @throws PosencException INVALID_ARGUMENT if a file cannot be used, or the token cannot be sent
   */
  public Posenc connect() {
    return new Posenc(new Calls(this));
  }
}
