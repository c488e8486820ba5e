package io.github.posenc;

import com.google.protobuf.Message;
import io.github.posenc.v1.Tensor;
import io.grpc.Drainable;
import io.grpc.KnownLength;
import java.io.*;
import java.util.ArrayList;
import java.util.List;

/**
 * A request message whose tensors stay in the caller's memory until gRPC writes them to the
 * network.
 *
 * <pre>
 *   | small fields, header of q | q | header of k | k |
 *          bytes           elements    bytes   elements
 * </pre>
 *
 * <p>gRPC treats the message as an InputStream. For each attempt, gRPC asks for the length of the
 * stream, and drains it. gRPC never calls read().
 */
final class Outgoing extends InputStream implements KnownLength, Drainable {
  private final List<Drainable> pieces = new ArrayList<>();
  private long bytes;

  /** Adds all fields of a message. */
  Outgoing message(Message message) {
    return add(message.toByteArray());
  }

  /** Adds a message as a field. */
  Outgoing field(int number, Message message) {
    return add(header(number, message.getSerializedSize())).message(message);
  }

  /** Adds a tensor as a field. The elements come last, after the tensor's type and shape. */
  Outgoing tensor(int number, TensorView tensor) {
    byte[] inner = tensor.header().build().toByteArray();
    byte[] data = header(Tensor.DATA_FIELD_NUMBER, tensor.bytes());
    add(header(number, inner.length + data.length + tensor.bytes())).add(inner);
    return data(Tensor.DATA_FIELD_NUMBER, tensor, 0, tensor.bytes());
  }

  /** Adds a part of a tensor's bytes as a field. */
  Outgoing data(int number, TensorView tensor, long firstByte, long size) {
    add(header(number, size)).pieces.add(out -> tensor.writeTo(out, firstByte, (int) size));
    bytes += size;
    return this;
  }

  private Outgoing add(byte[] array) {
    pieces.add(out -> {
      out.write(array);
      return array.length;
    });
    bytes += array.length;
    return this;
  }

  // Returns the first bytes of a field whose value has `size` bytes: the tag and the size.
  private static byte[] header(int number, long size) {
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    out.write(number << 3 | 2); // protobuf's wire type 2 is for bytes and messages
    long rest = size;
    for (; rest > 0x7f; rest >>>= 7) out.write((int) rest & 0x7f | 0x80);
    out.write((int) rest);
    return out.toByteArray();
  }

  long bytes() {
    return bytes;
  }

  @Override
  public int available() {
    return (int) bytes;
  }

  @Override
  public int drainTo(OutputStream out) throws IOException {
    for (Drainable piece : pieces) piece.drainTo(out);
    return (int) bytes;
  }

  @Override
  public int read() throws IOException {
    throw new IOException("a posenc request is drained, not read");
  }
}
