// Files in shared memory that client and server both map, for tensors that are
// not sent over the network.
//
// Names come from untrusted clients. The server opens names only in one
// directory, which stays open from the start. A file must be regular, with one
// link and a trusted owner. For all other files, the caller gets the same
// error. Each use opens the name again (this takes microseconds). A cached
// mapping is reused if the name still belongs to the same file with the same
// size. See docs/shared-memory.md.

#pragma once

#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/numeric/int128.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/base/descriptor.h"
#include "server/base/peer_kind.h"
#include "server/shared_memory/cut_guard.h"

namespace posenc::server {

struct SharedMemoryOptions {
  // A directory, and the required prefix of file names in it, for example
  // "/dev/shm/posenc_". If empty, no memory is shared.
  std::string prefix;
  // The calls that may name files. "unix" means calls over unix sockets.
  // "loopback" means also calls from 127.0.0.0/8 and ::1.
  std::string from = "unix";
  // User IDs whose files are trusted, in addition to the server's own user.
  std::vector<std::string> uids;
  // Limit for the size of all mapped files together. 0 means a quarter of the
  // memory that the process may use.
  std::int64_t bytes = 0;
};

// A file that is mapped completely while this object exists.
class SharedFile {
 public:
  ~SharedFile();

  // Returns null if the file is empty.
  char* data() const { return static_cast<char*>(data_); }
  std::size_t bytes() const { return bytes_; }

  // Returns whether `other` is the same file, perhaps in another mapping.
  bool IsSameFile(const SharedFile& other) const {
    return stat_.st_dev == other.stat_.st_dev &&
           stat_.st_ino == other.stat_.st_ino;
  }

 private:
  friend class SharedFiles;
  SharedFile() = default;

  bool cut() const { return guard_ != nullptr && guard_->cut(); }

  std::string name_;
  struct stat stat_ = {};  // state when it was mapped
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::unique_ptr<CutGuard> guard_;  // null if the file is empty
  // Size of all mapped files together, including this file.
  std::shared_ptr<std::atomic<std::int64_t>> mapped_;
  absl::Time used_;  // guarded by the cache's lock
};

// A range of bytes in a shared file.
struct SharedPlace {
  std::shared_ptr<SharedFile> file;
  std::size_t offset = 0;
  std::size_t bytes = 0;

  char* data() const { return file->data() + offset; }
  bool Overlaps(const SharedPlace& other) const {
    return file->IsSameFile(*other.file) &&
           offset < other.offset + other.bytes && other.offset < offset + bytes;
  }
};

// Thread-safe.
class SharedFiles {
 public:
  // Returns null if options.prefix is empty. Returns INVALID_ARGUMENT, with the
  // flag as field, for an invalid prefix, an invalid user ID, and other flags
  // without a prefix. The directory must be absolute, without "." and "..", and
  // on tmpfs or hugetlbfs.
  static absl::StatusOr<std::unique_ptr<SharedFiles>> Open(
      const SharedMemoryOptions& options);

  // Returns whether calls of this peer may name files.
  bool Allows(PeerKind peer) const {
    return peer == PeerKind::kUnix ||
           (loopback_ && peer == PeerKind::kLoopback);
  }
  // Returns PERMISSION_DENIED, kSharedMemoryUnavailable, for a peer that
  // Allows() refuses.
  absl::Status NotAllowed() const;

  // Maps the bytes [offset, offset + bytes) of the file. Errors have fields of
  // SharedMemory. Returns INVALID_ARGUMENT for an invalid name, or a range
  // outside the file. Returns NOT_FOUND, kSharedMemoryUnavailable, for a file
  // that is missing or must not be used. Returns RESOURCE_EXHAUSTED if the
  // mapped files would exceed the limit.
  absl::StatusOr<SharedPlace> Map(absl::string_view name, absl::int128 offset,
                                  absl::uint128 bytes);

  // Returns whether the file was truncated after it was mapped, or its file
  // system was full.
  bool WasCut(const SharedFile& file) const;

  // Unmaps files that are gone or changed, or have not been used for a minute.
  // Must be called about once a second.
  void Sweep(absl::Time now);

  const std::string& directory() const { return directory_name_; }
  const std::string& prefix() const { return prefix_; }
  std::int64_t max_bytes() const { return limit_; }
  // Returns the size of all mapped files together.
  std::int64_t mapped_bytes() const { return mapped_->load(); }

 private:
  using Files = std::vector<std::shared_ptr<SharedFile>>;

  SharedFiles() = default;

  absl::StatusOr<std::shared_ptr<SharedFile>> Find(absl::string_view name);
  absl::StatusOr<std::shared_ptr<SharedFile>> MapFile(absl::string_view name,
                                                      const Descriptor& file,
                                                      const struct stat& stat);
  // Moves files that no call uses to `out`, the least recently used first,
  // until `bytes` more may be mapped. Otherwise returns false. The caller must
  // hold the lock.
  bool MakeRoom(std::int64_t bytes, Files* out);

  std::string directory_name_;
  Descriptor directory_;
  std::size_t page_bytes_ = 0;
  std::string prefix_;  // prefix of file names
  bool loopback_ = false;
  std::vector<uid_t> uids_;
  std::int64_t limit_ = 0;
  const std::shared_ptr<std::atomic<std::int64_t>> mapped_ =
      std::make_shared<std::atomic<std::int64_t>>(0);

  mutable std::mutex mutex_;
  Files files_;
};

}  // namespace posenc::server
