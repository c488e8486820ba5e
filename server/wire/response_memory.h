// Memory of responses: 64-byte aligned, part of the budget of bytes in flight
// from its allocation until gRPC has sent it.

#pragma once

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "grpcpp/support/slice.h"
#include "server/wire/admission.h"

namespace posenc::server {

class ResponseMemory {
 public:
  explicit ResponseMemory(std::shared_ptr<Admission> admission)
      : admission_(std::move(admission)) {}

  // Not initialised; at least one byte. RESOURCE_EXHAUSTED, kOverloaded, where
  // the budget or the machine has no room.
  absl::StatusOr<grpc::Slice> Allocate(std::size_t bytes);

 private:
  struct Block;

  const std::shared_ptr<Admission> admission_;
};

}  // namespace posenc::server
