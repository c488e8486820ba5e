package io.github.posenc;

import io.github.posenc.v1.*;
import io.grpc.Status;
import java.io.IOException;
import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.*;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Arrays;
import java.util.Set;
import java.util.UUID;

/**
 * Memory that a server on this host also maps. Calls send only the places of tensors in the region.
 *
 * <p>The memory is a file of this user with mode 0600 (0660 in a directory with the set-group-ID
 * bit). Only {@link #close} removes the file. If the server shares no memory with the client, there
 * is no file, and calls send the bytes. A call in place is sent only once, without retries. If the
 * text of an error says that tensors may have been rotated, write these tensors again.
 */
public final class SharedRegion implements AutoCloseable {
  private final long bytes;
  private final Path path; // null: no memory is shared
  private final FileChannel file;
  private final ByteBuffer own; // the memory if there is no file

  /**
   * Makes a region. If the server shares no memory, the region is ordinary memory. If the name or
   * the directory is null, the region uses the server's prefix or directory.
   */
  SharedRegion(long bytes, GetServerInfoResponse server, String name, Path directory) {
    SharedMemoryInfo info = server.getSharedMemory();
    long most = server.hasSharedMemory() ? info.getMaxBytes() : Integer.MAX_VALUE;
    if (bytes <= 0 || bytes > most) {
      throw PosencException.invalid("bytes", "is " + bytes + "; must be 1 to " + most);
    }
    this.bytes = bytes;
    if (!server.hasSharedMemory()) {
      this.path = null;
      this.file = null;
      this.own = ByteBuffer.allocate((int) bytes);
      return;
    }
    Path folder = directory == null ? Path.of(info.getDirectory()) : directory;
    this.path = folder.resolve(name == null ? info.getPrefix() + UUID.randomUUID() : name);
    this.file = newFile(path);
    this.own = null;
    try {
      fill();
    } catch (IOException e) {
      close();
      throw PosencException.local(Status.Code.RESOURCE_EXHAUSTED,
          "bytes: no room for " + bytes + " in " + folder + ": " + e);
    }
  }

  /** Returns the file's name, or "" if the server shares no memory with the client. */
  public String name() {
    return path == null ? "" : path.getFileName().toString();
  }

  /**
   * Views the bytes from offset on as a tensor; {@link TensorView#buffer} is this memory. If the
   * tensor is an input, calls send only its place. If the tensor is an output, the server itself
   * writes it. A tensor has less than 2 GiB.
   */
  public TensorView tensor(Dtype dtype, long offset, long... shape) {
    Elements type = Elements.of(dtype);
    long size = TensorView.bytesOf(dtype, Arguments.given("shape", shape));
    if (size < 0 || size > Integer.MAX_VALUE || offset < 0 || offset > bytes - size
        || offset % type.bytes != 0) {
      throw PosencException.invalid("shape",
          dtype + " " + Arrays.toString(shape) + " at offset " + offset + " does not fit " + bytes
              + " bytes, or a buffer, which has less than 2 GiB; the offset must be a multiple of"
              + " an element");
    }
    SharedMemory place = SharedMemory.newBuilder().setName(name()).setOffset(offset).build();
    Buffer elements = type.view.apply(map(offset, (int) size).order(ByteOrder.LITTLE_ENDIAN));
    return new TensorView(dtype, shape, type, elements, path == null || size == 0 ? null : place);
  }

  private ByteBuffer map(long offset, int size) {
    if (own != null) {
      return own.duplicate().position((int) offset).limit((int) offset + size).slice();
    }
    try {
      return file.map(FileChannel.MapMode.READ_WRITE, offset, size);
    } catch (IOException e) {
      throw PosencException.invalid("region", path + " cannot be mapped: " + e);
    }
  }

  /** Removes the file. Tensors of the region stay readable, but no call accepts them. */
  @Override
  public void close() {
    if (path == null) return;
    try {
      file.close();
      Files.deleteIfExists(path);
    } catch (IOException e) {
      throw PosencException.invalid("region", path + " cannot be removed: " + e);
    }
  }

  private static FileChannel newFile(Path path) {
    Set<OpenOption> options = Set.of(StandardOpenOption.CREATE_NEW, StandardOpenOption.READ,
        StandardOpenOption.WRITE, LinkOption.NOFOLLOW_LINKS);
    try {
      return FileChannel.open(path, options,
          PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------")));
    } catch (FileAlreadyExistsException e) {
      throw PosencException.invalid("name", path + " is there already; choose another one");
    } catch (IOException e) {
      throw PosencException.invalid(
          "directory", e + "; must be the server's, as this process sees it");
    }
  }

  private void fill() throws IOException {
    // On a full file system, these writes fail. Without these writes, the first use of the bytes
    // would fail.
    ByteBuffer zeros = ByteBuffer.allocateDirect((int) Math.min(bytes, 1 << 20));
    for (long at = 0; at < bytes;) {
      zeros.position(0).limit((int) Math.min(zeros.capacity(), bytes - at));
      at += file.write(zeros, at);
    }
    // In a directory with the set-group-ID bit, files belong to the group of the directory. An
    // example is a Kubernetes volume with an fsGroup.
    if (((int) Files.getAttribute(path.getParent(), "unix:mode") & 02000) != 0) {
      Files.setPosixFilePermissions(path, PosixFilePermissions.fromString("rw-rw----"));
    }
  }
}
