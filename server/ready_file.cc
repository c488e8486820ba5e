#include "server/ready_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace posenc::server {

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

void ReadyFile::Remove() const {
  if (!path_.empty()) unlink(path_.c_str());
}

}  // namespace posenc::server
