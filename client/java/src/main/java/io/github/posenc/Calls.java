package io.github.posenc;

import com.google.protobuf.Message;
import io.github.posenc.v1.*;
import io.grpc.*;
import io.grpc.MethodDescriptor.MethodType;
import java.time.Duration;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/** Makes the requests of a client. Adds deadlines and headers, and converts errors. */
final class Calls {
  static final CallOptions.Key<Duration> TIMEOUT = CallOptions.Key.create("timeout");
  static final CallOptions.Key<String> REQUEST_ID = CallOptions.Key.create("request id");
  static final CallOptions.Key<String> TRACEPARENT = CallOptions.Key.create("traceparent");
  static final CallOptions.Key<Posenc.Progress> PROGRESS = CallOptions.Key.create("progress");

  /** Runs each asynchronous call in a daemon thread, which does not keep a program from ending. */
  static final Executor THREADS = task -> {
    Thread thread = new Thread(task, "posenc");
    thread.setDaemon(true);
    thread.start();
  };

  // Deadline of a stream that is limited only by the time without progress. Without a deadline, the
  // server would set its own deadline.
  private static final Duration LONGEST_STREAM = Duration.ofHours(24);

  final PosencBuilder client;
  private final ManagedChannel channel;
  private final ManagedChannel once; // for calls without retries (an option of the channel)
  private final Token token;

  Calls(PosencBuilder client) {
    this.client = client;
    this.token = new Token(client);
    this.channel = client.channel(true);
    this.once = client.channel(false);
  }

  void close() {
    channel.shutdownNow();
    once.shutdownNow();
    if (client.local != null) client.local.close();
  }

  /**
   * Returns options for the requests of one call, which share a request id. The call's own timeout
   * limits all requests together; the client's timeout limits each request.
   */
  static CallOptions begin(CallOptions options) {
    Duration timeout = options.getOption(TIMEOUT);
    CallOptions begun = timeout == null ? options : options.withDeadlineAfter(timeout);
    if (options.getOption(REQUEST_ID) != null) return begun;
    return begun.withOption(REQUEST_ID, UUID.randomUUID().toString().replace("-", ""));
  }

  /** Makes a request without tensors of the caller. The request is unary if `take` is null. */
  <M extends Message> M run(
      CallOptions options, String name, Message request, M response, Consumer<M> take) {
    Outgoing only = new Outgoing().message(Arguments.given("request", request));
    MethodType type = take == null ? MethodType.UNARY : MethodType.SERVER_STREAMING;
    return run(options, name, type, false, List.of(only), response, take);
  }

  /**
   * Makes any request, and returns its last answer.
   *
   * @param once whether the request must not be sent a second time
   * @param take as in Exchange
   */
  <M extends Message> M run(CallOptions options, String name, MethodType type, boolean once,
      List<Outgoing> messages, M response, Consumer<M> take) {
    if (channel.isShutdown()) {
      throw PosencException.local(Status.Code.CANCELLED, "the client is closed; make another one");
    }
    long largest = messages.stream().mapToLong(Outgoing::bytes).max().orElse(0);
    if (largest > client.maxMessageBytes) {
      throw PosencException.local(Status.Code.RESOURCE_EXHAUSTED,
          "request: " + largest + " bytes; the limit is " + client.maxMessageBytes
              + ", split the batch");
    }
    // The limit is set for each call, because the service config would replace the channel's limit.
    CallOptions own = options.withMaxInboundMessageSize(client.maxMessageBytes);
    long patience = Long.MAX_VALUE;
    if (options.getDeadline() == null) {
      boolean stream = type != MethodType.UNARY;
      own = own.withDeadlineAfter(stream ? LONGEST_STREAM : client.timeout);
      if (stream) patience = TimeUnit.MILLISECONDS.convert(client.timeout);
    }
    String requestId = options.getOption(REQUEST_ID);
    Metadata headers = new Metadata();
    put(headers, "posenc-message-bytes", Long.toString(largest));
    put(headers, "x-request-id", requestId);
    put(headers, "traceparent", options.getOption(TRACEPARENT));
    put(headers, "authorization", token.header());
    try {
      return new Exchange<>(once ? this.once : channel, name, type, own, response, take)
          .run(headers, patience, messages.iterator());
    } catch (PosencException e) {
      throw e.with(e.getMessage(), requestId);
    } catch (StatusRuntimeException e) {
      PosencException error = PosencException.of(e, client.target, requestId);
      // If the error has a reason, the server's text already names the unknown field.
      boolean unknown = error.code().equals("UNIMPLEMENTED") && error.reason().isEmpty();
      // gRPC reports UNKNOWN if the server closes a connection before it is complete.
      boolean gone =
          client.local != null && List.of("UNAVAILABLE", "UNKNOWN").contains(error.code());
      String more = unknown ? versions(name, own) : gone ? client.local.whyGone() : "";
      throw error.with(error.getMessage() + more, requestId);
    }
  }

  private static void put(Metadata headers, String name, String value) {
    if (value != null) headers.put(Metadata.Key.of(name, Metadata.ASCII_STRING_MARSHALLER), value);
  }

  // Returns the versions of server and client, for the error of a method that the server lacks.
  private String versions(String name, CallOptions options) {
    String server = "unknown";
    Deadline soon = options.getDeadline().minimum(Deadline.after(1, TimeUnit.SECONDS));
    try {
      if (!name.equals("GetServerInfo"))
        server = serverInfo(options.withDeadline(soon)).getVersion();
    } catch (PosencException e) {
      // The error's text then says that the version is unknown.
    }
    return "; the server's version is " + server + ", this client's is " + Posenc.VERSION;
  }

  GetServerInfoResponse serverInfo(CallOptions options) {
    return run(options, "GetServerInfo", GetServerInfoRequest.getDefaultInstance(),
        GetServerInfoResponse.getDefaultInstance(), null);
  }
}
