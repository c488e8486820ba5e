package io.github.posenc;

import com.google.protobuf.CodedOutputStream;
import com.google.protobuf.Message;
import com.google.protobuf.WireFormat;
import io.grpc.Drainable;
import io.grpc.KnownLength;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;

/**
 * A request message whose tensors stay in the caller's memory until gRPC writes them out.
 *
 * <pre>
 *   | small fields, header of q | q | header of k | k |
 *          bytes           elements    bytes   elements
 * </pre>
 */
final class Outgoing {
  // The largest message of protobuf: 2 GiB - 1.
  private static final long MAX_BYTES = Integer.MAX_VALUE;

  static final MethodDescriptor.Marshaller<Outgoing> MARSHALLER =
      new MethodDescriptor.Marshaller<Outgoing>() {
        @Override
        public InputStream stream(Outgoing message) {
          return message.new Stream();
        }

        @Override
        public Outgoing parse(InputStream stream) {
          throw new UnsupportedOperationException("requests are only sent");
        }
      };

  private interface Piece {
    void writeTo(OutputStream out) throws IOException;
  }

  private final List<Piece> pieces = new ArrayList<>();
  private long bytes;

  Outgoing(Message small) {
    add(small.toByteArray());
  }

  /** Adds a whole tensor as field {@code number}, unless it is null. */
  Outgoing tensor(int number, Tensor tensor) {
    if (tensor == null) return this;
    return tensor(number, tensor, tensor.shape(), 0, tensor.bytes());
  }

  /** Adds a contiguous part of a tensor as a field. */
  Outgoing tensor(int number, Tensor tensor, long[] shape, long firstByte, long size) {
    add(header(number, tensor.dtype().getNumber(), shape, size));
    if (size > 0) {
      pieces.add(out -> tensor.elements().writeTo(out, firstByte, size));
      bytes += size;
    }
    return this;
  }

  /** Adds a tensor's place in shared memory if it has one, else the whole tensor. */
  Outgoing place(int number, Tensor tensor) {
    if (tensor == null || tensor.place() == null) return tensor(number, tensor);
    io.github.posenc.v1.Tensor.Builder message = io.github.posenc.v1.Tensor.newBuilder()
        .setDtype(tensor.dtype())
        .setShared(tensor.place().toMessage());
    for (long extent : tensor.shape()) message.addShape(extent);
    byte[] inner = message.build().toByteArray();
    try {
      ByteArrayOutputStream field = new ByteArrayOutputStream();
      CodedOutputStream out = CodedOutputStream.newInstance(field);
      out.writeByteArray(number, inner);
      out.flush();
      add(field.toByteArray());
    } catch (IOException e) {
      throw new UncheckedIOException(e); // never: the stream is in memory
    }
    return this;
  }

  long bytes() {
    return bytes;
  }

  /** Checks the size: protobuf's lengths would overflow before any server sees the message. */
  void check(String requestId) {
    if (bytes <= MAX_BYTES) return;
    throw PosencException.local(
        Status.Code.RESOURCE_EXHAUSTED,
        "request: " + bytes + " bytes; the limit is " + MAX_BYTES + ", split the batch",
        requestId);
  }

  private void add(byte[] array) {
    if (array.length == 0) return;
    pieces.add(out -> out.write(array));
    bytes += array.length;
  }

  // Returns the field without its elements, which come last.
  private static byte[] header(int number, int dtype, long[] shape, long size) {
    int extents = 0;
    for (long extent : shape) extents += CodedOutputStream.computeInt64SizeNoTag(extent);
    try {
      ByteArrayOutputStream inner = new ByteArrayOutputStream();
      CodedOutputStream out = CodedOutputStream.newInstance(inner);
      out.writeEnum(io.github.posenc.v1.Tensor.DTYPE_FIELD_NUMBER, dtype);
      out.writeTag(
          io.github.posenc.v1.Tensor.SHAPE_FIELD_NUMBER, WireFormat.WIRETYPE_LENGTH_DELIMITED);
      out.writeUInt32NoTag(extents);
      for (long extent : shape) out.writeInt64NoTag(extent);
      out.writeTag(
          io.github.posenc.v1.Tensor.DATA_FIELD_NUMBER, WireFormat.WIRETYPE_LENGTH_DELIMITED);
      out.writeUInt64NoTag(size);
      out.flush();
      ByteArrayOutputStream field = new ByteArrayOutputStream();
      out = CodedOutputStream.newInstance(field);
      out.writeTag(number, WireFormat.WIRETYPE_LENGTH_DELIMITED);
      out.writeUInt64NoTag(inner.size() + size);
      out.writeRawBytes(inner.toByteArray());
      out.flush();
      return field.toByteArray();
    } catch (IOException e) {
      throw new UncheckedIOException(e); // never: the stream is in memory
    }
  }

  /** The stream for gRPC, which asks for the length and drains it, and never reads. */
  private final class Stream extends InputStream implements KnownLength, Drainable {
    private boolean drained;

    @Override
    public int available() {
      return drained ? 0 : (int) bytes;
    }

    @Override
    public int drainTo(OutputStream out) throws IOException {
      for (Piece piece : pieces) piece.writeTo(out);
      drained = true;
      return (int) bytes;
    }

    @Override
    public int read() throws IOException {
      throw new IOException("a posenc request is drained, not read");
    }
  }
}
