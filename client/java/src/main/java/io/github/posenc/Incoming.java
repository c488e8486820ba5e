package io.github.posenc;

import com.google.protobuf.CodedOutputStream;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.Message;
import com.google.protobuf.WireFormat;
import io.github.posenc.v1.Dtype;
import io.grpc.Status;
import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Reads a response: its tensors' elements directly into the caller's memory or into new arrays, and
 * all other fields with the generated code.
 */
final class Incoming {
  /** The memory for a tensor's elements, and the type and shape that they must have. */
  static final class Target {
    final Tensor tensor; // null: new memory
    final long firstByte;
    final long bytes;
    final Dtype dtype; // null: any
    final long[] shape; // null: any

    Target(Tensor tensor, long firstByte, long bytes, Dtype dtype, long[] shape) {
      this.tensor = tensor;
      this.firstByte = firstByte;
      this.bytes = bytes;
      this.dtype = dtype;
      this.shape = shape;
    }

    /** Returns all of a tensor, for a result of any type and shape. */
    static Target whole(Tensor tensor) {
      return whole(tensor, null, null);
    }

    static Target whole(Tensor tensor, Dtype dtype, long[] shape) {
      return new Target(tensor, 0, tensor == null ? 0 : tensor.bytes(), dtype, shape);
    }
  }

  private final InputStream in;
  private final Message prototype;
  private final Map<Integer, Tensor> tensors = new HashMap<>();
  private long consumed;

  private Incoming(InputStream in, Message prototype) {
    this.in = in;
    this.prototype = prototype;
  }

  /** A message, and the tensors of the requested fields. */
  static final class Parsed<M extends Message> {
    final M message;
    private final Map<Integer, Tensor> tensors;

    private Parsed(M message, Map<Integer, Tensor> tensors) {
      this.message = message;
      this.tensors = tensors;
    }

    /** Returns null if the message has no such field. */
    Tensor tensor(int field) {
      return tensors.get(field);
    }

    /** Returns a tensor that the answer must have. */
    Tensor required(int field) {
      Tensor tensor = tensors.get(field);
      if (tensor != null) return tensor;
      String name = message.getDescriptorForType().findFieldByNumber(field).getName();
      throw PosencException.local(Status.Code.INTERNAL, "the answer has no " + name, "");
    }
  }

  /**
   * Parses the whole stream.
   *
   * @param fields numbers of the fields that are tensors
   * @param targets memory for their elements, by number; other tensors get new arrays
   */
  @SuppressWarnings("unchecked")
  static <M extends Message> Parsed<M> parse(
      InputStream in, M prototype, List<Integer> fields, Map<Integer, Target> targets)
      throws IOException {
    Incoming reader = new Incoming(in, prototype);
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

  // Serializers write `data` last, because it has the highest number, so dtype and shape are known.
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
      tensor = elements(number, io.github.posenc.v1.Tensor.parseFrom(rest.toByteArray()), target);
    }
    if (tensor == null) { // no bytes: an empty tensor, or `values`
      header.flush();
      io.github.posenc.v1.Tensor message = io.github.posenc.v1.Tensor.parseFrom(rest.toByteArray());
      check(number, message, (long) message.getValuesCount() * Cut.elementBytes(message.getDtype()), target);
      tensor = Tensor.of(message);
      if (target != null && target.tensor != null) fits(number, tensor.bytes(), target);
    }
    tensors.put(number, tensor);
  }

  private Tensor elements(int number, io.github.posenc.v1.Tensor header, Target target)
      throws IOException {
    long size = varint();
    long[] shape = header.getShapeList().stream().mapToLong(Long::longValue).toArray();
    Tensor tensor;
    long firstByte = 0;
    check(number, header, size, target);
    if (target != null && target.tensor != null) {
      fits(number, size, target);
      tensor = target.tensor;
      firstByte = target.firstByte;
    } else {
      tensor = Tensor.allocate(header.getDtype(), shape);
    }
    tensor.elements().readFrom(in, firstByte, size);
    consumed += size;
    return tensor;
  }

  /** Throws unless a tensor has all of its bytes, and the required type and shape. */
  private void check(int number, io.github.posenc.v1.Tensor header, long size, Target target) {
    Dtype dtype = header.getDtype();
    long[] shape = header.getShapeList().stream().mapToLong(Long::longValue).toArray();
    boolean wanted = target == null
        || ((target.dtype == null || target.dtype == dtype)
            && (target.shape == null || Arrays.equals(target.shape, shape)));
    if (wanted && Cut.hasBytes(dtype, shape, size)) return;
    String name = prototype.getDescriptorForType().findFieldByNumber(number).getName();
    String must = target == null || target.dtype == null || target.shape == null
        ? ""
        : "; must be " + target.dtype + " " + Arrays.toString(target.shape);
    throw PosencException.local(
        Status.Code.INTERNAL,
        "the answer's " + name + " is " + dtype + " " + Arrays.toString(shape) + " with " + size + " bytes" + must,
        "");
  }

  private void fits(int number, long size, Target target) {
    if (size == target.bytes) return;
    throw PosencException.invalid(
        prototype.getDescriptorForType().findFieldByNumber(number).getName() + "_output",
        "has " + target.bytes + " bytes; the result has " + size);
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

  // Returns 0 at the end of the message.
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
