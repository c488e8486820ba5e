package io.github.posenc;

import com.google.protobuf.Message;
import io.github.posenc.v1.GetServerInfoRequest;
import io.github.posenc.v1.GetServerInfoResponse;
import io.github.posenc.v1.ResolveRopeRequest;
import io.github.posenc.v1.ResolveRopeResponse;
import io.github.posenc.v1.RopeSource;
import io.github.posenc.v1.RopeSpec;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor.MethodType;
import io.grpc.Status;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/**
 * Makes a client's calls: chooses the connection, sets deadline and headers, and converts errors.
 * Safe for any number of threads; a call runs in its caller's thread.
 */
final class Calls implements AutoCloseable {
  private static final String SERVICE = "posenc.v1.PositionalEncodingService/";

  // Smaller messages gain nothing from a separate connection.
  private static final long BULK_BYTES = 64 << 10;

  // The server recommends 4 MiB. Netty copies a message both ways. In chunks of 1 MiB, which fit
  // its pooled buffers and a cache, 64 MiB took half to two thirds of the time.
  private static final long MAX_CHUNK_BYTES = (1 << 20) - (64 << 10);

  // Bytes that a message may have beside a chunk: settings, positions, framing.
  private static final long MESSAGE_OVERHEAD = 64 << 10;

  // Messages that are sent ahead of their responses: at a time, one is sent, one is computed, one
  // is received and one is processed.
  private static final int WINDOW = 4;

  // Deadline of a stream whose only limit is progress. Without a deadline the server would set its
  // default.
  private static final Duration LONGEST_STREAM = Duration.ofHours(24);

  // A longer timeout could overflow the clock.
  private static final Duration LONGEST = Duration.ofDays(365);

  // Longest wait for the server's version, for an error's text.
  private static final Duration VERSION_TIMEOUT = Duration.ofSeconds(1);

  // Netty holds a whole message on its way out and again on its way in: beside tensor, result and
  // an idle JVM, 64 MiB took 240 MB and more in one message, and 55 MB in chunks.
  private static final long STREAM_ABOVE_BYTES = 16 << 20;

  private static final Metadata.Key<String> MESSAGE_BYTES = ascii("posenc-message-bytes");
  private static final Metadata.Key<String> REQUEST_ID = ascii("x-request-id");
  private static final Metadata.Key<String> TRACEPARENT = ascii("traceparent");
  private static final Metadata.Key<String> AUTHORIZATION = ascii("authorization");

  private final String target;
  private final Token token;
  private final Channels channels;
  private final Duration timeout;
  final long maxMessageBytes;
  /** Larger messages go as a stream if their tensors can be cut. */
  final long streamAboveBytes;
  private volatile long chunkBytes; // 0: not known yet

  Calls(PosencBuilder options) {
    target = options.target;
    token = Token.of(options);
    channels = new Channels(options);
    timeout = atMost(options.timeout);
    maxMessageBytes = Math.max(0, Math.min(options.maxMessageBytes, Integer.MAX_VALUE));
    streamAboveBytes =
        Math.min(options.streamAboveBytes.orElse(STREAM_ABOVE_BYTES), maxMessageBytes);
  }

  private static Metadata.Key<String> ascii(String name) {
    return Metadata.Key.of(name, Metadata.ASCII_STRING_MARSHALLER);
  }

  @Override
  public void close() {
    channels.close();
  }

  /** Makes a small unary call. */
  <M extends Message> M call(CallSettings settings, String name, Message request, M response) {
    return unary(settings, name, new Outgoing(request), response, List.of(), Map.of(), 0, false).message;
  }

  /**
   * Makes a unary call with tensors.
   *
   * @param fields the response's tensors; they go to `targets`, or else into new arrays
   * @param expectedBytes approximate bytes of the response, if more than are sent
   * @param once the call must not be sent a second time
   */
  <M extends Message> Incoming.Parsed<M> unary(
      CallSettings settings,
      String name,
      Outgoing request,
      M response,
      List<Integer> fields,
      Map<Integer, Incoming.Target> targets,
      long expectedBytes,
      boolean once) {
    String requestId = settings.requestId();
    request.check(requestId);
    Duration limit = settings.timeout == null ? timeout : atMost(settings.timeout);
    boolean large = Math.max(request.bytes(), expectedBytes) >= BULK_BYTES;
    List<Incoming.Parsed<M>> parsed = new ArrayList<>(1);
    Exchange.Outcome outcome = Exchange.run(
        once ? channels.once() : large ? channels.bulk() : channels.small(),
        SERVICE + name,
        MethodType.UNARY,
        options(limit, requestId),
        headers(settings, requestId, request.bytes()),
        1,
        null,
        () -> request,
        in -> parsed.add(Incoming.parse(in, response, fields, targets)));
    check(outcome, name, settings, requestId);
    if (parsed.isEmpty()) {
      throw PosencException.local(Status.Code.INTERNAL, name + ": no response", requestId);
    }
    return parsed.get(0);
  }

  /**
   * Runs a stream that answers each message with one response, or, with `oneToOne` unset, one
   * request with any number of responses. `next` and `take` are called in this thread.
   *
   * @param announced bounds the size of the messages
   */
  void stream(
      CallSettings settings,
      String name,
      boolean oneToOne,
      long announced,
      Exchange.Next next,
      Exchange.Take take) {
    String requestId = settings.requestId();
    Duration patience = settings.timeout == null ? timeout : null;
    Duration limit = settings.timeout == null ? LONGEST_STREAM : atMost(settings.timeout);
    Exchange.Outcome outcome = Exchange.run(
        channels.bulk(),
        SERVICE + name,
        oneToOne ? MethodType.BIDI_STREAMING : MethodType.SERVER_STREAMING,
        options(limit, requestId),
        headers(settings, requestId, announced),
        WINDOW,
        patience,
        next,
        take);
    check(outcome, name, settings, requestId);
    if (oneToOne && outcome.answered != outcome.sent) {
      throw PosencException.local(
          Status.Code.INTERNAL,
          "the stream ended after " + outcome.answered + " of " + outcome.sent + " responses",
          requestId);
    }
  }

  static Duration atMost(Duration limit) {
    return limit.compareTo(LONGEST) > 0 ? LONGEST : limit;
  }

  private CallOptions options(Duration limit, String requestId) {
    if (limit.isNegative() || limit.isZero()) {
      throw PosencException.local(
          Status.Code.DEADLINE_EXCEEDED, "timeout: " + limit + "; must be above 0", requestId);
    }
    // Set for each call, because the service config's limit would replace the channel's.
    return CallOptions.DEFAULT
        .withMaxInboundMessageSize((int) maxMessageBytes)
        .withMaxOutboundMessageSize((int) maxMessageBytes)
        .withDeadlineAfter(limit.toNanos(), TimeUnit.NANOSECONDS);
  }

  private Metadata headers(CallSettings settings, String requestId, long bytes) {
    Metadata headers = new Metadata();
    headers.put(MESSAGE_BYTES, Long.toString(bytes));
    headers.put(REQUEST_ID, requestId);
    if (settings.traceparent != null) headers.put(TRACEPARENT, settings.traceparent);
    if (token != null) headers.put(AUTHORIZATION, "Bearer " + token.current());
    return headers;
  }

  private void check(
      Exchange.Outcome outcome, String name, CallSettings settings, String requestId) {
    if (outcome.local instanceof PosencException) {
      PosencException local = ((PosencException) outcome.local).withRequestId(requestId);
      if (!outcome.silent) throw local;
      throw local.withText(local.getMessage() + " (server " + target + ")");
    }
    if (outcome.local != null) throw outcome.local; // thrown by a caller's callback
    if (outcome.status.isOk()) return;
    PosencException error =
        PosencException.of(outcome.status, outcome.trailers, target, requestId);
    boolean unknown = outcome.status.getCode() == Status.Code.UNIMPLEMENTED;
    // With a reason, the server has already named the field that it does not know.
    if (!unknown || !error.reason().isEmpty()) throw error;
    throw error.withText(error.getMessage() + "; " + versions(name, settings.timeout));
  }

  // Both versions, for a method or field that the server does not know.
  private String versions(String name, Duration limit) {
    String server = "does not say its version";
    if (!name.equals("GetServerInfo")) {
      try {
        boolean shorter = limit != null && limit.compareTo(VERSION_TIMEOUT) < 0;
        CallSettings quick =
            new CallSettings(shorter ? limit : VERSION_TIMEOUT, null, null, null);
        server = "is of version " + serverInfo(quick).getVersion();
      } catch (PosencException e) {
        // The text then says that the version is unknown.
      }
    }
    return name + ": the server is another version than this client's " + Posenc.VERSION
        + "; it " + server;
  }

  GetServerInfoResponse serverInfo(CallSettings settings) {
    return call(
        settings,
        "GetServerInfo",
        GetServerInfoRequest.getDefaultInstance(),
        GetServerInfoResponse.getDefaultInstance());
  }

  /**
   * Returns the size of a stream's messages: the server's recommendation, or less if a message's
   * limit is lower. Fails only if the deadline passes: the stream would wait for as long again.
   */
  long chunkBytes(CallSettings settings) {
    if (chunkBytes > 0) return chunkBytes;
    long bytes = MAX_CHUNK_BYTES;
    boolean told = false;
    try {
      long recommended = serverInfo(settings).getLimits().getStreamChunkBytes();
      if (recommended > 0) bytes = Math.min(recommended, bytes);
      told = true;
    } catch (PosencException e) {
      if (e.code().equals("DEADLINE_EXCEEDED")) throw e;
      // A server that does not answer now may answer the next call.
    }
    bytes = Math.max(1, Math.min(bytes, Math.max(maxMessageBytes - MESSAGE_OVERHEAD, 1)));
    if (told) chunkBytes = bytes;
    return bytes;
  }

  /**
   * Returns whether an encoding has several position axes. The server reads presets and
   * configurations.
   */
  boolean severalAxes(CallSettings settings, RopeSource rope) {
    RopeSpec spec = rope.hasSpec()
        ? rope.getSpec()
        : call(
                settings,
                "ResolveRope",
                ResolveRopeRequest.newBuilder().setRope(rope).build(),
                ResolveRopeResponse.getDefaultInstance())
            .getSpec();
    return spec.getAxes().getSectionsCount() > 1 || spec.getExplicitFrequencies().getAxes() > 1;
  }
}
