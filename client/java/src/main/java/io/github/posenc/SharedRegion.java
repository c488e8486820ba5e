package io.github.posenc;

import io.github.posenc.v1.Dtype;
import io.github.posenc.v1.SharedMemory;
import io.github.posenc.v1.SharedMemoryInfo;
import io.grpc.Status;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.*;
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
 *   TensorView q = region.tensor(Dtype.DTYPE_FLOAT32, 0, 1, 4096, 32, 128);
 *   ((FloatBuffer) q.buffer()).put(values);
 *   rope.apply(Layout.LAYOUT_BSHD, TokenPositions.startAt(0), q, null);
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

  private static final Pattern NAME = Pattern.compile("(?!\\.\\.?$)[A-Za-z0-9._-]{1,255}");

  private final long bytes;
  private final String name;
  private final Path path; // null: no memory is shared
  private final FileChannel file;
  private final ByteBuffer own; // instead of a file
  private volatile boolean closed;

  private SharedRegion(long bytes, String name, Path path, FileChannel file, ByteBuffer own) {
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
    if (!NAME.matcher(name).matches() || !name.startsWith(prefix)) {
      throw PosencException.invalid("name",
          "is \"" + name + "\"; must be 1 to 255 letters, digits, '.', '_' and '-', not '.' or"
              + " '..', and begin with " + prefix);
    }
    Path path = (directory == null ? Path.of(info.getDirectory()) : directory).resolve(name);
    return new SharedRegion(bytes, name, path, newFile(path, bytes), null);
  }

  /** Returns the file's name; empty if the server shares no memory with the client. */
  public String name() {
    return name;
  }

  /**
   * Views the bytes from offset on as a tensor, whose {@link TensorView#buffer} is that memory.
   * Calls send the place of an input, and the server writes an output there. At most 2 GiB.
   */
  public TensorView tensor(Dtype dtype, long offset, long... shape) {
    if (closed) throw PosencException.invalid("region", "is closed; make another one");
    Elements element = Elements.of(dtype);
    if (element == null) throw PosencException.invalid("dtype", "is " + dtype + ", which is none");
    if (offset < 0 || offset % element.bytes != 0) {
      throw PosencException.invalid(
          "offset", "is " + offset + "; must be a multiple of " + element.bytes + ", 0 or more");
    }
    long size = TensorView.bytesOf(dtype, shape);
    if (size < 0 || size > bytes - offset || size > Integer.MAX_VALUE) {
      throw PosencException.invalid("shape",
          Arrays.toString(shape) + " at offset " + offset + " does not fit " + bytes
              + " bytes, or a buffer, which has less than 2 GiB");
    }
    Place place = path == null || size == 0 ? null : new Place(this, offset);
    return new TensorView(dtype, shape, map(offset, (int) size), place);
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

  boolean isClosed() {
    return closed;
  }

  private static FileChannel newFile(Path path, long bytes) {
    Set<OpenOption> options = Set.of(StandardOpenOption.CREATE_NEW, StandardOpenOption.READ,
        StandardOpenOption.WRITE, LinkOption.NOFOLLOW_LINKS);
    FileChannel file;
    try {
      file = FileChannel.open(path, options,
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
      for (long at = 0; at < bytes;) {
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
      throw PosencException.local(Status.Code.RESOURCE_EXHAUSTED,
          "bytes: no room for " + bytes + " in " + path.getParent() + ": " + e.getMessage());
    }
  }
}
