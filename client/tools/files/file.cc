#include "client/tools/files/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <new>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/tools/files/status.h"

namespace posenc::cli {
namespace {

// Larger transfers are split, because Linux transfers at most 0x7ffff000 bytes
// (2 GiB less a page) in one read or write.
constexpr std::size_t kMaxTransfer = std::size_t{1} << 30;

// Closes a file descriptor, unless it is standard input or output.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ > STDOUT_FILENO) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// Makes an error about `path` from errno.
absl::Status SystemError(const std::string& path, absl::string_view action) {
  return FileError(path, absl::ErrnoToStatus(errno, action));
}

absl::Status WriteAll(const std::string& path, int fd,
                      absl::Span<const char> part) {
  while (!part.empty()) {
    const ssize_t written =
        write(fd, part.data(), std::min(part.size(), kMaxTransfer));
    if (written < 0) {
      if (errno == EINTR) continue;
      return SystemError(path, "cannot write");
    }
    part.remove_prefix(static_cast<std::size_t>(written));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<FileBytes> FileBytes::Read(const std::string& path) {
  return ReadAtMost(std::numeric_limits<std::size_t>::max(), path);
}

absl::StatusOr<FileBytes> FileBytes::ReadAtMost(std::size_t most,
                                                const std::string& path) {
  const Descriptor file(IsStandardStream(path)
                            ? STDIN_FILENO
                            : open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return SystemError(path, "cannot open");
  struct stat info;
  if (fstat(file.get(), &info) != 0) return SystemError(path, "cannot stat");
  if (S_ISDIR(info.st_mode)) return FileError(path, "is a directory");
  const auto size = static_cast<std::size_t>(info.st_size);
  const auto too_large = [&](std::size_t bytes) {
    return FileError(
        path, absl::StrCat(bytes, " bytes; at most ", most, " are read"));
  };
  if (S_ISREG(info.st_mode) && size > most) return too_large(size);

  // A pipe has no size, so its buffer doubles while it is read. The buffer of a
  // regular file has one byte more than the file, so that read() finds the end
  // before the buffer must grow.
  FileBytes result;
  std::size_t capacity =
      S_ISREG(info.st_mode) ? size + 1 : std::size_t{1} << 16;
  const auto no_memory = [&](std::size_t bytes) {
    return FileError(path, absl::StrCat("no memory for ", bytes, " bytes"));
  };
  result.data_.reset(new (std::nothrow) char[capacity]);
  if (result.data_ == nullptr) return no_memory(capacity);
  while (true) {
    if (result.size_ == capacity) {
      std::unique_ptr<char[]> larger(new (std::nothrow) char[2 * capacity]);
      if (larger == nullptr) return no_memory(2 * capacity);
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
    if (result.size_ > most) return too_large(result.size_);
  }
}

absl::Status WriteFile(const std::string& path,
                       const std::vector<absl::Span<const char>>& parts) {
  // Devices and pipes (/dev/null, /dev/stdout) cannot be replaced.
  struct stat info;
  const bool standard = IsStandardStream(path);
  const bool exists = !standard && stat(path.c_str(), &info) == 0;
  if (standard || (exists && !S_ISREG(info.st_mode))) {
    const Descriptor file(standard ? STDOUT_FILENO
                                   : open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (file.get() < 0) return SystemError(path, "cannot open");
    for (const absl::Span<const char> part : parts) {
      RETURN_IF_ERROR(WriteAll(path, file.get(), part));
    }
    return absl::OkStatus();
  }

  std::string target = path;
  std::error_code error;
  if (std::filesystem::is_symlink(path, error)) {
    const auto file = std::filesystem::canonical(path, error);
    if (!error) target = file.string();
  }
  const std::string temporary = absl::StrCat(target, ".", getpid(), ".tmp");
  // The mode is 0666 without the bits of the umask, as for any new file of a
  // user.
  const int fd =
      open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return SystemError(target, "cannot create");
  absl::Status status;
  if (exists && fchmod(fd, info.st_mode & 0777) != 0) {
    status = SystemError(target, "cannot set the mode of its replacement");
  }
  for (const absl::Span<const char> part : parts) {
    if (status.ok()) status = WriteAll(target, fd, part);
  }
  if (close(fd) != 0 && status.ok()) {
    status = SystemError(target, "cannot write");
  }
  if (status.ok() && std::rename(temporary.c_str(), target.c_str()) != 0) {
    status = SystemError(target, "cannot replace");
  }
  if (!status.ok()) unlink(temporary.c_str());
  return status;
}

}  // namespace posenc::cli
