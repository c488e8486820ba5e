// A folder in shared memory with two files that requests may name, "a" and
// "b". It is removed when the process ends without a finding.

#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "server/shared_memory/shared_files.h"

namespace posenc::server {

class SharedFolder {
 public:
  SharedFolder() {
    if (mkdtemp(path_.data()) == nullptr) std::abort();
    path_ += '/';
    for (const char* const name : kNames) {
      const int file = open((path_ + name).c_str(), O_RDWR | O_CREAT, 0600);
      if (posix_fallocate(file, 0, kFileBytes) != 0) std::abort();
      close(file);
    }
    SharedMemoryOptions options;
    options.prefix = path_;
    auto files = SharedFiles::Open(options);
    if (!files.ok()) std::abort();
    files_ = *std::move(files);
  }
  ~SharedFolder() {
    for (const char* const name : kNames) unlink((path_ + name).c_str());
    rmdir(path_.c_str());
  }
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;

  SharedFiles* files() const { return files_.get(); }

 private:
  static constexpr const char* kNames[] = {"a", "b"};
  static constexpr off_t kFileBytes = 64 << 10;

  std::string path_ = "/dev/shm/posenc-fuzz-XXXXXX";
  std::unique_ptr<SharedFiles> files_;
};

}  // namespace posenc::server
