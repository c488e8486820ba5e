package io.github.posenc;

import io.grpc.HasByteBuffer;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.DoubleBuffer;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.LongBuffer;
import java.nio.ShortBuffer;

/**
 * A tensor's elements in memory, which are sent and received as little-endian bytes.
 *
 * <p>Elements have the type of their buffer, so Java itself orders their bytes: a big-endian
 * machine, or a view of a big-endian ByteBuffer, sends the same numbers. A ByteBuffer's elements
 * are bytes, and are sent unchanged.
 */
abstract class Elements {
  // Elements pass through a block of this size, which fits a core's own cache.
  private static final int BLOCK_BYTES = 64 << 10;

  private final Buffer buffer;
  private final int elementBytes;

  private Elements(Buffer buffer, int elementBytes) {
    this.buffer = buffer;
    this.elementBytes = elementBytes;
  }

  final long bytes() {
    return (long) buffer.remaining() * elementBytes;
  }

  final boolean isReadOnly() {
    return buffer.isReadOnly();
  }

  /** Returns the given buffer, or an equal view of it. */
  final Buffer buffer() {
    return buffer.duplicate();
  }

  /** Copies {@code count} elements from index {@code first} on to {@code block}. */
  abstract void get(int first, int count, ByteBuffer block);

  /** Copies {@code count} elements from {@code block} to index {@code first} on. */
  abstract void put(int first, int count, ByteBuffer block);

  /** Writes a range of whole elements. */
  final void writeTo(OutputStream out, long firstByte, long bytes) throws IOException {
    if (buffer instanceof ByteBuffer && buffer.hasArray()) {
      ByteBuffer heap = (ByteBuffer) buffer;
      out.write(heap.array(), heap.arrayOffset() + heap.position() + (int) firstByte, (int) bytes);
      return;
    }
    byte[] array = new byte[(int) Math.min(BLOCK_BYTES, bytes)];
    ByteBuffer block = littleEndian(ByteBuffer.wrap(array));
    int first = (int) (firstByte / elementBytes);
    int end = (int) ((firstByte + bytes) / elementBytes);
    while (first < end) {
      int count = Math.min(end - first, array.length / elementBytes);
      block.clear();
      get(first, count, block);
      out.write(array, 0, count * elementBytes);
      first += count;
    }
  }

  /** Reads a range of whole elements. The stream may be a view of gRPC's own memory. */
  final void readFrom(InputStream in, long firstByte, long bytes) throws IOException {
    boolean viewed = in instanceof HasByteBuffer && ((HasByteBuffer) in).byteBufferSupported();
    byte[] array = new byte[(int) Math.min(viewed ? elementBytes : BLOCK_BYTES, bytes)];
    int first = (int) (firstByte / elementBytes);
    int end = (int) ((firstByte + bytes) / elementBytes);
    while (first < end) {
      int count = 0;
      if (viewed) {
        ByteBuffer piece = ((HasByteBuffer) in).getByteBuffer();
        if (piece == null) throw new EOFException("the message ends within a tensor");
        count = Math.min(end - first, piece.remaining() / elementBytes);
        if (count > 0) {
          put(first, count, littleEndian(piece));
          in.skip((long) count * elementBytes);
        }
      }
      if (count == 0) { // no views, or an element on the border of two pieces
        count = Math.min(end - first, array.length / elementBytes);
        if (in.readNBytes(array, 0, count * elementBytes) < count * elementBytes) {
          throw new EOFException("the message ends within a tensor");
        }
        put(first, count, littleEndian(ByteBuffer.wrap(array)));
      }
      first += count;
    }
  }

  /** Copies a range of whole elements of the same type. */
  final void copyFrom(Elements from, long fromByte, long firstByte, long bytes) {
    byte[] array = new byte[(int) Math.min(BLOCK_BYTES, bytes)];
    for (long done = 0; done < bytes; ) {
      int count = (int) (Math.min(array.length, bytes - done) / elementBytes);
      ByteBuffer block = littleEndian(ByteBuffer.wrap(array));
      from.get((int) ((fromByte + done) / elementBytes), count, block);
      block.clear();
      put((int) ((firstByte + done) / elementBytes), count, block);
      done += (long) count * elementBytes;
    }
  }

  private static ByteBuffer littleEndian(ByteBuffer block) {
    return block.order(ByteOrder.LITTLE_ENDIAN);
  }

  static Elements of(ByteBuffer buffer) {
    ByteBuffer all = PosencException.given("elements", buffer).slice();
    return new Elements(all, 1) {
      @Override
      void get(int first, int count, ByteBuffer block) {
        block.put(range(all.duplicate(), first, count));
      }

      @Override
      void put(int first, int count, ByteBuffer block) {
        range(all.duplicate(), first, count).put(range(block, block.position(), count));
      }
    };
  }

  static Elements of(ShortBuffer buffer) {
    ShortBuffer all = PosencException.given("elements", buffer).slice();
    return new Elements(all, Short.BYTES) {
      @Override
      void get(int first, int count, ByteBuffer block) {
        block.asShortBuffer().put(range(all.duplicate(), first, count));
      }

      @Override
      void put(int first, int count, ByteBuffer block) {
        range(all.duplicate(), first, count).put(range(block.asShortBuffer(), 0, count));
      }
    };
  }

  static Elements of(IntBuffer buffer) {
    IntBuffer all = PosencException.given("elements", buffer).slice();
    return new Elements(all, Integer.BYTES) {
      @Override
      void get(int first, int count, ByteBuffer block) {
        block.asIntBuffer().put(range(all.duplicate(), first, count));
      }

      @Override
      void put(int first, int count, ByteBuffer block) {
        range(all.duplicate(), first, count).put(range(block.asIntBuffer(), 0, count));
      }
    };
  }

  static Elements of(LongBuffer buffer) {
    LongBuffer all = PosencException.given("elements", buffer).slice();
    return new Elements(all, Long.BYTES) {
      @Override
      void get(int first, int count, ByteBuffer block) {
        block.asLongBuffer().put(range(all.duplicate(), first, count));
      }

      @Override
      void put(int first, int count, ByteBuffer block) {
        range(all.duplicate(), first, count).put(range(block.asLongBuffer(), 0, count));
      }
    };
  }

  static Elements of(FloatBuffer buffer) {
    FloatBuffer all = PosencException.given("elements", buffer).slice();
    return new Elements(all, Float.BYTES) {
      @Override
      void get(int first, int count, ByteBuffer block) {
        block.asFloatBuffer().put(range(all.duplicate(), first, count));
      }

      @Override
      void put(int first, int count, ByteBuffer block) {
        range(all.duplicate(), first, count).put(range(block.asFloatBuffer(), 0, count));
      }
    };
  }

  static Elements of(DoubleBuffer buffer) {
    DoubleBuffer all = PosencException.given("elements", buffer).slice();
    return new Elements(all, Double.BYTES) {
      @Override
      void get(int first, int count, ByteBuffer block) {
        block.asDoubleBuffer().put(range(all.duplicate(), first, count));
      }

      @Override
      void put(int first, int count, ByteBuffer block) {
        range(all.duplicate(), first, count).put(range(block.asDoubleBuffer(), 0, count));
      }
    };
  }

  @SuppressWarnings("unchecked")
  private static <B extends Buffer> B range(B buffer, int first, int count) {
    return (B) buffer.limit(first + count).position(first);
  }
}
