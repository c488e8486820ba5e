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
// A Client is cheap to copy (copies share the connections) and safe for any
// number of threads. Calls block; errors are absl::Status with the server's
// code and message, and ErrorReason() tells the machine-readable reason. The
// client checks nothing that the server checks.
//
// Tensor bytes are sent from where they are, and copied once when they come
// back: to the caller's `q_out`, `k_out` or `out`, which may be the input's own
// memory, or to 64-byte aligned memory that the result keeps alive. No call
// returns before gRPC has let go of the caller's memory.
//
// Tensors too large for a message go through a stream by themselves.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "grpcpp/channel.h"
#include "grpcpp/security/credentials.h"
#include "posenc/messages.h"
#include "posenc/v1/service.grpc.pb.h"

namespace posenc {

struct ClientOptions {
  // A gRPC target: "dns:///posenc:50051", "127.0.0.1:50051",
  // "unix:/run/posenc".
  std::string target;

  // Deadline of a call that sets none; of a stream, how long nothing may come.
  absl::Duration timeout = absl::Seconds(60);

  // Bytes of one message, either way; the server's default.
  std::int64_t max_message_bytes = std::int64_t{512} << 20;

  // ApplyRope and Reposition go as a stream where a message would be larger.
  // Unset: max_message_bytes.
  absl::optional<std::int64_t> stream_above_bytes;

  // Connections for messages from 64 KiB on, made when they are needed; small
  // ones have one of their own.
  int bulk_channels = 4;

  // A TCP connection that takes nothing for so long while bytes are waiting is
  // given up. A call whose deadline passed meanwhile returns only then: until
  // then gRPC may read its tensors. Unix sockets have no such time.
  absl::Duration stuck_timeout = absl::Seconds(10);

  // Unset: round robin over healthy servers, retries on UNAVAILABLE up to 4
  // attempts (kServiceConfig). JSON.
  absl::optional<std::string> service_config;

  // nullptr: plaintext.
  std::shared_ptr<grpc::ChannelCredentials> credentials;
};

struct CallOptions {
  // Of the whole call, streams too.
  absl::optional<absl::Duration> timeout;

  // Called in the caller's thread while a tensor goes through a stream.
  std::function<void(std::int64_t bytes_done, std::int64_t bytes)> on_progress;
};

// The published service config.
extern const char kServiceConfig[];

class Client {
 public:
  // Never blocks and never fails on an absent server: the first call does.
  static Client Connect(const ClientOptions& options);

  // Over a channel of the caller's own (an in-process server). After a deadline
  // in the middle of sending, calls return once it has taken or dropped what
  // they lent it; see stuck_timeout.
  explicit Client(std::shared_ptr<grpc::Channel> channel,
                  absl::Duration timeout = absl::Seconds(60));

  // Over a stub, for tests with a mock: tensors are copied as protobuf does,
  // and there are no streams but BuildBias.
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

  // Tables over the limits come as a stream.
  absl::StatusOr<BuildTableResult> BuildTable(
      const v1::BuildTableRequest& request,
      const CallOptions& options = {}) const;

  // Calls on_rows for every message, in order, in the caller's thread. Where it
  // returns false the call ends as CANCELLED.
  absl::Status BuildTableStream(
      const v1::BuildTableStreamRequest& request,
      const std::function<bool(const TableChunk&)>& on_rows,
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

  // The same as a stream, whatever the size: cut into chunks of a few MiB of
  // which a few are under way at a time.
  absl::StatusOr<ApplyRopeResult> ApplyRopeStream(
      const ApplyRopeArgs& args, const CallOptions& options = {}) const;

  // For tensors larger than memory: `next` fills in the next chunk, or returns
  // false at the end, and `done` gets each result, in order, both in the
  // caller's thread. Their first error ends the call and is what it returns.
  absl::Status ApplyRopeStream(
      const ApplyRopeStreamSettings& settings,
      const std::function<absl::StatusOr<bool>(ApplyRopeChunk*)>& next,
      const std::function<absl::Status(const ApplyRopeResult&)>& done,
      const CallOptions& options = {}) const;

  absl::StatusOr<TensorResult> Reposition(
      const RepositionArgs& args, const CallOptions& options = {}) const;

  absl::StatusOr<TensorResult> RepositionStream(
      const RepositionArgs& args, const CallOptions& options = {}) const;

  absl::Status RepositionStream(
      const RepositionStreamSettings& settings,
      const std::function<absl::StatusOr<bool>(RepositionChunk*)>& next,
      const std::function<absl::Status(const TensorResult&)>& done,
      const CallOptions& options = {}) const;

  absl::StatusOr<TensorResult> AddEncoding(
      const AddEncodingArgs& args, const CallOptions& options = {}) const;

  absl::StatusOr<TensorResult> ScoreRelative(
      const ScoreRelativeArgs& args, const CallOptions& options = {}) const;

  absl::StatusOr<TensorResult> ConvertPairing(
      const ConvertPairingArgs& args, const CallOptions& options = {}) const;

 private:
  class Calls;
  explicit Client(std::shared_ptr<Calls> calls) : calls_(std::move(calls)) {}

  std::shared_ptr<Calls> calls_;
};

}  // namespace posenc
