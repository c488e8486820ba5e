// The regions of KServe's clients. A region is a name for a range of a shared
// file (SystemSharedMemoryRegister).
//
// A region keeps no file open. When a region is registered, and again at each
// use, its file is opened and its range is checked.

#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "inference/inference.pb.h"
#include "posenc/v1/tensor.pb.h"
#include "server/shared_memory/shared_files.h"

namespace posenc::server {

// Thread-safe.
class Regions {
 public:
  // `files` must outlive this object.
  explicit Regions(SharedFiles* files) : files_(files) {}

  // Registers a region. Returns ALREADY_EXISTS for a registered name,
  // RESOURCE_EXHAUSTED if there are too many regions, and errors of
  // SharedFiles.
  absl::Status Register(
      const inference::SystemSharedMemoryRegisterRequest& request);
  // Removes the region, or all regions if the name is empty. An unknown name is
  // not an error.
  void Unregister(const std::string& name);
  // Lists the region of this name, or all regions if the name is empty. Returns
  // NOT_FOUND for an unknown name.
  absl::Status Tell(const std::string& name,
                    inference::SystemSharedMemoryStatusResponse* response);

  // Returns the file of a region, and where the region's range [offset, offset
  // + bytes) begins in the file. Returns NOT_FOUND for an unknown region, and
  // INVALID_ARGUMENT for bytes outside it.
  absl::StatusOr<v1::SharedMemory> Find(const std::string& name,
                                        std::uint64_t offset,
                                        std::uint64_t bytes);

 private:
  SharedFiles* const files_;
  std::mutex mutex_;
  inference::SystemSharedMemoryStatusResponse registered_;
};

}  // namespace posenc::server
