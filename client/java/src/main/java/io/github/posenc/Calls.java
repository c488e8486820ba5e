package io.github.posenc;

import com.google.protobuf.Message;
import io.github.posenc.v1.GetServerInfoRequest;
import io.github.posenc.v1.GetServerInfoResponse;
import io.grpc.*;
import io.grpc.MethodDescriptor.MethodType;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.*;
import java.util.function.Consumer;

/** What all requests of a client have: connections, deadline, headers, and errors of one type. */
final class Calls implements AutoCloseable {
  static final CallOptions.Key<Duration> TIMEOUT = CallOptions.Key.create("timeout");
  static final CallOptions.Key<String> REQUEST_ID = CallOptions.Key.create("request id");
  static final CallOptions.Key<String> TRACEPARENT = CallOptions.Key.create("traceparent");
  static final CallOptions.Key<Posenc.Progress> PROGRESS = CallOptions.Key.create("progress");

  private static final String SERVICE = "posenc.v1.PositionalEncodingService/";

  // Deadline of a stream whose only limit is progress. Without a deadline the server would set its
  // default.
  private static final Duration LONGEST_STREAM = Duration.ofHours(24);

  // Longest wait for the server's version, for an error's text.
  private static final Duration VERSION_TIMEOUT = Duration.ofSeconds(1);

  final PosencBuilder client;
  /** Threads of asynchronous calls. They do not keep a program from its end. */
  final ExecutorService threads = Executors.newCachedThreadPool(task -> {
    Thread thread = new Thread(task, "posenc");
    thread.setDaemon(true);
    return thread;
  });
  private final Channels channels;
  private final Token token;

  Calls(PosencBuilder client) {
    this.client = client;
    this.token = Token.of(client);
    this.channels = new Channels(client);
  }

  @Override
  public void close() {
    channels.close();
    threads.shutdown();
  }

  /**
   * Returns options for the requests of one call, which share a request id. A timeout of the call
   * bounds them all together; the client's timeout bounds each request.
   */
  static CallOptions begin(CallOptions options) {
    Duration timeout = options.getOption(TIMEOUT);
    CallOptions begun = timeout == null ? options : options.withDeadlineAfter(timeout);
    if (options.getOption(REQUEST_ID) != null) return begun;
    ThreadLocalRandom random = ThreadLocalRandom.current();
    String id = String.format("%016x%016x", random.nextLong(), random.nextLong());
    return begun.withOption(REQUEST_ID, id);
  }

  /** Makes a unary request without tensors. */
  <M extends Message> M unary(CallOptions options, String name, Message request, M response) {
    return unary(options, name, new Outgoing().message(request), false, response, false, m -> {});
  }

  /**
   * Makes a unary request.
   *
   * @param once it must not be sent a second time
   * @param borrows as in Exchange
   */
  <M extends Message> M unary(CallOptions options, String name, Outgoing request, boolean once,
      M response, boolean borrows, Consumer<M> take) {
    if (request.bytes() > client.maxMessageBytes) {
      throw PosencException.local(Status.Code.RESOURCE_EXHAUSTED,
          "request: " + request.bytes() + " bytes; the limit is " + client.maxMessageBytes
              + ", split the batch");
    }
    List<M> answers = new ArrayList<>(1);
    Consumer<M> both = take.andThen(answers::add);
    run(options, name, MethodType.UNARY, once, List.of(request), response, borrows, both);
    if (answers.size() == 1) return answers.get(0);
    throw PosencException.local(Status.Code.INTERNAL, name + ": no answer");
  }

  /** Makes a stream, whose answers are borrowed. */
  <M extends Message> void stream(CallOptions options, String name, MethodType type,
      List<Outgoing> messages, M response, Consumer<M> take) {
    run(options, name, type, false, messages, response, true, take);
  }

  private <M extends Message> void run(CallOptions options, String name, MethodType type,
      boolean once, List<Outgoing> messages, M response, boolean borrows, Consumer<M> take) {
    boolean stream = type != MethodType.UNARY;
    // Set for each call, because the service config's limit would replace the channel's.
    CallOptions own = options.withMaxInboundMessageSize(client.maxMessageBytes);
    long patience = Long.MAX_VALUE;
    if (options.getDeadline() == null) {
      own = own.withDeadlineAfter(stream ? LONGEST_STREAM : client.timeout);
      if (stream) patience = TimeUnit.MILLISECONDS.convert(client.timeout);
    }
    String requestId = options.getOption(REQUEST_ID);
    Metadata headers = new Metadata();
    long largest = messages.stream().mapToLong(Outgoing::bytes).max().orElse(0);
    put(headers, "posenc-message-bytes", Long.toString(largest));
    put(headers, "x-request-id", requestId);
    put(headers, "traceparent", options.getOption(TRACEPARENT));
    if (token != null) put(headers, "authorization", "Bearer " + token.current());
    try {
      new Exchange<>(channels.next(once), SERVICE + name, type, own, response, borrows, take)
          .run(headers, patience, messages.iterator());
    } catch (PosencException e) {
      throw e.with(e.getMessage(), requestId);
    } catch (StatusRuntimeException e) {
      PosencException error = PosencException.of(e, client.target, requestId);
      boolean unknown = error.code().equals("UNIMPLEMENTED");
      // With a reason, the server has already named the field that it does not know.
      if (!unknown || !error.reason().isEmpty()) throw error;
      throw error.with(error.getMessage() + "; " + versions(name, own), requestId);
    }
  }

  private static void put(Metadata headers, String name, String value) {
    if (value != null) headers.put(Metadata.Key.of(name, Metadata.ASCII_STRING_MARSHALLER), value);
  }

  // Both versions, for a method or field that the server does not know.
  private String versions(String name, CallOptions options) {
    String server = "does not say its version";
    if (!name.equals("GetServerInfo")) {
      try {
        CallOptions quick = options;
        if (options.getDeadline().timeRemaining(TimeUnit.NANOSECONDS) > VERSION_TIMEOUT.toNanos()) {
          quick = options.withDeadlineAfter(VERSION_TIMEOUT);
        }
        server = "is of version " + serverInfo(quick).getVersion();
      } catch (PosencException e) {
        // The text then says that the version is unknown.
      }
    }
    return name + ": the server is another version than this client's " + Posenc.VERSION + "; it "
        + server;
  }

  GetServerInfoResponse serverInfo(CallOptions options) {
    return unary(options, "GetServerInfo", GetServerInfoRequest.getDefaultInstance(),
        GetServerInfoResponse.getDefaultInstance());
  }
}
