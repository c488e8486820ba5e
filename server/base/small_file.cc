#include "server/base/small_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/time/time.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "server/base/descriptor.h"

namespace posenc::server {
namespace {

constexpr std::size_t kMostBytes = 1 << 20;

}  // namespace

absl::StatusOr<std::string> ReadSmallFile(const std::string& flag,
                                          const std::string& path,
                                          bool may_be_empty) {
  const auto wrong = [&](absl::string_view fact) {
    return core::FieldInvalid(flag, core::OneLine(path), ": ", fact);
  };
  // Sets O_NONBLOCK, because otherwise open() of a pipe would wait for its
  // writer.
  const Descriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return wrong(std::strerror(errno));
  std::string text(kMostBytes + 1, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = read(fd.get(), &text[size], text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return wrong(std::strerror(errno));
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  struct stat file = {};
  if (size == 0 && (!may_be_empty || fstat(fd.get(), &file) != 0 ||
                    S_ISFIFO(file.st_mode))) {
    return wrong("is empty");
  }
  if (size > kMostBytes) return wrong("is larger than 1 MiB");
  text.resize(size);
  return text;
}

std::vector<FileChanges::Stamp> FileChanges::Stamps() const {
  std::vector<Stamp> stamps;
  for (const std::string& path : paths_) {
    struct stat file = {};
    Stamp stamp;
    if (stat(path.c_str(), &file) == 0) {
      stamp = {file.st_dev, file.st_ino, file.st_size,
               absl::ToUnixNanos(absl::TimeFromTimespec(file.st_mtim))};
    }
    stamps.push_back(stamp);
  }
  return stamps;
}

bool FileChanges::Check() {
  std::vector<Stamp> now = Stamps();
  if (now == seen_) return std::exchange(changed_, false);
  changed_ = true;
  seen_ = std::move(now);
  return false;
}

}  // namespace posenc::server
