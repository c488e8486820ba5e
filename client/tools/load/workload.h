// The requests of the load, of several RPCs, sizes and dtypes. They are made
// and serialized once, before the first step, and sent as generic calls. So
// the client spends almost no time on a call, and the measured time is the
// server's.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "grpcpp/support/byte_buffer.h"
#include "posenc/client.h"

namespace posenc::load {

// The request of a slot, and the bytes of its tensors, if tensors are in shared
// memory (ShareWorkload).
struct SlotRequest {
  grpc::ByteBuffer message;
  absl::Span<char> input, output;
};

// A serialized request. All calls with this request share its bytes; gRPC
// counts the references to the bytes.
struct Request {
  grpc::ByteBuffer message;
  std::int64_t bytes = 0;
  // The serialized answer, which later answers must equal; empty until
  // Engine::Learn() stores it.
  std::string answer;
  // Set if the tensor is in shared memory: a request for each slot, and the
  // bytes of the input.
  std::vector<SlotRequest> slots;
  std::string input;
};

// One RPC with one dtype and size; a row in reports.
struct Case {
  std::string name;  // "ApplyRope bfloat16 64KiB"
  std::string rpc;
  std::string method;  // "/posenc.v1.PositionalEncodingService/ApplyRope"
  double weight = 0;   // relative frequency of its calls
  v1::Dtype dtype;     // of the tensor
  std::vector<std::int64_t> shape;  // [B, S, H, D]; empty for ResolveRope
  std::int64_t tensor_bytes = 0;
  std::vector<Request> requests;  // sent one after another
};

struct WorkloadOptions {
  // RPCs and their weights. A weight is divided evenly among the RPC's cases.
  std::vector<std::pair<std::string, double>> mix = {{"ApplyRope", 1}};
  // Bytes of a call's tensor. Shapes [B, S, H, D] may be given instead.
  std::vector<std::int64_t> sizes = {64 << 10};
  std::vector<std::vector<std::int64_t>> shapes;
  std::vector<v1::Dtype> dtypes = {v1::DTYPE_FLOAT32};
  // A model's encoding; empty: half-split pairs, frequencies 10000^(-2i/d).
  std::string preset;
  // Requests per case, with different data and positions, so that the server's
  // caches do not answer all calls.
  int variants = 1;
  std::uint64_t seed = 1;
};

// Parses RPCs and their weights, for example "ApplyRope:8,BuildTable:1". The
// default weight is 1.
absl::StatusOr<std::vector<std::pair<std::string, double>>> ParseMix(
    const std::string& text);

// Parses a list of shapes [B, S, H, D], for example "1x128x8x128,1x1x8x128".
absl::StatusOr<std::vector<std::vector<std::int64_t>>> ParseShapes(
    const std::string& text);

// Parses a list of dtypes, for example "float32,bfloat16".
absl::StatusOr<std::vector<v1::Dtype>> ParseDtypes(const std::string& text);

// Makes the requests. The error INVALID_ARGUMENT names the wrong flag.
absl::StatusOr<std::vector<Case>> BuildWorkload(const WorkloadOptions& options);

// Puts tensors into shared memory (--shared-memory). Calls then name offsets in
// a region instead of sending tensors. Makes this region in the server's
// directory; it must outlive the calls. Returns FAILED_PRECONDITION if the
// server shares no memory with this client.
//
// Concurrent calls must not work on the same bytes. Each slot of the load
// (worker.h) therefore has its own bytes in the region, and its own requests,
// which name these bytes. If `in_place`, each call rotates the result of the
// slot's previous call; before a call that is verified, its input is written
// again. Answers are verified by the bytes of their tensors, if Engine::Learn()
// has stored an answer. Requests without tensors (ResolveRope, BuildTable) are
// not changed.
absl::StatusOr<std::shared_ptr<SharedRegion>> ShareWorkload(
    const Client& client, const WorkloadOptions& options, bool in_place,
    int slots, std::vector<Case>* workload);

// Returns the bytes of a message, copied into one string.
std::string BytesOf(const grpc::ByteBuffer& message);

// Returns true if a message has these bytes. Compares slice by slice, without a
// copy.
bool Equals(const grpc::ByteBuffer& message, const std::string& bytes);

}  // namespace posenc::load
