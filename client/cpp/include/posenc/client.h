// C++ client of posenc (C++17).
//
//   auto client = posenc::Client::Connect({"dns:///posenc:50051"});
//   posenc::ApplyRopeArgs args;
//   args.rope = posenc::FromPreset("llama-3.1-8b");
//   args.positions = posenc::StartAt(0);
//   args.layout = posenc::v1::LAYOUT_BSHD;
//   args.q = {posenc::v1::DTYPE_BFLOAT16, {1, 4096, 32, 128}, q_bytes};
//   absl::StatusOr<posenc::ApplyRopeResult> out = client.ApplyRope(args);
//
// A Client is cheap to copy (copies share the channel) and safe for any number
// of threads. Calls block; errors are absl::Status with the server's code and
// message, and ErrorReason() tells the machine-readable reason. The client
// checks nothing that the server checks. Settings that have no type of their
// own here are the generated messages of posenc.v1.
//
// Tensor bytes go into the request once (protobuf owns its bytes), and results
// are views into the response, which the result object keeps alive: no copy.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "posenc/v1/service.grpc.pb.h"
#include "posenc/v1/service.pb.h"

namespace posenc {

using Dtype = v1::Dtype;
using Layout = v1::Layout;

struct ClientOptions {
  // A gRPC target: "dns:///posenc:50051", "127.0.0.1:50051",
  // "unix:/run/posenc".
  std::string target;

  // Deadline of a call that sets none.
  absl::Duration timeout = absl::Seconds(60);

  // Bytes of one message, either way; the server's default.
  std::int64_t max_message_bytes = std::int64_t{512} << 20;

  // Unset: retries on UNAVAILABLE up to 4 attempts (kServiceConfig). JSON.
  absl::optional<std::string> service_config;
};

struct CallOptions {
  absl::optional<absl::Duration> timeout;
};

// A tensor of somebody else: row-major, little-endian bytes.
struct TensorView {
  v1::Dtype dtype = v1::DTYPE_UNSPECIFIED;
  std::vector<std::int64_t> shape;
  absl::Span<const char> bytes;
};

struct ApplyRopeArgs {
  v1::RopeSource rope;
  v1::Positions positions;
  v1::Layout layout = v1::LAYOUT_UNSPECIFIED;
  v1::Direction direction = v1::DIRECTION_UNSPECIFIED;
  absl::optional<v1::QueryScale> query_scale;
  absl::optional<TensorView> q;
  absl::optional<TensorView> k;
};

// Views stay valid as long as the result (or a copy of `response`) lives.
struct ApplyRopeResult {
  absl::optional<TensorView> q;
  absl::optional<TensorView> k;
  std::shared_ptr<const v1::ApplyRopeResponse> response;
};

struct BuildTableResult {
  double amplitude = 1;
  absl::optional<TensorView> cos;
  absl::optional<TensorView> sin;
  absl::optional<TensorView> table;
  std::shared_ptr<const v1::BuildTableResponse> response;
};

// Shorthands for the common kinds of v1::Positions and v1::RopeSource.
v1::Positions StartAt(std::int64_t start);
v1::RopeSource FromPreset(absl::string_view name);
v1::RopeSource FromConfigJson(absl::string_view config_json);

// "ERROR_REASON_FIELD_INVALID" where the server gave one; else empty.
std::string ErrorReason(const absl::Status& status);

// The published service config (retries on UNAVAILABLE).
extern const char kServiceConfig[];

class Client {
 public:
  // Never blocks and never fails on an absent server: the first call does.
  static Client Connect(const ClientOptions& options);

  // Over a channel or a stub of the caller's own (in-process server, mocks).
  explicit Client(std::shared_ptr<grpc::Channel> channel,
                  absl::Duration timeout = absl::Seconds(60));
  explicit Client(
      std::shared_ptr<v1::PositionalEncodingService::StubInterface> stub,
      absl::Duration timeout = absl::Seconds(60));

  absl::StatusOr<v1::GetServerInfoResponse> GetServerInfo(
      const CallOptions& options = {}) const;

  absl::StatusOr<v1::ResolveRopeResponse> ResolveRope(
      const v1::ResolveRopeRequest& request,
      const CallOptions& options = {}) const;

  absl::StatusOr<BuildTableResult> BuildTable(
      const v1::BuildTableRequest& request,
      const CallOptions& options = {}) const;

  absl::StatusOr<ApplyRopeResult> ApplyRope(
      const ApplyRopeArgs& args, const CallOptions& options = {}) const;

 private:
  std::shared_ptr<v1::PositionalEncodingService::StubInterface> stub_;
  absl::Duration timeout_;
};

}  // namespace posenc
