package io.github.posenc;

import io.github.posenc.v1.Dtype;
import io.github.posenc.v1.SharedMemory;
import io.github.posenc.v1.SharedMemoryInfo;
import io.grpc.Status;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.OpenOption;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Arrays;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;
import java.util.regex.Pattern;

/**
 * Memory that a server on this host maps, too: for tensors that lie there, calls carry only their
 * places.
 *
 * <pre>{@code
 * try (var region = posenc.sharedRegion(4L * 4096 * 32 * 128)) {
 *   Tensor q = region.tensor(Dtype.DTYPE_FLOAT32, 0, 1, 4096, 32, 128);
 *   ((FloatBuffer) q.buffer()).put(values);
 *   rope.apply(Layout.BSHD, Positions.startAt(0), q, null);
 * }
 * }</pre>
 *
 * <p>It is a file of this user, mode 0600 (0660 in a directory with the set-group-ID bit); only
 * {@link #close} removes it. If the server shares no memory with the client, there is no file, and
 * calls send the bytes. A call in place is sent only once, without retries: after an error that
 * says so, write the tensor again.
 */
public final class SharedRegion implements AutoCloseable {
  /** The place of a tensor. */
  static final class Place {
    final SharedRegion region;
    final long offset;

    private Place(SharedRegion region, long offset) {
      this.region = region;
      this.offset = offset;
    }

    SharedMemory toMessage() {
      return SharedMemory.newBuilder().setName(region.name).setOffset(offset).build();
    }

    boolean is(Place other) {
      return other != null && region == other.region && offset == other.offset;
    }
  }

  private static final Pattern NAME = Pattern.compile("[A-Za-z0-9._-]{1,255}");

  private final long bytes;
  private final String name;
  private final Path path; // null: no memory is shared
  private final FileChannel file;
  private final ByteBuffer own; // instead of a file
  private volatile boolean closed;

  private SharedRegion(
      long bytes, String name, Path path, FileChannel file, ByteBuffer own) {
    this.bytes = bytes;
    this.name = name;
    this.path = path;
    this.file = file;
    this.own = own;
  }

  /**
   * Makes a region. Name and directory may be null: the server's. Info is null if the server shares
   * no memory.
   */
  static SharedRegion create(long bytes, SharedMemoryInfo info, String name, Path directory) {
    if (bytes <= 0) throw PosencException.invalid("bytes", "is " + bytes + "; must be above 0");
    if (info == null) {
      if (bytes > Integer.MAX_VALUE) {
        throw PosencException.invalid(
            "bytes", "is " + bytes + "; without shared memory a region has less than 2 GiB");
      }
      return new SharedRegion(bytes, "", null, null, ByteBuffer.allocate((int) bytes));
    }
    if (info.getMaxBytes() > 0 && bytes > info.getMaxBytes()) {
      throw PosencException.invalid(
          "bytes", "is " + bytes + "; the server maps at most " + info.getMaxBytes());
    }
    String prefix = info.getPrefix();
    if (name == null) {
      long random = ThreadLocalRandom.current().nextLong();
      name = String.format("%s%d-%016x", prefix, ProcessHandle.current().pid(), random);
    }
    if (!NAME.matcher(name).matches() || name.equals(".") || name.equals("..")) {
      throw PosencException.invalid(
          "name",
          "is \"" + name + "\"; must be 1 to 255 letters, digits, '.', '_' and '-', and not '.' or"
              + " '..'");
    }
    if (!name.startsWith(prefix)) {
      throw PosencException.invalid("name", "is \"" + name + "\"; must begin with " + prefix);
    }
    Path path = (directory == null ? Path.of(info.getDirectory()) : directory).resolve(name);
    return new SharedRegion(bytes, name, path, newFile(path, bytes), null);
  }

  /** Returns the file's name; empty if the server shares no memory with the client. */
  public String name() {
    return name;
  }

  /**
   * Views the bytes from offset on as a tensor, whose {@link Tensor#buffer} is that memory. Calls
   * send the place of an input, and the server writes an output there. At most 2 GiB.
   */
  public Tensor tensor(Dtype dtype, long offset, long... shape) {
    if (closed) throw PosencException.invalid("region", "is closed; make another one");
    int element = Tensor.elementBytes(dtype);
    if (element == 0) throw PosencException.invalid("dtype", "is " + dtype + ", which is none");
    if (offset < 0 || offset % element != 0) {
      throw PosencException.invalid(
          "offset", "is " + offset + "; must be a multiple of " + element + ", 0 or more");
    }
    long size = sizeOf(element, shape);
    if (size > bytes - offset) {
      throw PosencException.invalid(
          "shape",
          Arrays.toString(shape) + " at offset " + offset + " does not fit " + bytes + " bytes");
    }
    if (size > Integer.MAX_VALUE) {
      throw PosencException.invalid("shape", "has " + size + " bytes; a buffer has less than 2 GiB");
    }
    ByteBuffer memory = map(offset, (int) size).order(ByteOrder.LITTLE_ENDIAN);
    Tensor view = Tensor.view(dtype, memory, shape);
    return path == null || size == 0 ? view : view.in(new Place(this, offset));
  }

  // Returns more than any memory if the size does not fit a long.
  private static long sizeOf(int element, long[] shape) {
    long size = element;
    for (long extent : shape) {
      if (extent < 0) {
        throw PosencException.invalid("shape", Arrays.toString(shape) + " must not be negative");
      }
      if (extent == 0) return 0;
    }
    for (long extent : shape) {
      if (size > Long.MAX_VALUE / extent) return Long.MAX_VALUE;
      size *= extent;
    }
    return size;
  }

  private ByteBuffer map(long offset, int size) {
    if (own != null) {
      return own.duplicate().position((int) offset).limit((int) offset + size).slice();
    }
    if (size == 0) return ByteBuffer.allocate(0);
    try {
      return file.map(FileChannel.MapMode.READ_WRITE, offset, size);
    } catch (IOException e) {
      throw PosencException.invalid("region", path + " cannot be mapped: " + e.getMessage());
    }
  }

  /** Removes the file. Its tensors stay readable, but no call accepts them. */
  @Override
  public void close() {
    if (closed) return;
    closed = true;
    if (path == null) return;
    try {
      file.close();
      Files.deleteIfExists(path);
    } catch (IOException e) {
      throw PosencException.invalid("region", path + " cannot be removed: " + e.getMessage());
    }
  }

  /** Throws if the tensor lies in a region that is closed. */
  static void check(String field, Tensor tensor) {
    if (tensor == null || tensor.place() == null || !tensor.place().region.closed) return;
    throw PosencException.invalid(field, "lies in a shared region that is closed");
  }

  private static FileChannel newFile(Path path, long bytes) {
    Set<OpenOption> options = Set.of(
        StandardOpenOption.CREATE_NEW,
        StandardOpenOption.READ,
        StandardOpenOption.WRITE,
        LinkOption.NOFOLLOW_LINKS);
    FileChannel file;
    try {
      file = FileChannel.open(
          path,
          options,
          PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------")));
    } catch (FileAlreadyExistsException e) {
      throw PosencException.invalid("name", path + " is there already; choose another one");
    } catch (IOException e) {
      throw PosencException.invalid(
          "directory", e + "; must be the server's, as this process sees it");
    }
    try {
      // A full file system fails here, and not when the bytes are used.
      ByteBuffer zeros = ByteBuffer.allocateDirect((int) Math.min(bytes, 1 << 20));
      for (long at = 0; at < bytes; ) {
        zeros.position(0).limit((int) Math.min(zeros.capacity(), bytes - at));
        at += file.write(zeros, at);
      }
      // Files in a directory with S_ISGID belong to its group, for example in a volume with an
      // fsGroup.
      if (((int) Files.getAttribute(path.getParent(), "unix:mode") & 02000) != 0) {
        Files.setPosixFilePermissions(path, PosixFilePermissions.fromString("rw-rw----"));
      }
      return file;
    } catch (IOException e) {
      try {
        file.close();
        Files.deleteIfExists(path);
      } catch (IOException also) {
        e.addSuppressed(also);
      }
      throw PosencException.local(
          Status.Code.RESOURCE_EXHAUSTED,
          "bytes: no room for " + bytes + " in " + path.getParent() + ": " + e.getMessage(),
          "");
    }
  }
}
