package io.github.posenc;

import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import io.github.posenc.rpc.ErrorInfo;
import io.grpc.Metadata;
import io.grpc.Status;
import java.util.Collections;
import java.util.Map;

/**
 * The error of a failed call. The message is the server's, and says how to fix it.
 *
 * <p>Branch on {@link #code()} and {@link #reason()}, never on the text.
 */
public final class PosencException extends RuntimeException {
  private static final long serialVersionUID = 1;
  private static final Metadata.Key<byte[]> DETAILS =
      Metadata.Key.of("grpc-status-details-bin", Metadata.BINARY_BYTE_MARSHALLER);
  private static final String REASON_PREFIX = "ERROR_REASON_";

  private final String code;
  private final String reason;
  private final transient Map<String, String> metadata;
  private final String field;
  private final String requestId;

  private PosencException(
      String code, ErrorInfo info, String requestId, String text, Throwable cause) {
    super(text, cause);
    this.code = code;
    String name = info.getReason();
    this.reason = name.startsWith(REASON_PREFIX) ? name.substring(REASON_PREFIX.length()) : name;
    this.metadata = info.getMetadataMap();
    this.field = metadata.getOrDefault("field", "");
    this.requestId = requestId;
  }

  /** Returns the error of a wrong argument or option that the client itself found. */
  static PosencException invalid(String field, String text) {
    ErrorInfo info = ErrorInfo.newBuilder().putMetadata("field", field).build();
    return new PosencException(
        Status.Code.INVALID_ARGUMENT.name(), info, "", field + ": " + text, null);
  }

  /**
   * Returns the argument, or throws if it is null. The server reports missing fields of requests.
   */
  static <T> T given(String field, T argument) {
    if (argument == null) throw invalid(field, "is null; must be given");
    return argument;
  }

  /** Returns the text if header fields can carry it: they have only visible ASCII characters. */
  static String visible(String option, String text) {
    if (text == null || text.chars().allMatch(c -> c >= ' ' && c <= '~')) return text;
    throw invalid(option, "must be of visible ASCII characters");
  }

  static PosencException local(Status.Code code, String text, String requestId) {
    return new PosencException(
        code.name(), ErrorInfo.getDefaultInstance(), requestId, text, null);
  }

  /** Returns the error of a failed call. */
  static PosencException of(Status status, Metadata trailers, String target, String requestId) {
    ErrorInfo info = infoOf(trailers);
    StringBuilder text = new StringBuilder();
    text.append(status.getDescription() == null ? status.getCode() : status.getDescription());
    // A server's text explains itself. Else the transport failed: add the target and the cause.
    if (info.getReason().isEmpty()) {
      for (Throwable cause = status.getCause(); cause != null; cause = cause.getCause()) {
        if (cause.getMessage() != null && text.indexOf(cause.getMessage()) < 0) {
          text.append(": ").append(cause.getMessage());
        }
      }
      text.append(" (server ").append(target).append(')');
    }
    return new PosencException(
        status.getCode().name(), info, requestId, text.toString(), status.getCause());
  }

  /** Returns the same error with the call's id. */
  PosencException withRequestId(String id) {
    ErrorInfo info = ErrorInfo.newBuilder().setReason(reason).putAllMetadata(metadata()).build();
    return new PosencException(code, info, id, getMessage(), this);
  }

  /** Returns the same error with more text. */
  PosencException withText(String text) {
    ErrorInfo info = ErrorInfo.newBuilder().setReason(reason).putAllMetadata(metadata()).build();
    return new PosencException(code, info, requestId, text, getCause());
  }

  /**
   * Returns the same error with fields relative to the message at path: table.rows becomes rows.
   */
  PosencException outsideOf(String path) {
    if (!field.startsWith(path + ".")) return this;
    ErrorInfo info = ErrorInfo.newBuilder()
        .setReason(reason)
        .putAllMetadata(metadata())
        .putMetadata("field", field.substring(path.length() + 1))
        .build();
    String text = (" " + getMessage()).replace(" " + path + ".", " ").substring(1);
    return new PosencException(code, info, requestId, text, getCause());
  }

  private static ErrorInfo infoOf(Metadata trailers) {
    byte[] details = trailers == null ? null : trailers.get(DETAILS);
    if (details == null) return ErrorInfo.getDefaultInstance();
    try {
      for (Any detail : io.github.posenc.rpc.Status.parseFrom(details).getDetailsList()) {
        if (detail.getTypeUrl().endsWith("/google.rpc.ErrorInfo")) {
          return ErrorInfo.parseFrom(detail.getValue());
        }
      }
    } catch (InvalidProtocolBufferException e) {
      // Unreadable details are ignored; code and text remain.
    }
    return ErrorInfo.getDefaultInstance();
  }

  /** Returns the gRPC status code's name, such as INVALID_ARGUMENT. */
  public String code() {
    return code;
  }

  /**
   * Returns the name of a {@code posenc.v1.ErrorReason} without its prefix, such as FIELD_REQUIRED.
   * Empty if the error is not the server's.
   */
  public String reason() {
    return reason;
  }

  /** Returns the request's field at fault, such as rope.spec.rotary_dim, or an empty text. */
  public String field() {
    return field;
  }

  /** Returns the reason's facts, which errors.proto lists. */
  public Map<String, String> metadata() {
    return metadata == null ? Collections.emptyMap() : metadata;
  }

  /** Returns the call's id from its headers ({@code x-request-id}), which the server logs, too. */
  public String requestId() {
    return requestId;
  }
}
