// Files in shared memory that client and server both map: tensors that never
// cross the wire.
//
// Names come from strangers. They are opened in one directory, which is held
// since the start, and nowhere else; a file must be regular, without further
// links, and of an owner that is trusted. All other files are alike to a
// caller: there is no such file. Each use opens the name anew, which takes
// microseconds, and finds the mapping in a cache if it still is the same file
// of the same size. See docs/shared-memory.md.

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
#include "server/shared/cut_guard.h"

namespace posenc::server {

struct SharedMemoryOptions {
  // A directory, and what the names of files in it must begin with:
  // "/dev/shm/posenc_". Empty: no memory is shared.
  std::string prefix;
  // Whose calls may name files: "unix", those over unix sockets; "loopback",
  // also those from 127.0.0.0/8 and ::1.
  std::string from = "unix";
  // Owners of files that are trusted beside the server's own user, as numbers.
  std::vector<std::string> uids;
  // Bytes of all files that are mapped at a time. 0: a quarter of the memory.
  std::int64_t bytes = 0;
};

// A file that is mapped whole, as long as this exists.
class SharedFile {
 public:
  ~SharedFile();

  // Null if the file is empty.
  char* data() const { return static_cast<char*>(data_); }
  std::size_t bytes() const { return bytes_; }

  // Whether it is the same file as another, though perhaps mapped again.
  bool IsSameFile(const SharedFile& other) const {
    return stat_.st_dev == other.stat_.st_dev &&
           stat_.st_ino == other.stat_.st_ino;
  }

 private:
  friend class SharedFiles;
  SharedFile() = default;

  std::string name_;
  struct stat stat_ = {};  // when it was mapped
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::unique_ptr<CutGuard> guard_;  // null if the file is empty
  // Bytes of all files that are mapped, this one's among them.
  std::shared_ptr<std::atomic<std::int64_t>> mapped_;
  absl::Time used_;  // guarded by the cache's lock
};

// Bytes of a shared file.
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

// Safe for many threads.
class SharedFiles {
 public:
  // Null if options.prefix is empty. INVALID_ARGUMENT, of the flag, for a
  // prefix that is not absolute or has "..", a directory that is not there or
  // not of tmpfs or hugetlbfs, what is no user's number, and for flags that are
  // of no use without a prefix.
  static absl::StatusOr<std::unique_ptr<SharedFiles>> Open(
      const SharedMemoryOptions& options);

  // Whether calls of this peer ("unix:...", "ipv4:127.0.0.1:4711") may name
  // files. PERMISSION_DENIED, kSharedMemoryUnavailable, if not.
  absl::Status Allows(absl::string_view peer) const;

  // The bytes [offset, offset + bytes) of the file. Errors are of fields of
  // SharedMemory. INVALID_ARGUMENT for what is no name, or is not within the
  // file; NOT_FOUND, kSharedMemoryUnavailable, for what is no file that may be
  // used; RESOURCE_EXHAUSTED if too much would be mapped.
  absl::StatusOr<SharedPlace> Map(absl::string_view name, absl::int128 offset,
                                  absl::uint128 bytes);

  // Whether the file has been cut short since it was mapped, or its file
  // system was full.
  bool WasCut(const SharedFile& file) const;

  // Unmaps files that are gone or changed, or have not been used for a minute.
  // To be called every second or so.
  void Sweep(absl::Time now);

  const std::string& directory() const { return directory_name_; }
  const std::string& prefix() const { return prefix_; }
  std::int64_t max_bytes() const { return limit_; }
  // Bytes of all files that are mapped now.
  std::int64_t mapped_bytes() const { return mapped_->load(); }

 private:
  using Files = std::vector<std::shared_ptr<SharedFile>>;

  SharedFiles() = default;

  absl::StatusOr<std::shared_ptr<SharedFile>> Find(absl::string_view name);
  absl::StatusOr<std::shared_ptr<SharedFile>> MapFile(absl::string_view name,
                                                      const Descriptor& file,
                                                      const struct stat& stat);
  // Moves files that nobody uses to `out`, the least recently used first, until
  // so many bytes more may be mapped without them. Expects the lock.
  bool MakeRoom(std::int64_t bytes, Files* out);

  std::string directory_name_;
  Descriptor directory_;
  std::size_t page_bytes_ = 0;
  std::string prefix_;  // of names
  bool loopback_ = false;
  std::vector<uid_t> uids_;
  std::int64_t limit_ = 0;
  const std::shared_ptr<std::atomic<std::int64_t>> mapped_ =
      std::make_shared<std::atomic<std::int64_t>>(0);

  mutable std::mutex mutex_;
  Files files_;
};

}  // namespace posenc::server
