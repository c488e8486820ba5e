// The regions of KServe's clients: names for places in shared files
// (SystemSharedMemoryRegister).
//
// A region is no more than an alias: its file is opened, and its range checked,
// when it is registered and again at each use.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "inference/inference.pb.h"
#include "server/shared/shared_files.h"

namespace posenc::server {

// Bytes of a shared file, which stays mapped as long as this exists.
struct SharedPlace {
  std::shared_ptr<SharedFile> file;
  char* data = nullptr;
  std::size_t bytes = 0;
};

// Safe for many threads.
class Regions {
 public:
  explicit Regions(std::unique_ptr<SharedFiles> files)
      : files_(std::move(files)) {}

  SharedFiles* files() const { return files_.get(); }

  // ALREADY_EXISTS for a name that is registered; errors of SharedFiles.
  absl::Status Register(
      const inference::SystemSharedMemoryRegisterRequest& request);
  // All of them if the name is empty. One that is not registered is no error.
  void Unregister(const std::string& name);
  // The region of this name, or all; NOT_FOUND if it is not registered.
  absl::Status Tell(const std::string& name,
                    inference::SystemSharedMemoryStatusResponse* response);

  // The bytes [offset, offset + bytes) of a region.
  absl::StatusOr<SharedPlace> Find(const std::string& name,
                                   std::uint64_t offset, std::uint64_t bytes);

 private:
  struct Region {
    std::string key;   // as it was given
    std::string file;  // its name
    std::uint64_t offset = 0, bytes = 0;
  };

  const std::unique_ptr<SharedFiles> files_;
  std::mutex mutex_;
  std::map<std::string, Region> regions_;
};

}  // namespace posenc::server
