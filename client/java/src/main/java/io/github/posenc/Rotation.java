package io.github.posenc;

import com.google.protobuf.Message;
import io.github.posenc.v1.Dtype;
import io.github.posenc.v1.RopeSource;
import io.grpc.Status;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import java.util.function.Supplier;

/**
 * A rotation of tensors of heads, in one message or, if they are too large, in chunks that go
 * through a stream. ApplyRope and Reposition differ only in their messages.
 */
final class Rotation {
  /** A tensor of the call and the memory for its result, which may be the tensor's. */
  static final class Operand {
    final String name;
    final int field;
    final Tensor tensor;
    Tensor out; // null: new memory

    Operand(String name, int field, Tensor tensor, Tensor out) {
      this.name = name;
      this.field = field;
      this.tensor = tensor;
      this.out = out;
    }
  }

  // Bytes of a message beside a chunk's tensor, positions and settings: tags, lengths, shapes.
  private static final long FRAMING_BYTES = 256;

  String name;
  Message request; // without tensors
  Message response;
  Layout layout; // null if the request has none, which the server reports
  RopeSource rope;
  boolean headsDiffer;
  final List<Operand> operands = new ArrayList<>();
  Message streamSettings;
  Message streamResponse;
  /** Whether only the encoding shows if these positions have axes, by the number of sequences. */
  Function<Long, Boolean> needAxes;
  /** Makes a stream's message with the positions of a part; the first also has the settings. */
  PlacesOf placesOf;

  interface PlacesOf {
    Message of(Message settings, CutPositions cut, Cut.Part part);
  }

  void operand(String operandName, int field, Tensor tensor, Tensor out) {
    if (tensor == null && out == null) return;
    if (tensor == null) {
      throw PosencException.invalid(
          operandName + "_output",
          "is given, but " + operandName + " is not; give both or neither");
    }
    checkOutput(operandName + "_output", tensor, out);
    SharedRegion.check(operandName, tensor);
    SharedRegion.check(operandName + "_output", out);
    operands.add(new Operand(operandName, field, tensor, out));
  }

  /** Checks that the result fits its memory, which the server cannot see. */
  static void checkOutput(String name, Tensor tensor, Tensor out) {
    checkOutput(name, tensor.dtype(), tensor.shape(), out);
    if (out != null && out.bytes() != tensor.bytes()) {
      throw PosencException.invalid(
          name, "has " + out.bytes() + " bytes; must have " + tensor.bytes());
    }
  }

  static void checkOutput(String name, Dtype dtype, long[] shape, Tensor out) {
    if (out == null) return;
    checkWritable(name, out);
    if (out.dtype() != dtype) {
      throw PosencException.invalid(name, "is " + out.dtype() + "; must be " + dtype);
    }
    if (!Arrays.equals(out.shape(), shape)) {
      throw PosencException.invalid(
          name, "has shape " + Arrays.toString(out.shape()) + "; must be " + Arrays.toString(shape));
    }
  }

  static void checkWritable(String name, Tensor out) {
    if (out == null || !out.elements().isReadOnly()) return;
    throw PosencException.invalid(
        name, "is read-only; must be writable");
  }

  // The error of a tensor that is too large for one message and cannot be cut.
  private static PosencException tooLarge(Cut.Misfit misfit) {
    return PosencException.local(Status.Code.INVALID_ARGUMENT, misfit.getMessage(), "");
  }

  void run(Calls calls, CallSettings whole) {
    Supplier<CallSettings> settings = whole.forRequests();
    Outgoing message = new Outgoing(request);
    long tensorBytes = 0;
    for (Operand operand : operands) {
      message.tensor(operand.field, operand.tensor);
      tensorBytes += operand.tensor.bytes();
    }
    if (shared(calls, settings.get())) return;
    boolean canCut = tensorBytes > 0;
    if (canCut && message.bytes() > calls.streamAboveBytes) {
      try {
        inChunks(calls, settings, tensorBytes);
        return;
      } catch (Cut.Misfit e) {
        // Nothing was sent. In one message the server sees the mistake, and reports it with a
        // reason.
        if (message.bytes() > calls.maxMessageBytes) throw tooLarge(e);
      }
    }
    try {
      List<Integer> fields = new ArrayList<>();
      Map<Integer, Incoming.Target> targets = new HashMap<>();
      for (Operand operand : operands) {
        fields.add(operand.field);
        targets.put(operand.field, target(operand));
      }
      Incoming.Parsed<Message> parsed =
          calls.unary(settings.get(), name, message, response, fields, targets, 0, false);
      for (Operand operand : operands) {
        operand.out = parsed.required(operand.field);
      }
    } catch (PosencException e) {
      // The server's limit may be lower than ours. A message no larger than a chunk would only be
      // refused again.
      boolean tooLarge = e.code().equals("RESOURCE_EXHAUSTED") && !e.reason().equals("OVERLOADED");
      if (!tooLarge || !canCut || !exceedsChunk(message, calls, settings.get())) throw e;
      try {
        inChunks(calls, settings, tensorBytes);
      } catch (Cut.Misfit misfit) {
        throw tooLarge(misfit);
      }
    }
  }

  // Also false if the server does not return the size of a chunk in time.
  private static boolean exceedsChunk(Outgoing message, Calls calls, CallSettings settings) {
    try {
      return message.bytes() > calls.chunkBytes(settings);
    } catch (PosencException e) {
      return false;
    }
  }

  /** Returns false if bytes must be sent. */
  private boolean shared(Calls calls, CallSettings settings) {
    Sharing sharing = new Sharing();
    for (Operand operand : operands) sharing.input(operand.tensor);
    for (Operand operand : operands) sharing.output(operand.name, operand.out);
    if (!sharing.any() || sharing.restBytes() > calls.streamAboveBytes) return false;
    Message said = request;
    List<Integer> fields = new ArrayList<>();
    Map<Integer, Incoming.Target> targets = new HashMap<>();
    for (Operand operand : operands) {
      if (operand.out != null && operand.out.place() != null) {
        said = Sharing.withOutput(said, operand.name, operand.out);
      } else {
        fields.add(operand.field);
        targets.put(operand.field, target(operand));
      }
    }
    Outgoing message = new Outgoing(said);
    for (Operand operand : operands) message.place(operand.field, operand.tensor);
    try {
      Incoming.Parsed<Message> parsed = calls.unary(
          settings, name, message, response, fields, targets, sharing.restBytes(), sharing.once());
      for (Operand operand : operands) {
        if (!fields.contains(operand.field)) continue;
        operand.out = parsed.required(operand.field);
      }
      return true;
    } catch (PosencException e) {
      sharing.check(e);
      return false;
    }
  }

  /** Returns the rotated tensor; null if none of this name was sent. */
  Tensor result(String operandName) {
    for (Operand operand : operands) {
      if (operand.name.equals(operandName)) return operand.out;
    }
    return null;
  }

  // The result has the tensor's type and shape.
  private static Incoming.Target target(Operand operand) {
    return Incoming.Target.whole(operand.out, operand.tensor.dtype(), operand.tensor.shape());
  }

  private static final class Chunk {
    final Operand operand;
    final Cut.Part part;
    final CutPositions places;

    Chunk(Operand operand, Cut.Part part, CutPositions places) {
      this.operand = operand;
      this.part = part;
      this.places = places;
    }
  }

  // Cuts each tensor separately and in order: q and k may have different numbers of heads, so equal
  // amounts of memory hold different tokens. Throws Misfit before anything is sent.
  private void inChunks(Calls calls, Supplier<CallSettings> settings, long tensorBytes) {
    long chunkBytes = calls.chunkBytes(settings.get());
    boolean severalAxes = false;
    for (Operand operand : operands) {
      Cut.check(operand.name, operand.tensor, layout);
      severalAxes |= needAxes.apply(Cut.extent(operand.tensor, layout, 'B'));
    }
    severalAxes = severalAxes && calls.severalAxes(settings.get(), rope);
    Deque<Chunk> chunks = new ArrayDeque<>();
    // Positions are cut twice. The first time gives the size of the largest message, to announce
    // it, and checks that positions fit the tensors before anything is sent.
    long announced = 0;
    for (Operand operand : operands) {
      CutPositions places = new CutPositions(
          layout,
          Cut.extent(operand.tensor, layout, 'B'),
          Cut.extent(operand.tensor, layout, layout == Layout.THD ? 'T' : 'S'),
          severalAxes);
      for (Cut.Part part : Cut.parts(operand.tensor, layout, headsDiffer, chunkBytes)) {
        if (part.bytes > calls.maxMessageBytes) {
          throw PosencException.local(
              Status.Code.RESOURCE_EXHAUSTED,
              operand.name + ": " + part.bytes + " bytes cannot be cut into smaller messages; the"
                  + " limit is " + calls.maxMessageBytes
                  + (headsDiffer ? ", and frequencies by head need all heads together" : ""),
              "");
        }
        long message = part.bytes + placesOf.of(streamSettings, places, part).getSerializedSize();
        announced = Math.max(announced, message + FRAMING_BYTES);
        chunks.add(new Chunk(operand, part, places));
      }
    }

    for (Operand operand : operands) {
      if (operand.out != null) continue;
      operand.out = Tensor.allocate(operand.tensor.dtype(), operand.tensor.shape());
    }
    Deque<Chunk> sent = new ArrayDeque<>(); // not answered yet
    Message none = streamSettings.getDefaultInstanceForType();
    long[] done = {0, 0}; // chunks sent, bytes answered
    CallSettings rest = settings.get();
    calls.stream(
        rest,
        name + "Stream",
        true,
        announced,
        () -> {
          Chunk chunk = chunks.poll();
          if (chunk == null) return null;
          sent.add(chunk);
          Message small =
              placesOf.of(done[0]++ == 0 ? streamSettings : none, chunk.places, chunk.part);
          return new Outgoing(small)
              .tensor(
                  chunk.operand.field,
                  chunk.operand.tensor,
                  chunk.part.shape,
                  chunk.part.firstByte,
                  chunk.part.bytes);
        },
        in -> {
          Chunk chunk = sent.poll();
          if (chunk == null) {
            throw PosencException.local(Status.Code.INTERNAL, "the stream has more answers than messages", "");
          }
          Incoming.Target target = new Incoming.Target(
              chunk.operand.out,
              chunk.part.firstByte,
              chunk.part.bytes,
              chunk.operand.tensor.dtype(),
              chunk.part.shape);
          int field = chunk.operand.field;
          Incoming.parse(in, streamResponse, List.of(field), Map.of(field, target)).required(field);
          done[1] += chunk.part.bytes;
          if (rest.progress != null) rest.progress.moved(done[1], tensorBytes);
        });
  }
}
