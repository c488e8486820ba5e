package io.github.posenc;

import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import io.github.posenc.rpc.ErrorInfo;
import io.grpc.Metadata;
import io.grpc.Status;
import java.util.Collections;
import java.util.Map;

/**
 * Why a call failed. The message is the server's, and says what to do.
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

  /** What the client itself found wrong with an argument or an option. */
  static PosencException invalid(String field, String text) {
    ErrorInfo info = ErrorInfo.newBuilder().putMetadata("field", field).build();
    return new PosencException(
        Status.Code.INVALID_ARGUMENT.name(), info, "", field + ": " + text, null);
  }

  /** The argument, unless there is none. What requests lack is the server's to name. */
  static <T> T given(String field, T argument) {
    if (argument == null) throw invalid(field, "is null; must be given");
    return argument;
  }

  /** The text if header fields can carry it, which have visible ASCII characters alone. */
  static String visible(String option, String text) {
    if (text == null || text.chars().allMatch(c -> c >= ' ' && c <= '~')) return text;
    throw invalid(option, "must be of visible ASCII characters");
  }

  static PosencException local(Status.Code code, String text, String requestId) {
    return new PosencException(
        code.name(), ErrorInfo.getDefaultInstance(), requestId, text, null);
  }

  /** How a call ended that did not end well. */
  static PosencException of(Status status, Metadata trailers, String target, String requestId) {
    ErrorInfo info = infoOf(trailers);
    StringBuilder text = new StringBuilder();
    text.append(status.getDescription() == null ? status.getCode() : status.getDescription());
    // What the server said explains itself. Else the transport failed: say where, and why.
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

  /** The same error, of a call that has a name by now. */
  PosencException withRequestId(String id) {
    ErrorInfo info = ErrorInfo.newBuilder().setReason(reason).putAllMetadata(metadata()).build();
    return new PosencException(code, info, id, getMessage(), this);
  }

  /** The same error with more to say. */
  PosencException withText(String text) {
    ErrorInfo info = ErrorInfo.newBuilder().setReason(reason).putAllMetadata(metadata()).build();
    return new PosencException(code, info, requestId, text, getCause());
  }

  /** The same error with fields named from inside the message at path: table.rows becomes rows. */
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
      // Details that are no message tell nothing; code and text remain.
    }
    return ErrorInfo.getDefaultInstance();
  }

  /** The gRPC status code's name, such as INVALID_ARGUMENT. */
  public String code() {
    return code;
  }

  /**
   * The name of a {@code posenc.v1.ErrorReason} without its prefix, such as FIELD_REQUIRED. Empty if
   * the error is not the server's.
   */
  public String reason() {
    return reason;
  }

  /** The request's field that is at fault, such as rope.spec.rotary_dim. Empty if none is. */
  public String field() {
    return field;
  }

  /** What comes with the reason; errors.proto lists it. */
  public Map<String, String> metadata() {
    return metadata == null ? Collections.emptyMap() : metadata;
  }

  /** What the call was named in its headers ({@code x-request-id}); the server's log has it too. */
  public String requestId() {
    return requestId;
  }
}
