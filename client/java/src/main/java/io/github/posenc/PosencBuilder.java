package io.github.posenc;

import com.google.gson.Gson;
import com.google.gson.JsonParseException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.OptionalLong;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Options of a client. Only the target is required. */
public final class PosencBuilder {
  final String target;
  Duration timeout = Duration.ofSeconds(60);
  long maxMessageBytes = 512L << 20;
  OptionalLong streamAboveBytes = OptionalLong.empty();
  int bulkChannels = 4;
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
    checkTarget(target);
    this.target = target;
  }

  private static final Pattern LONG_PORT = Pattern.compile(":([0-9]{5,})(?=,|$)");

  // Refuses schemes that gRPC does not know, and impossible ports. gRPC would report these only in
  // calls, as if the server did not answer.
  private static void checkTarget(String target) {
    for (String scheme : new String[] {"http://", "https://"}) {
      if (!target.startsWith(scheme)) continue;
      throw PosencException.invalid(
          "target",
          target + ": must be " + target.substring(scheme.length()) + ", without " + scheme
              + "; tls() is TLS");
    }
    if (target.startsWith("unix")) return;
    Matcher ports = LONG_PORT.matcher(target);
    while (ports.find()) {
      String port = ports.group(1);
      if (port.length() > 9 || Integer.parseInt(port) > 65535) {
        throw PosencException.invalid(
            "target", target + ": port " + port + "; must be 1 to 65535");
      }
    }
  }

  /** Makes a builder from an environment; docs/tls-and-tokens.md lists the names. */
  static PosencBuilder of(Map<String, String> environment) {
    String target = environment.getOrDefault("POSENC_SERVER", "");
    PosencBuilder builder = new PosencBuilder(target.isEmpty() ? "localhost:50051" : target);
    builder.tls = environment.getOrDefault("POSENC_TLS", "").equals("1");
    String ca = environment.getOrDefault("POSENC_TLS_CA", "");
    if (!ca.isEmpty()) builder.trust(Path.of(ca));
    String cert = environment.getOrDefault("POSENC_TLS_CERT", "");
    String key = environment.getOrDefault("POSENC_TLS_KEY", "");
    if (!cert.isEmpty() || !key.isEmpty()) {
      builder.certificate(cert.isEmpty() ? null : Path.of(cert), key.isEmpty() ? null : Path.of(key));
    }
    String name = environment.getOrDefault("POSENC_TLS_SERVER_NAME", "");
    if (!name.isEmpty()) builder.serverName(name);
    String token = environment.getOrDefault("POSENC_TOKEN", "");
    if (!token.isEmpty()) builder.token(token);
    String tokenFile = environment.getOrDefault("POSENC_TOKEN_FILE", "");
    if (!tokenFile.isEmpty()) builder.tokenFile(Path.of(tokenFile));
    return builder;
  }

  /**
   * Sets the deadline of a unary call; for streams, the longest time without any progress. Default:
   * 60 s.
   */
  public PosencBuilder timeout(Duration timeout) {
    this.timeout = PosencException.given("timeout", timeout);
    return this;
  }

  /**
   * Sets the bytes of the largest message, either way. Default: 512 MiB, like the server's; raise
   * it if the server's limits are raised.
   */
  public PosencBuilder maxMessageBytes(long bytes) {
    this.maxMessageBytes = bytes;
    return this;
  }

  /**
   * Sets the bytes above which applyRope and reposition use a stream instead of one message.
   * Default: 16 MiB, or maxMessageBytes if that is less. gRPC's Netty holds a whole message outside
   * of the heap; the chunks of a stream take less memory, and transfer overlaps with computation.
   * To always use one message, set maxMessageBytes here.
   */
  public PosencBuilder streamAboveBytes(long bytes) {
    this.streamAboveBytes = OptionalLong.of(bytes);
    return this;
  }

  /**
   * Sets the number of connections that calls of 64 KiB and more use in turn; small calls share a
   * separate one. 0: all share that one. Default: 4.
   */
  public PosencBuilder bulkChannels(int channels) {
    this.bulkChannels = channels;
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
    this.caFile = PosencException.given("tls.ca_file", caFile);
    return tls();
  }

  /** Requires TLS with a certificate of the client, and its key without a passphrase: PEM. */
  public PosencBuilder certificate(Path certFile, Path keyFile) {
    this.certFile = certFile;
    this.keyFile = keyFile;
    return tls();
  }

  /** Requires TLS with another name in the server's certificate than the target's. */
  public PosencBuilder serverName(String name) {
    this.serverName = PosencException.given("tls.server_name", name);
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
