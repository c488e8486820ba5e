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
 * A call with tensors, which are sent from the caller's memory, and whose results go there. It
 * sends only the places of tensors in shared memory. A rotation whose message would be too large
 * goes as a stream of bytes.
 */
final class TensorCall<M extends Message> {
  /** A tensor of the answer, by its field. */
  private static final class Result {
    final String field;
    final Dtype dtype; // null: only the server knows it, and the shape
    final long[] shape;
    TensorView out; // null: new memory
    long filled; // bytes, of a stream

    Result(String field, Dtype dtype, long[] shape, TensorView out) {
      if (dtype != null) Arguments.output(field, out, dtype, shape);
      this.field = field;
      this.dtype = dtype;
      this.shape = shape;
      this.out = out;
    }

    // The server writes a whole result to a place, so only one of known size gets its place.
    boolean isPlaced() {
      return out != null && out.place() != null && dtype != null;
    }

    void take(Tensor tensor) {
      Dtype is = dtype == null ? tensor.getDtype() : dtype;
      long[] size = dtype == null ? TensorView.shapeOf(tensor.getShapeList()) : shape;
      if (!TensorView.is(tensor, is, size)) {
        throw PosencException.local(Status.Code.INTERNAL,
            "the answer's " + field + " has " + tensor.getData().size() + " bytes of "
                + tensor.getDtype() + " " + tensor.getShapeList() + "; must be " + is + " "
                + Arrays.toString(size));
      }
      Arguments.output(field, out, is, size);
      if (out == null) out = TensorView.allocate(is, size);
      out.put(0, tensor.getData());
    }
  }

  private final Calls calls;
  private final CallOptions options;
  private final String name;
  private final Message request; // without tensors
  private final M response;
  private final Deque<TensorView> out = new LinkedList<>(); // memory for the next results
  private final Map<String, TensorView> inputs = new LinkedHashMap<>();
  private final Map<String, Result> results = new LinkedHashMap<>();
  private boolean rotates;

  /** Makes a call without tensors; `out` is memory for its results in turn, null: new memory. */
  TensorCall(Calls calls, CallOptions options, String name, Message request, M response,
      TensorView... out) {
    this.calls = calls;
    this.options = options;
    this.name = name;
    this.request = Arguments.given("request", request);
    this.response = response;
    if (out != null) this.out.addAll(Arrays.asList(out));
  }

  /** Returns whether memory for a result lies in shared memory. */
  boolean hasPlaces() {
    return out.stream().anyMatch(each -> each != null && each.place() != null);
  }

  /** Adds a tensor of the request; null: the server says that it is missing. */
  TensorCall<M> input(String field, TensorView tensor) {
    if (tensor != null) inputs.put(field, tensor);
    return this;
  }

  /** Adds a tensor of the answer; dtype and shape are null if only the server knows them. */
  TensorCall<M> result(String field, Dtype dtype, long[] shape) {
    results.put(field, new Result(field, dtype, shape, out.poll()));
    return this;
  }

  /** Adds a tensor whose result has its dtype and shape. */
  TensorCall<M> changed(String field, TensorView tensor) {
    if (tensor != null) return input(field, tensor).result(field, tensor.dtype(), tensor.shape());
    if (out.poll() == null) return this;
    throw PosencException.invalid(
        field + "_output", "is given, but " + field + " is not; give both or neither");
  }

  /** Adds a tensor that is rotated, and so may go through a stream. */
  TensorCall<M> rotated(String field, TensorView tensor) {
    rotates = true;
    return changed(field, tensor);
  }

  /** Returns a result after run(); null if the call has none of this field. */
  TensorView result(String field) {
    return results.containsKey(field) ? results.get(field).out : null;
  }

  /** Runs the call, and returns its result of this field. */
  TensorView runFor(String field) {
    run();
    return result(field);
  }

  M run() {
    if (!out.isEmpty()) {
      throw PosencException.invalid(
          "out", "has more tensors than the result, which has " + results.keySet());
    }
    boolean places = results.values().stream().anyMatch(Result::isPlaced)
        || inputs.values().stream().anyMatch(input -> input.place() != null);
    try {
      if (places) return unary(true);
    } catch (PosencException e) {
      if (!mayBeSent(e)) throw e;
    }
    long bytes = request.getSerializedSize();
    for (TensorView input : inputs.values()) bytes += input.bytes();
    // A stream would not notice a byte too few in q and one too many in k: the server names them.
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

  // Returns whether bytes may be sent after a call with places failed; else adds what to do.
  private boolean mayBeSent(PosencException error) {
    // By these errors the server refuses a call before it writes anything.
    boolean untouched =
        List.of("INVALID_ARGUMENT", "NOT_FOUND", "PERMISSION_DENIED", "ABORTED", "UNIMPLEMENTED")
            .contains(error.code());
    if (isInPlace() && !untouched) {
      throw error.with(error.getMessage()
              + "; the tensors may have been rotated by then, in part or whole: write them anew",
          error.requestId());
    }
    // An older server does not know the fields; NOT_FOUND is the caller's file.
    return error.isTooLarge() || error.reason().equals("FIELD_UNKNOWN")
        || (error.reason().equals("SHARED_MEMORY_UNAVAILABLE")
            && !error.code().equals("NOT_FOUND"));
  }

  // Returns whether a result replaces its tensor: such a call must not be sent twice.
  private boolean isInPlace() {
    return results.values().stream().filter(Result::isPlaced).anyMatch(result -> {
      TensorView input = inputs.get(result.field);
      return input != null && result.out.place().equals(input.place());
    });
  }

  private M unary(boolean places) {
    Message.Builder small = request.toBuilder();
    Outgoing message = new Outgoing();
    inputs.forEach((field, tensor) -> {
      FieldDescriptor number = fieldOf(request, field);
      if (places && tensor.place() != null) {
        small.setField(number, tensor.header().setShared(tensor.place()).build());
      } else {
        message.tensor(number.getNumber(), tensor);
      }
    });
    List<Result> sent = new ArrayList<>(results.values()); // as bytes
    for (Result result : results.values()) {
      if (!places || !result.isPlaced()) continue;
      small.setField(fieldOf(request, result.field + "_output"), result.out.place());
      sent.remove(result);
    }
    boolean once = places && isInPlace();
    return calls.run(options, name, MethodType.UNARY, once, List.of(message.message(small.build())),
        response, answer -> sent.forEach(result -> result.take(tensorOf(answer, result.field))));
  }

  private static FieldDescriptor fieldOf(Message message, String name) {
    return message.getDescriptorForType().findFieldByName(name);
  }

  static Tensor tensorOf(Message answer, String field) {
    return (Tensor) answer.getField(fieldOf(answer, field));
  }

  /** Returns a tensor of an answer in new memory. */
  static TensorView received(String field, Tensor tensor) {
    Result result = new Result(field, null, null, null);
    result.take(tensor);
    return result.out;
  }

  // The messages of ApplyRopeStream and RepositionStream are alike: `call`, which describes the
  // tensors, and then bytes. Both sides cut them where they like.
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
    for (Result result : results.values()) {
      if (result.out == null) result.out = TensorView.allocate(result.dtype, result.shape);
    }
    long all = results.values().stream().mapToLong(result -> result.out.bytes()).sum();
    long[] done = {0};
    calls.run(options, name + "Stream", MethodType.BIDI_STREAMING, false, messages,
        ApplyRopeStreamResponse.getDefaultInstance(), answer -> {
          done[0] += answer.getData().size();
          if (done[0] > all) throw misfit(done[0], all);
          put(answer.getData());
          Posenc.Progress progress = options.getOption(Calls.PROGRESS);
          if (progress != null) progress.moved(done[0], all);
        });
    if (done[0] < all) throw misfit(done[0], all);
  }

  // Copies the next bytes of a stream's answers, which are those of all results in turn.
  private void put(ByteString data) {
    ByteString rest = data;
    for (Result result : results.values()) {
      int size = (int) Math.min(result.out.bytes() - result.filled, rest.size());
      result.out.put(result.filled, rest.substring(0, size));
      result.filled += size;
      rest = rest.substring(size);
    }
  }

  private PosencException misfit(long bytes, long all) {
    String text = "the answer has " + bytes + " bytes, which does not fit the tensors' " + all;
    return PosencException.local(Status.Code.INTERNAL, text)
        .with(text, options.getOption(Calls.REQUEST_ID));
  }

  // Moves the elements of ids and shifts out of the message, in the order of their fields. There
  // are no other tensors in it.
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
