package io.github.posenc;

import com.google.protobuf.Message;
import java.util.ArrayList;
import java.util.List;

/** The places that a call sends for tensors and results in shared memory, instead of bytes. */
final class Sharing {
  private boolean any;
  private long restBytes;
  private final List<String> inPlace = new ArrayList<>();
  private final List<Tensor> inputs = new ArrayList<>();

  void input(Tensor tensor) {
    if (tensor == null) return;
    inputs.add(tensor);
    any |= tensor.place() != null;
    if (tensor.place() == null) restBytes += tensor.bytes();
  }

  /** Call this after input() of all tensors. */
  void output(String name, Tensor out) {
    if (out == null || out.place() == null) return;
    any = true;
    if (inputs.stream().anyMatch(input -> out.place().is(input.place()))) inPlace.add(name);
  }

  boolean any() {
    return any;
  }

  /** Returns the bytes of tensors that lie elsewhere, and are sent. */
  long restBytes() {
    return restBytes;
  }

  /** Returns whether a result replaces its tensor: such a call must not be sent twice. */
  boolean once() {
    return !inPlace.isEmpty();
  }

  /** Returns the request with a result's place. */
  static Message withOutput(Message request, String result, Tensor out) {
    Message.Builder builder = request.toBuilder();
    return builder
        .setField(
            builder.getDescriptorForType().findFieldByName(result + "_output"),
            out.place().toMessage())
        .build();
  }

  /** Returns if bytes may be sent instead; else throws the error for the caller. */
  void check(PosencException error) {
    // An older server does not know the fields.
    boolean refused = List.of("SHARED_MEMORY_UNAVAILABLE", "FIELD_UNKNOWN").contains(error.reason())
        && List.of("UNIMPLEMENTED", "PERMISSION_DENIED").contains(error.code());
    boolean tooLarge =
        error.code().equals("RESOURCE_EXHAUSTED") && !error.reason().equals("OVERLOADED");
    if (refused || (tooLarge && inPlace.isEmpty())) return;
    // By these errors the server refuses a call before it writes anything.
    boolean untouched = List.of("INVALID_ARGUMENT", "NOT_FOUND", "PERMISSION_DENIED", "ABORTED",
        "UNIMPLEMENTED").contains(error.code());
    if (inPlace.isEmpty() || untouched) throw error;
    throw error.withText(error.getMessage() + "; " + String.join(" and ", inPlace)
        + " may have been rotated by then, in part or whole: write it anew");
  }
}
