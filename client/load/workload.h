// What is called: requests of several RPCs, sizes and dtypes, made once and
// serialized once, so that a call costs the client next to nothing.

#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "grpcpp/support/byte_buffer.h"
#include "posenc/client.h"

namespace posenc::load {

// Message `bytes` of a request, shared by all calls that send it.
struct Request {
  grpc::ByteBuffer message;
  std::int64_t bytes = 0;
  std::string bytes_text;  // for the metadata `posenc-message-bytes`
  // The serialized answer, where it is known: other answers must equal it.
  std::string answer;
};

// One RPC with one dtype and size.
struct Case {
  std::string name;  // "ApplyRope bfloat16 64KiB"
  std::string rpc;
  std::string method;  // "/posenc.v1.PositionalEncodingService/ApplyRope"
  double weight = 0;   // share of the calls
  std::int64_t tensor_bytes = 0;
  std::vector<Request> requests;  // sent in turn
};

struct WorkloadOptions {
  // RPC and its weight; it is divided evenly among that RPC's cases.
  std::vector<std::pair<std::string, double>> mix = {{"ApplyRope", 1}};
  // Bytes of a call's tensor; shapes [B, S, H, D] may be given instead.
  std::vector<std::int64_t> sizes = {64 << 10};
  std::vector<std::vector<std::int64_t>> shapes;
  std::vector<v1::Dtype> dtypes = {v1::DTYPE_FLOAT32};
  // Empty: half-split pairs, frequencies 10000^(-2i/d).
  std::string preset;
  // Requests per case: other data and other positions.
  int variants = 1;
  std::uint64_t seed = 1;
};

// "ApplyRope:8,BuildTable:1"; a name alone weighs 1.
absl::StatusOr<std::vector<std::pair<std::string, double>>> ParseMix(
    const std::string& flag, const std::string& text);

// "1x128x8x128,1x1x8x128", each [B, S, H, D].
absl::StatusOr<std::vector<std::vector<std::int64_t>>> ParseShapes(
    const std::string& flag, const std::string& text);

// "float32,bfloat16".
absl::StatusOr<std::vector<v1::Dtype>> ParseDtypes(const std::string& flag,
                                                   const std::string& text);

// Errors: INVALID_ARGUMENT, naming the flag.
absl::StatusOr<std::vector<Case>> BuildWorkload(const WorkloadOptions& options);

// A message as one string.
std::string BytesOf(const grpc::ByteBuffer& message);

// Of a message of several slices, without joining them.
bool Equals(const grpc::ByteBuffer& message, const std::string& bytes);

}  // namespace posenc::load
