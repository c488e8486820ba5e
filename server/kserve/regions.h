// The regions of KServe's clients: names for places in shared files
// (SystemSharedMemoryRegister).
//
// A region is no more than an alias, and holds nothing: its file is opened and
// its range checked when it is registered, and again at each use.

#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "inference/inference.pb.h"
#include "posenc/v1/tensor.pb.h"
#include "server/shared/shared_files.h"

namespace posenc::server {

// Safe for many threads.
class Regions {
 public:
  // files: outlives this.
  explicit Regions(SharedFiles* files) : files_(files) {}

  // ALREADY_EXISTS for a name that is registered, RESOURCE_EXHAUSTED if there
  // are too many; errors of SharedFiles.
  absl::Status Register(
      const inference::SystemSharedMemoryRegisterRequest& request);
  // All of them if the name is empty. One that is not registered is no error.
  void Unregister(const std::string& name);
  // The region of this name, or all if it is empty; NOT_FOUND if it is not
  // registered.
  absl::Status Tell(const std::string& name,
                    inference::SystemSharedMemoryStatusResponse* response);

  // The file and offset of `bytes` bytes from `offset` on in a region.
  // NOT_FOUND if it is not registered, INVALID_ARGUMENT if they are not within
  // it.
  absl::StatusOr<v1::SharedMemory> Find(const std::string& name,
                                        std::uint64_t offset,
                                        std::uint64_t bytes);

 private:
  SharedFiles* const files_;
  std::mutex mutex_;
  inference::SystemSharedMemoryStatusResponse registered_;
};

}  // namespace posenc::server
