#include "client/cli/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cli/status.h"

namespace posenc::cli {
namespace {

// One read or write of Linux moves at most 0x7ffff000 bytes.
constexpr std::size_t kMaxTransfer = std::size_t{1} << 30;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ > STDIN_FILENO) close(fd_);
  }
  int get() const { return fd_; }
  int Release() {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }

 private:
  int fd_;
};

absl::Status SystemError(const std::string& path, absl::string_view action) {
  return FileError(path, absl::ErrnoToStatus(errno, action));
}

absl::Status WriteAll(int fd, absl::Span<const char> part) {
  while (!part.empty()) {
    const ssize_t written =
        write(fd, part.data(), std::min(part.size(), kMaxTransfer));
    if (written < 0) {
      if (errno == EINTR) continue;
      return absl::ErrnoToStatus(errno, "cannot write");
    }
    part.remove_prefix(static_cast<std::size_t>(written));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<FileBytes> FileBytes::Read(const std::string& path) {
  const Descriptor file(path == "-" ? STDIN_FILENO
                                    : open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return SystemError(path, "cannot open");
  struct stat info;
  if (fstat(file.get(), &info) != 0) return SystemError(path, "cannot stat");
  if (S_ISDIR(info.st_mode)) return FileError(path, "is a directory");

  // Pipes have no size: they grow as they are read.
  FileBytes result;
  std::size_t capacity = S_ISREG(info.st_mode)
                             ? static_cast<std::size_t>(info.st_size) + 1
                             : std::size_t{1} << 16;
  result.data_ = std::make_unique_for_overwrite<char[]>(capacity);
  while (true) {
    if (result.size_ == capacity) {
      auto larger = std::make_unique_for_overwrite<char[]>(2 * capacity);
      std::copy_n(result.data_.get(), capacity, larger.get());
      result.data_ = std::move(larger);
      capacity *= 2;
    }
    const ssize_t got = read(file.get(), result.data_.get() + result.size_,
                             std::min(capacity - result.size_, kMaxTransfer));
    if (got == 0) return result;
    if (got < 0) {
      if (errno == EINTR) continue;
      return SystemError(path, "cannot read");
    }
    result.size_ += static_cast<std::size_t>(got);
  }
}

absl::Status WriteFile(const std::string& path,
                       const std::vector<absl::Span<const char>>& parts) {
  // Devices and pipes (/dev/null, /dev/stdout) cannot be replaced.
  struct stat info;
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    const Descriptor file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (file.get() < 0) return SystemError(path, "cannot open");
    for (const absl::Span<const char> part : parts) {
      const absl::Status status = WriteAll(file.get(), part);
      if (!status.ok()) return FileError(path, status);
    }
    return absl::OkStatus();
  }

  const std::string temporary = absl::StrCat(path, ".", getpid(), ".tmp");
  // 0666: the umask decides, as for any file of the user's.
  Descriptor file(
      open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (file.get() < 0) return SystemError(path, "cannot create");
  absl::Status status;
  for (const absl::Span<const char> part : parts) {
    if (status.ok()) status = WriteAll(file.get(), part);
  }
  if (close(file.Release()) != 0 && status.ok()) {
    status = absl::ErrnoToStatus(errno, "cannot write");
  }
  if (status.ok() && std::rename(temporary.c_str(), path.c_str()) != 0) {
    status = absl::ErrnoToStatus(errno, "cannot replace");
  }
  if (status.ok()) return status;
  unlink(temporary.c_str());
  return FileError(path, status);
}

bool HasExtension(const std::string& path, const std::string& extension) {
  return absl::EndsWithIgnoreCase(path, extension);
}

}  // namespace posenc::cli
