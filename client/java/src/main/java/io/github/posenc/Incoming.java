package io.github.posenc;

import com.google.protobuf.CodedOutputStream;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.Message;
import com.google.protobuf.WireFormat;
import io.github.posenc.v1.Dtype;
import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Reads a response: its tensors' elements straight into memory of the caller's, or into new arrays,
 * and all else as the generated code does.
 */
final class Incoming {
  /** Where a tensor's elements go: a run of memory of the caller's. */
  static final class Target {
    final Tensor tensor;
    final long firstByte;
    final long bytes;

    Target(Tensor tensor, long firstByte, long bytes) {
      this.tensor = tensor;
      this.firstByte = firstByte;
      this.bytes = bytes;
    }

    static Target whole(Tensor tensor) {
      return tensor == null ? null : new Target(tensor, 0, tensor.bytes());
    }
  }

  private final InputStream in;
  private final Map<Integer, Tensor> tensors = new HashMap<>();
  private long consumed;

  private Incoming(InputStream in) {
    this.in = in;
  }

  /** A message, and beside it the tensors of the fields that were asked for. */
  static final class Parsed<M extends Message> {
    final M message;
    private final Map<Integer, Tensor> tensors;

    private Parsed(M message, Map<Integer, Tensor> tensors) {
      this.message = message;
      this.tensors = tensors;
    }

    /** Null if the message has no such field. */
    Tensor tensor(int field) {
      return tensors.get(field);
    }
  }

  /**
   * Parses the whole stream.
   *
   * @param fields numbers of the fields that are tensors
   * @param targets where their elements go, by number; others get arrays of their own
   */
  @SuppressWarnings("unchecked")
  static <M extends Message> Parsed<M> parse(
      InputStream in, M prototype, List<Integer> fields, Map<Integer, Target> targets)
      throws IOException {
    Incoming reader = new Incoming(in);
    ByteArrayOutputStream rest = new ByteArrayOutputStream();
    CodedOutputStream small = CodedOutputStream.newInstance(rest);
    for (int tag = reader.tag(); tag != 0; tag = reader.tag()) {
      int number = WireFormat.getTagFieldNumber(tag);
      if (fields.contains(number)
          && WireFormat.getTagWireType(tag) == WireFormat.WIRETYPE_LENGTH_DELIMITED) {
        reader.tensor(number, targets.get(number));
      } else {
        reader.copyField(tag, small);
      }
    }
    small.flush();
    M message = (M) prototype.getParserForType().parseFrom(rest.toByteArray());
    return new Parsed<>(message, reader.tensors);
  }

  // Serializers write `data` last, as it has the highest number: dtype and shape are known then.
  private void tensor(int number, Target target) throws IOException {
    long end = varint();
    end += consumed;
    ByteArrayOutputStream rest = new ByteArrayOutputStream();
    CodedOutputStream header = CodedOutputStream.newInstance(rest);
    Tensor tensor = null;
    while (consumed < end) {
      int tag = tag();
      if (WireFormat.getTagFieldNumber(tag) != io.github.posenc.v1.Tensor.DATA_FIELD_NUMBER) {
        copyField(tag, header);
        continue;
      }
      header.flush();
      tensor = elements(io.github.posenc.v1.Tensor.parseFrom(rest.toByteArray()), target);
    }
    if (tensor == null) { // no bytes: an empty tensor
      header.flush();
      tensor = Tensor.of(io.github.posenc.v1.Tensor.parseFrom(rest.toByteArray()));
      if (target != null) fits(tensor.bytes(), target);
    }
    tensors.put(number, tensor);
  }

  private Tensor elements(io.github.posenc.v1.Tensor header, Target target) throws IOException {
    long size = varint();
    long[] shape = header.getShapeList().stream().mapToLong(Long::longValue).toArray();
    Tensor tensor;
    long firstByte = 0;
    if (target != null) {
      fits(size, target);
      tensor = target.tensor;
      firstByte = target.firstByte;
    } else if (header.getDtype() == Dtype.DTYPE_UNSPECIFIED
        || header.getDtype() == Dtype.UNRECOGNIZED) {
      throw new InvalidProtocolBufferException("a tensor of no dtype that this client knows");
    } else {
      tensor = Tensor.allocate(header.getDtype(), shape);
      if (tensor.bytes() != size) {
        throw new InvalidProtocolBufferException(tensor + " with " + size + " bytes");
      }
    }
    tensor.elements().readFrom(in, firstByte, size);
    consumed += size;
    return tensor;
  }

  private static void fits(long size, Target target) {
    if (size == target.bytes) return;
    throw PosencException.invalid(
        "out",
        "the answer's tensor has " + size + " bytes, the memory given for it " + target.bytes
            + "; they must be equal");
  }

  private void copyField(int tag, CodedOutputStream to) throws IOException {
    to.writeUInt32NoTag(tag);
    switch (WireFormat.getTagWireType(tag)) {
      case WireFormat.WIRETYPE_VARINT:
        to.writeUInt64NoTag(varint());
        break;
      case WireFormat.WIRETYPE_FIXED64:
        to.writeRawBytes(raw(8));
        break;
      case WireFormat.WIRETYPE_FIXED32:
        to.writeRawBytes(raw(4));
        break;
      case WireFormat.WIRETYPE_LENGTH_DELIMITED:
        long size = varint();
        to.writeUInt64NoTag(size);
        to.writeRawBytes(raw(size));
        break;
      default:
        throw new InvalidProtocolBufferException("a field of an unknown kind");
    }
  }

  private byte[] raw(long size) throws IOException {
    if (size < 0 || size > Integer.MAX_VALUE) {
      throw new InvalidProtocolBufferException("a field of " + size + " bytes");
    }
    byte[] bytes = in.readNBytes((int) size);
    if (bytes.length < size) throw new EOFException("the message ends within a field");
    consumed += size;
    return bytes;
  }

  // 0 at the end of the message.
  private int tag() throws IOException {
    int first = in.read();
    if (first < 0) return 0;
    consumed++;
    long tag = varint(first);
    if (tag <= 0 || tag > 0xffffffffL) throw new InvalidProtocolBufferException("no tag");
    return (int) tag;
  }

  private long varint() throws IOException {
    int first = in.read();
    if (first < 0) throw new EOFException("the message ends within a number");
    consumed++;
    return varint(first);
  }

  private long varint(int first) throws IOException {
    long value = first & 0x7f;
    for (int shift = 7, next = first; (next & 0x80) != 0; shift += 7) {
      next = in.read();
      if (next < 0 || shift > 63) throw new EOFException("the message ends within a number");
      consumed++;
      value |= (long) (next & 0x7f) << shift;
    }
    return value;
  }
}
