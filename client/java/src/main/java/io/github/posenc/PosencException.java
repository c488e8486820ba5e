package io.github.posenc;

import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.rpc.ErrorInfo;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import java.util.Collections;
import java.util.Map;
import java.util.TreeMap;

/**
 * The error of a failed call. The message says how to fix the mistake.
 *
 * <p>Branch on {@link #code()} and {@link #reason()}, never on the text.
 */
public final class PosencException extends RuntimeException {
  private static final long serialVersionUID = 2;
  private static final Metadata.Key<byte[]> DETAILS =
      Metadata.Key.of("grpc-status-details-bin", Metadata.BINARY_BYTE_MARSHALLER);

  private final String code;
  private final String reason;
  private final TreeMap<String, String> metadata; // TreeMap is serializable
  private final String requestId;

  private PosencException(String code, String reason, Map<String, String> metadata,
      String requestId, String text, Throwable cause) {
    super(text, cause);
    this.code = code;
    this.reason = reason;
    this.metadata = new TreeMap<>(metadata);
    this.requestId = requestId;
  }

  /** Returns the error of a wrong argument or option that the client itself found. */
  static PosencException invalid(String field, String text) {
    String code = Status.Code.INVALID_ARGUMENT.name();
    return new PosencException(code, "", Map.of("field", field), "", field + ": " + text, null);
  }

  /** Returns any other error that the client itself found. */
  static PosencException local(Status.Code code, String text) {
    return new PosencException(code.name(), "", Map.of(), "", text, null);
  }

  /** Returns the error of a request that the server or gRPC ended. */
  static PosencException of(StatusRuntimeException error, String target, String requestId) {
    Status status = error.getStatus();
    ErrorInfo info = infoOf(error.getTrailers());
    StringBuilder text = new StringBuilder();
    text.append(status.getDescription() == null ? status.getCode() : status.getDescription());
    // The text of a posenc server needs no addition. If the error has no reason, the transport
    // failed, and the text gets the cause and the target.
    if (info.getReason().isEmpty()) {
      for (Throwable cause = status.getCause(); cause != null; cause = cause.getCause()) {
        if (cause.getMessage() != null && text.indexOf(cause.getMessage()) < 0) {
          text.append(": ").append(cause.getMessage());
        }
      }
      text.append(" (server ").append(target).append(')')
          .append(remedy(status.getCode(), target));
    }
    return new PosencException(status.getCode().name(),
        info.getReason().replaceFirst("^ERROR_REASON_", ""), info.getMetadataMap(), requestId,
        text.toString(), status.getCause());
  }

  // Returns the advice for a call that no server answered, or "".
  private static String remedy(Status.Code code, String target) {
    if (code == Status.Code.DEADLINE_EXCEEDED) {
      return "; the timeout is over: is the server there, or must the timeout be longer?";
    }
    if (code != Status.Code.UNAVAILABLE || target.startsWith("unix:")) return "";
    return "; is the server there, does it speak TLS or plaintext as this client does, and do both"
        + " trust the certificates?";
  }

  private static ErrorInfo infoOf(Metadata trailers) {
    byte[] details = trailers == null ? null : trailers.get(DETAILS);
    if (details == null) return ErrorInfo.getDefaultInstance();
    try {
      for (Any detail : com.google.rpc.Status.parseFrom(details).getDetailsList()) {
        if (detail.is(ErrorInfo.class)) return detail.unpack(ErrorInfo.class);
      }
    } catch (InvalidProtocolBufferException e) {
      // Unreadable details are ignored; code and text remain.
    }
    return ErrorInfo.getDefaultInstance();
  }

  /** Returns the same error with another text and request id. */
  PosencException with(String text, String id) {
    return new PosencException(code, reason, metadata, id, text, getCause());
  }

  /** Renames the fields in the error of a table's stream: table.rows becomes rows. */
  PosencException ofTable() {
    Map<String, String> facts = new TreeMap<>(metadata);
    facts.computeIfPresent("field", (key, field) -> field.replaceFirst("^table\\.", ""));
    String text = getMessage().replaceAll("(^| )table\\.", "$1");
    return new PosencException(code, reason, facts, requestId, text, getCause());
  }

  /** Returns whether a message was over a limit, so that a stream may succeed. */
  boolean isTooLarge() {
    return code.equals("RESOURCE_EXHAUSTED") && !reason.equals("OVERLOADED");
  }

  /** Returns the gRPC status code's name, such as INVALID_ARGUMENT. */
  public String code() {
    return code;
  }

  /**
   * Returns the name of a {@code posenc.v1.ErrorReason} without its prefix, such as FIELD_REQUIRED.
   * Empty if the error does not come from the server.
   */
  public String reason() {
    return reason;
  }

  /** Returns the request's field at fault, such as rope.spec.rotary_dim, or an empty text. */
  public String field() {
    return metadata.getOrDefault("field", "");
  }

  /** Returns the facts that belong to the reason. errors.proto lists them. */
  public Map<String, String> metadata() {
    return Collections.unmodifiableMap(metadata);
  }

  /** Returns the call's request id ({@code x-request-id}), which the server also logs. */
  public String requestId() {
    return requestId;
  }
}
