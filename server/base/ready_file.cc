#include "server/base/ready_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"

namespace posenc::server {
// Tries to create a file, because permissions alone are not enough. For
// example, even root cannot write in /proc or on a read-only medium.
absl::Status ReadyFile::Check(const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  struct stat about = {};
  std::string why;
  if (stat(path.c_str(), &about) == 0 && !S_ISREG(about.st_mode)) {
    // A device is rejected, because Write() would replace it with a file.
    why = S_ISDIR(about.st_mode) ? "is a folder" : "is no file";
  } else {
    // This name differs from the name in Write(), because a server that runs in
    // another container may use the same process ID.
    const std::string temporary = absl::StrCat(path, ".check.", getpid());
    const int fd =
        open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
      why = std::strerror(errno);
    } else {
      close(fd);
      unlink(temporary.c_str());
    }
  }
  if (why.empty()) return absl::OkStatus();
  return core::FieldInvalid("--ready-file", "cannot write ", path, ": ", why);
}

absl::Status ReadyFile::Write(const std::vector<std::string>& addresses) const {
  if (path_.empty()) return absl::OkStatus();
  const std::string temporary = absl::StrCat(path_, ".", getpid());
  bool written = false;
  if (std::FILE* const file = std::fopen(temporary.c_str(), "we")) {
    written = true;
    for (const std::string& address : addresses) {
      written = std::fprintf(file, "%s\n", address.c_str()) > 0 && written;
    }
    written = std::fclose(file) == 0 && written;
  }
  if (written && std::rename(temporary.c_str(), path_.c_str()) == 0) {
    return absl::OkStatus();
  }
  const int why = errno;
  std::remove(temporary.c_str());
  return absl::InternalError(absl::StrCat("--ready-file: cannot write ", path_,
                                          ": ", std::strerror(why)));
}

ReadyFile::~ReadyFile() {
  if (!path_.empty()) unlink(path_.c_str());
}

}  // namespace posenc::server
