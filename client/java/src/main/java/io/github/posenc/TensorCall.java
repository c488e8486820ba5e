package io.github.posenc;

import com.google.protobuf.ByteString;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Message;
import io.github.posenc.v1.*;
import io.grpc.CallOptions;
import io.grpc.MethodDescriptor.MethodType;
import io.grpc.Status;
import java.nio.ByteBuffer;
import java.util.*;

/**
 * A call with tensors. Tensors are sent from the caller's memory, and results are written to the
 * caller's memory. Tensors in shared memory are sent as places. A rotation whose message would be
 * too large is sent as a stream of bytes.
 */
final class TensorCall<M extends Message> {
  private final Calls calls;
  private final CallOptions options;
  private final String name;
  private final Message request; // without tensors
  private final M response;
  private final Deque<TensorView> out = new LinkedList<>(); // memory for the next results
  private final Map<String, TensorView> inputs = new LinkedHashMap<>();
  private final Map<String, Result> results = new LinkedHashMap<>();
  private boolean rotates;

  /**
   * Makes a call without tensors; the caller adds them later. `out` has the memory of each result,
   * in order. Null: the result gets new memory.
   */
  TensorCall(Calls calls, CallOptions options, String name, Message request, M response,
      TensorView... out) {
    this.calls = calls;
    this.options = options;
    this.name = name;
    this.request = Arguments.given("request", request);
    this.response = response;
    if (out != null) this.out.addAll(Arrays.asList(out));
  }

  /** Adds a tensor of the request, if it is not null. The server reports missing tensors. */
  TensorCall<M> input(String field, TensorView tensor) {
    if (tensor != null) inputs.put(field, tensor);
    return this;
  }

  /** Returns the result in this field of the answer. The first call adds the result. */
  Result result(String field) {
    return results.computeIfAbsent(field, name -> new Result(name, out.poll()));
  }

  /** Adds a tensor whose result has the same dtype and shape. */
  TensorCall<M> changed(String field, TensorView tensor) {
    if (tensor != null) {
      result(field).expect(tensor.dtype(), tensor.header().getShapeList());
    } else if (out.poll() != null) {
      throw PosencException.invalid(
          field + "_output", "is given, but " + field + " is not; give both or neither");
    }
    return input(field, tensor);
  }

  /** Adds a tensor that is rotated. Such a tensor may be sent as a stream. */
  TensorCall<M> rotated(String field, TensorView tensor) {
    rotates = true;
    return changed(field, tensor);
  }

  /** Returns the result in this field after the call, or null if the answer has no such tensor. */
  TensorView get(String field) {
    return results.containsKey(field) ? results.get(field).out() : null;
  }

  /** Runs the call, and returns its result in this field. */
  TensorView runFor(String field) {
    result(field);
    run();
    return get(field);
  }

  M run() {
    if (!out.isEmpty()) {
      throw PosencException.invalid(
          "out", "has more tensors than the result, which has " + results.keySet());
    }
    boolean places = results.values().stream().anyMatch(Result::isPlaced)
        || inputs.values().stream().anyMatch(input -> input.place != null);
    try {
      if (places) return unary(true);
    } catch (PosencException e) {
      if (!mayBeSent(e)) throw e;
    }
    long bytes = request.getSerializedSize();
    for (TensorView input : inputs.values()) bytes += input.bytes();
    // A stream would not notice that q lacks a byte and k has one byte too many. The error of a
    // unary call names the tensor.
    boolean streams = rotates && inputs.values().stream().allMatch(TensorView::isWhole);
    try {
      if (!streams || bytes <= calls.client.streamAboveBytes) return unary(false);
    } catch (PosencException e) {
      // The server's limit may be lower than the client's.
      if (!streams || !e.isTooLarge() || bytes <= calls.client.chunkBytes) throw e;
    }
    stream();
    return response;
  }

  // Returns whether bytes may be sent after a call with places has failed. If the failed call may
  // have rotated a tensor in place, throws its error, with the remedy in the text.
  private boolean mayBeSent(PosencException error) {
    // With these codes, except ABORTED, the server has written nothing. The text of an ABORTED
    // error already says what to do.
    boolean untouched =
        List.of("INVALID_ARGUMENT", "NOT_FOUND", "PERMISSION_DENIED", "ABORTED", "UNIMPLEMENTED")
            .contains(error.code());
    if (isInPlace() && !untouched) {
      throw error.with(error.getMessage()
              + "; the tensors may have been rotated by then, in part or whole: write them anew",
          error.requestId());
    }
    // An older server does not know the fields for shared memory. NOT_FOUND means that the caller's
    // file does not exist.
    return error.isTooLarge() || error.reason().equals("FIELD_UNKNOWN")
        || (error.reason().equals("SHARED_MEMORY_UNAVAILABLE")
            && !error.code().equals("NOT_FOUND"));
  }

  // Returns whether a result replaces its tensor in shared memory. Such a call must not be sent
  // twice.
  private boolean isInPlace() {
    return inputs.entrySet().stream().anyMatch(input -> {
      Result result = results.get(input.getKey());
      return result != null && result.isPlaced()
          && result.out().place.equals(input.getValue().place);
    });
  }

  private M unary(boolean places) {
    Message.Builder small = request.toBuilder();
    Outgoing message = new Outgoing();
    inputs.forEach((field, tensor) -> {
      FieldDescriptor number = fieldOf(request, field);
      if (places && tensor.place != null) {
        small.setField(number, tensor.header().setShared(tensor.place).build());
      } else {
        message.tensor(number.getNumber(), tensor);
      }
    });
    Map<String, Result> sent = new HashMap<>(results); // results that are sent as bytes
    if (places) sent.values().removeIf(Result::isPlaced);
    results.forEach((field, result) -> {
      if (sent.containsKey(field)) return;
      small.setField(fieldOf(request, field + "_output"), result.out().place);
    });
    message.message(small.build());
    return calls.run(options, name, MethodType.UNARY, places && isInPlace(), List.of(message),
        response, answer -> sent.forEach((field, result) -> result.take(tensorOf(answer, field))));
  }

  private static FieldDescriptor fieldOf(Message message, String name) {
    return message.getDescriptorForType().findFieldByName(name);
  }

  static Tensor tensorOf(Message answer, String field) {
    return (Tensor) answer.getField(fieldOf(answer, field));
  }

  // ApplyRopeStream and RepositionStream have the same kinds of messages: first `call`, which
  // describes the tensors, and then bytes. Client and server may cut the bytes anywhere.
  private void stream() {
    Message.Builder call = request.toBuilder();
    List<TensorView> sources = new ArrayList<>();
    int chunkBytes = calls.client.chunkBytes;
    if (request.getSerializedSize() > chunkBytes) takeIds(call, sources);
    inputs.forEach(
        (field, tensor) -> call.setField(fieldOf(request, field), tensor.header().build()));
    sources.addAll(inputs.values());
    List<Outgoing> messages = new ArrayList<>();
    messages.add(new Outgoing().field(ApplyRopeStreamRequest.CALL_FIELD_NUMBER, call.build()));
    for (TensorView source : sources) {
      for (long at = 0; at < source.bytes(); at += chunkBytes) {
        long size = Math.min(chunkBytes, source.bytes() - at);
        messages.add(
            new Outgoing().data(ApplyRopeStreamRequest.DATA_FIELD_NUMBER, source, at, size));
      }
    }
    Collection<Result> parts = results.values();
    long all = parts.stream().mapToLong(part -> part.allocate(1).out().bytes()).sum();
    long[] done = {0};
    calls.run(options, name + "Stream", MethodType.BIDI_STREAMING, false, messages,
        ApplyRopeStreamResponse.getDefaultInstance(), answer -> {
          ByteString rest = answer.getData();
          done[0] += rest.size();
          for (Result part : parts) rest = part.put(rest);
          if (!rest.isEmpty()) {
            String text = "the answer does not fit the tensors: it has more bytes";
            throw PosencException.local(Status.Code.INTERNAL, text);
          }
          Posenc.Progress progress = options.getOption(Calls.PROGRESS);
          if (progress != null) progress.moved(done[0], all);
        });
    try {
      parts.forEach(Result::end);
    } catch (PosencException e) {
      throw e.with(e.getMessage(), options.getOption(Calls.REQUEST_ID));
    }
  }

  // Moves the elements of ids and shifts from the message to `sources`, in the order of their
  // fields. The message has no other tensors.
  private static void takeIds(Message.Builder message, List<TensorView> sources) {
    message.getAllFields().forEach((field, value) -> {
      if (!(value instanceof Message)) return;
      Message.Builder inner = ((Message) value).toBuilder();
      if (!(value instanceof Tensor)) {
        takeIds(inner, sources);
      } else if (((Tensor) value).getValuesCount() == 0) {
        ByteBuffer data = ((Tensor) value).getData().asReadOnlyByteBuffer();
        sources.add(TensorView.of(((Tensor) value).getDtype(), data, data.remaining()));
        ((Tensor.Builder) inner).clearData();
      }
      message.setField(field, inner.build());
    });
  }
}
