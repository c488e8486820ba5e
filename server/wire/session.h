// What a call makes of its messages. The reactor (call_reactor.h) moves them,
// and decides where and when computations run.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "server/calls/call.h"
#include "server/wire/response_memory.h"

namespace posenc::server {

// A message as gRPC received it.
struct RequestMessage {
  std::vector<grpc::Slice> slices;
  std::size_t bytes = 0;
  // Nobody else reads the slices: results may be written over them.
  bool exclusive = false;
};

// A response whose bytes are still to be computed: Place(), where it needs
// room; Run(tile) once for each tile of [0, tiles()), in any order, on any
// threads; then Finish().
class PlannedResponse {
 public:
  virtual ~PlannedResponse() = default;

  std::int64_t tiles() const { return tiles_; }
  // Bytes that are read and written, to judge where to run.
  std::size_t work_bytes() const { return work_bytes_; }

  // Memory of its own that it needs, to be claimed before Place(): what is left
  // of that where Place() fails.
  std::int64_t room() const { return room_; }

  virtual absl::Status Place(ResponseMemory* /*memory*/) {
    return absl::OkStatus();
  }
  virtual absl::Status Run(std::int64_t tile, StopCheck stop) = 0;
  virtual void Finish(grpc::ByteBuffer* response) = 0;

 protected:
  std::int64_t tiles_ = 0;
  std::size_t work_bytes_ = 0;
  std::int64_t room_ = 0;
};

// One call's. Used by one thread at a time.
class Session {
 public:
  virtual ~Session() = default;

  // Takes the next message in. Everything about it is validated here.
  virtual absl::Status Receive(RequestMessage message) = 0;

  // The next response; null where another message has to come first, or there
  // is none left.
  virtual absl::StatusOr<std::unique_ptr<PlannedResponse>> Next() = 0;
};

}  // namespace posenc::server
