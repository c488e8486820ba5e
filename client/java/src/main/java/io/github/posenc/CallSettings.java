package io.github.posenc;

import java.time.Duration;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.Supplier;

/** Settings of all calls of one client, or of a copy with other settings. Immutable. */
final class CallSettings {
  static final CallSettings NONE = new CallSettings(null, null, null, null);

  /** Timeout of the whole call, also of a stream. Null: the client's. */
  final Duration timeout;
  private final String requestId;
  final String traceparent;
  final Posenc.Progress progress;

  CallSettings(Duration timeout, String requestId, String traceparent, Posenc.Progress progress) {
    this.timeout = timeout;
    this.requestId = requestId;
    this.traceparent = traceparent;
    this.progress = progress;
  }

  CallSettings timeout(Duration other) {
    return new CallSettings(other, requestId, traceparent, progress);
  }

  CallSettings requestId(String other) {
    return new CallSettings(timeout, other, traceparent, progress);
  }

  CallSettings traceparent(String other) {
    return new CallSettings(timeout, requestId, other, progress);
  }

  CallSettings progress(Posenc.Progress other) {
    return new CallSettings(timeout, requestId, traceparent, other);
  }

  /**
   * For a call that may make several requests: returns the settings of the next request, whose
   * timeout is the remaining time of the call's own. The client's timeout bounds each request.
   */
  Supplier<CallSettings> forRequests() {
    if (timeout == null || timeout.isNegative() || timeout.isZero()) return () -> this;
    long end = System.nanoTime() + Calls.atMost(timeout).toNanos();
    return () -> timeout(Duration.ofNanos(Math.max(end - System.nanoTime(), 1)));
  }

  /** Returns the caller's id, or 16 random bytes as hex. */
  String requestId() {
    if (requestId != null) return requestId;
    ThreadLocalRandom random = ThreadLocalRandom.current();
    return String.format("%016x%016x", random.nextLong(), random.nextLong());
  }
}
