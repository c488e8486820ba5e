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
// checks nothing that the server checks.
//
// Tensor bytes go into the request once (protobuf owns its bytes), and results
// are views into the response, which the result object keeps alive: no copy.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "posenc/messages.h"
#include "posenc/v1/service.grpc.pb.h"

namespace posenc {

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

  absl::StatusOr<v1::AnalyzeRopeResponse> AnalyzeRope(
      const v1::AnalyzeRopeRequest& request,
      const CallOptions& options = {}) const;

  // The answer's `positions` go into other calls as they are.
  absl::StatusOr<v1::BuildPositionsResponse> BuildPositions(
      const v1::BuildPositionsRequest& request,
      const CallOptions& options = {}) const;

  absl::StatusOr<BuildTableResult> BuildTable(
      const v1::BuildTableRequest& request,
      const CallOptions& options = {}) const;

  // Calls on_tile for every tile, in row-major order of the matrix, in the
  // caller's thread. Where it returns false the call ends as CANCELLED.
  absl::Status BuildBias(const v1::BuildBiasRequest& request,
                         const std::function<bool(const BiasTile&)>& on_tile,
                         const CallOptions& options = {}) const;

  // All tiles as one tensor, [heads, query_length, key_length].
  absl::StatusOr<TensorResult> BuildBias(const v1::BuildBiasRequest& request,
                                         const CallOptions& options = {}) const;

  absl::StatusOr<ApplyRopeResult> ApplyRope(
      const ApplyRopeArgs& args, const CallOptions& options = {}) const;

  absl::StatusOr<TensorResult> Reposition(
      const RepositionArgs& args, const CallOptions& options = {}) const;

  absl::StatusOr<TensorResult> AddEncoding(
      const AddEncodingArgs& args, const CallOptions& options = {}) const;

  absl::StatusOr<TensorResult> ScoreRelative(
      const ScoreRelativeArgs& args, const CallOptions& options = {}) const;

  absl::StatusOr<TensorResult> ConvertPairing(
      const ConvertPairingArgs& args, const CallOptions& options = {}) const;

 private:
  // `method` is one of the stub's unary ones.
  template <typename Method, typename Request, typename Response>
  absl::Status Call(Method method, const Request& request,
                    const CallOptions& options, Response* response) const;

  std::shared_ptr<v1::PositionalEncodingService::StubInterface> stub_;
  absl::Duration timeout_;
};

}  // namespace posenc
