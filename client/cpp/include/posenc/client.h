// C++ client of posenc (C++17).
//
//   auto client = posenc::Client::Connect({"dns:///posenc:50051"});
//   const std::vector<float> q = ...;
//   posenc::ApplyRopeArgs args;
//   args.rope = posenc::FromPreset("llama-3.1-8b");
//   args.positions = posenc::StartAt(0);
//   args.layout = posenc::v1::LAYOUT_BSHD;
//   args.q = posenc::ViewOf(q, {1, 4096, 32, 128});
//   absl::StatusOr<posenc::ApplyRopeResult> out = client.ApplyRope(args);
//
// Threads: a Client is cheap to copy (copies share the connections) and safe
// for any number of threads. Calls block; callbacks are called in the thread
// that made the call, and must not throw.
//
// Memory: tensors of 64 KiB and more are sent without a copy; results are
// copied once, to the caller's `q_out`, `k_out` or `out`, or to 64-byte aligned
// memory that the result keeps alive. No call returns before gRPC has released
// the caller's memory.
//
// Size: ApplyRope and Reposition use a stream for tensors that are too large
// for one message. BuildTable uses a stream for a table that is too large for
// one message.
//
// Errors: an absl::Status has the server's code and message. Nothing throws.
// ErrorReason() returns the machine-readable reason. Every call may end as
//   INVALID_ARGUMENT     the request can never succeed: FIELD_REQUIRED,
//                        FIELD_INVALID, TENSOR_SIZE_MISMATCH, SHAPE_MISMATCH
//   UNIMPLEMENTED        the server is older than this client (FIELD_UNKNOWN,
//                        or no reason); the message has the server's version
//   RESOURCE_EXHAUSTED   a message is over a limit (MESSAGE_TOO_LARGE; send
//                        less) or the server is full (OVERLOADED; retry later)
//   UNAVAILABLE          after four attempts the server is draining (DRAINING)
//                        or was not reached (the message then begins with the
//                        target)
//   DEADLINE_EXCEEDED    the timeout is over; the message begins with the
//                        target
//   UNAUTHENTICATED      the server requires a token and does not accept this
//                        one (UNAUTHENTICATED)
//   PERMISSION_DENIED    the token may not call this method (PERMISSION_DENIED)
//   INTERNAL             a bug, or an answer that does not fit the request
// Reasons are written here without "ERROR_REASON_". The comment of a method
// lists its other errors after "Other errors:". If a method takes a RopeSource,
// NOT_FOUND has the reason PRESET_UNKNOWN, and INVALID_ARGUMENT may have
// MODEL_CONFIG_INVALID. OUT_OF_RANGE has POSITION_OUT_OF_RANGE.

#pragma once

#include <cstddef>
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
#include "posenc/shared_region.h"

namespace posenc {

// PEM files. They are read when the client is made.
struct TlsOptions {
  // The certificate authorities that the client trusts. Empty: the system's
  // authorities.
  std::string ca_file;
  // For servers that require a client certificate. cert_file has the
  // certificate, followed by its issuers; key_file has the certificate's key,
  // without a passphrase. Set both or neither.
  std::string cert_file;
  std::string key_file;
  // The name that the server's certificate must have. Empty: the target's name.
  std::string server_name;
};

struct ClientOptions {
  // A gRPC target: "dns:///posenc:50051", "127.0.0.1:50051",
  // "unix:/run/posenc". Required.
  std::string target;

  // Default deadline of a unary call. For a stream it is the longest time
  // without any progress, and the whole stream has a deadline of one day.
  // Infinity: no limit. CallOptions::timeout overrides this default.
  absl::Duration timeout = absl::Seconds(60);

  // Size in bytes of the largest message, sent or received. A larger message
  // ends its call as RESOURCE_EXHAUSTED. At most 2 GiB - 1. The server has the
  // same default; if its limits are raised, raise this limit, too.
  std::int64_t max_message_bytes = std::int64_t{512} << 20;

  // Size in bytes of a request above which ApplyRope and Reposition use a
  // stream instead of one message. Unset: max_message_bytes. A lower limit, for
  // example 16 MiB, overlaps transfer with computation.
  absl::optional<std::int64_t> stream_above_bytes;

  // Number of connections for messages of 64 KiB and more. A single connection
  // would slow down concurrent calls. A connection is made when it is needed,
  // and a call takes the connection with the fewest calls under way. Smaller
  // messages share another connection. 0: all messages share that connection.
  int bulk_channels = 4;

  // A TCP connection is closed if its peer accepts no bytes for this long. If
  // the deadline of a call passes earlier, the call returns only when the
  // connection is closed, because gRPC may still read its tensors. Unix sockets
  // have no such timeout.
  absl::Duration stuck_timeout = absl::Seconds(10);

  // gRPC's service config, as JSON. Unset: kServiceConfig.
  absl::optional<std::string> service_config;

  // The caller's own credentials, instead of `tls`. If `credentials` and `tls`
  // are unset, connections are plaintext.
  std::shared_ptr<grpc::ChannelCredentials> credentials;

  // If set, every connection uses TLS. The default TlsOptions() trusts the
  // system's authorities.
  absl::optional<TlsOptions> tls;

  // The bearer token of every call, or a file that holds only the token and is
  // read again when it changes. A token is never sent unencrypted to another
  // machine: it needs TLS, or a target that is a unix socket or a loopback
  // address.
  std::string token;
  std::string token_file;

  // Defaults for the same fields of CallOptions.
  std::string request_id;
  std::string traceparent;
};

struct CallOptions {
  // Deadline of the whole call, also of a stream. Unset: the client's timeout.
  // 0 or less: the call ends at once.
  absl::optional<absl::Duration> timeout;

  // If ApplyRope, Reposition or BuildTable uses a stream, this function is
  // called whenever bytes of a result have arrived. `bytes` is the size of all
  // tensors together.
  std::function<void(std::int64_t bytes_done, std::int64_t bytes)> on_progress;

  // The call's id in the server's log (metadata "x-request-id") and in its
  // errors: ErrorFact(status, "requestId"). Unset: the client's request_id, or
  // else 16 random bytes in hexadecimal for each call.
  std::string request_id;

  // The W3C trace context that the call belongs to, for servers with tracing:
  // "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01". Unset: the
  // client's traceparent.
  std::string traceparent;
};

// The published service config: round robin over healthy servers, and up to
// four attempts for calls that end as UNAVAILABLE.
extern const char kServiceConfig[];

class Calls;  // of the library

class Client {
 public:
  // Makes a client of the server or servers at options.target. Connect() does
  // not wait for the network and never fails: without a server, the first call
  // fails. If CheckCredentials() fails, every call returns its error.
  static Client Connect(const ClientOptions& options);

  // Checks that the files of TLS and of the token can be used, and that the
  // token may be sent to the target. The message of INVALID_ARGUMENT begins
  // with the option: "tls.ca_file: ...".
  static absl::Status CheckCredentials(const ClientOptions& options);

  // Makes a client that sends all messages over the caller's channel, for
  // example the channel of an in-process server. The channel's limits apply. If
  // the deadline of a call passes while the call sends, the call returns only
  // after the channel has sent or dropped the tensors; see stuck_timeout.
  explicit Client(std::shared_ptr<grpc::Channel> channel,
                  absl::Duration timeout = absl::Seconds(60));

  // Makes a region of shared memory with a new name in the server's directory.
  // For tensors in the region, later calls of this client and of its copies
  // send only the place, not the elements (shared_region.h). If the server
  // shares no memory with this client, the region is private memory, and its
  // tensors are sent. Other errors: RESOURCE_EXHAUSTED if the directory has too
  // little space, and INVALID_ARGUMENT if the server does not accept a file of
  // this size. NOT_FOUND and similar errors mean that this process cannot use
  // the directory. In a container the directory may have another path; see
  // Share().
  absl::StatusOr<std::shared_ptr<SharedRegion>> MakeRegion(
      std::size_t bytes, const CallOptions& options = {}) const;

  // Uses a region that the caller has made (SharedRegion::Create()), as if it
  // came from MakeRegion(). The client does not keep the region alive.
  void Share(const std::shared_ptr<SharedRegion>& region) const;

  // Returns the server's version, instruction set, limits and presets.
  absl::StatusOr<v1::GetServerInfoResponse> GetServerInfo(
      const CallOptions& options = {}) const;

  // Converts a preset, a config.json or a specification to exact frequencies,
  // and lists the assumptions. If the request has compare_with, the response
  // also explains the differences from that encoding. Other errors: NOT_FOUND.
  absl::StatusOr<v1::ResolveRopeResponse> ResolveRope(
      const v1::ResolveRopeRequest& request,
      const CallOptions& options = {}) const;

  // Interprets all files that describe a checkpoint (config.json, GGUF, ...) as
  // each engine (transformers, vLLM, ...) does. Returns the disagreements and
  // their fixes.
  absl::StatusOr<v1::DiagnoseRopeResponse> DiagnoseRope(
      const v1::DiagnoseRopeRequest& request,
      const CallOptions& options = {}) const;

  // Returns wavelengths, long-term decay and similarity between positions, as
  // numbers for plots. The encoding must have one axis. Other errors:
  // NOT_FOUND.
  absl::StatusOr<v1::AnalyzeRopeResponse> AnalyzeRope(
      const v1::AnalyzeRopeRequest& request,
      const CallOptions& options = {}) const;

  // Builds position ids for batches that are packed, padded or split over
  // devices, or that mix text and images. Other calls take the answer's
  // `positions` unchanged.
  absl::StatusOr<v1::BuildPositionsResponse> BuildPositions(
      const v1::BuildPositionsRequest& request,
      const CallOptions& options = {}) const;

  // Builds rows of a table: cosines and sines of a rotary encoding, or an
  // absolute encoding. BuildTableResult describes the shapes. If the table is
  // larger than a limit of client or server, it is requested again as a stream,
  // and on_progress is called. Other errors: NOT_FOUND and OUT_OF_RANGE.
  absl::StatusOr<BuildTableResult> BuildTable(
      const v1::BuildTableRequest& request,
      const CallOptions& options = {}) const;

  // Builds a table in the caller's memory. The table is received and copied,
  // also to outputs in a SharedRegion.
  absl::StatusOr<BuildTableResult> BuildTable(
      const v1::BuildTableRequest& request, const TableOutputs& out,
      const CallOptions& options = {}) const;

  // Builds a table as a stream. Calls on_rows for the rows of every message, in
  // their order, instead of collecting all rows. If on_rows returns false, the
  // call ends as CANCELLED.
  absl::Status BuildTableStream(
      const v1::BuildTableStreamRequest& request,
      const std::function<bool(const TableChunk&)>& on_rows,
      const CallOptions& options = {}) const;

  // Builds an attention bias for a range of queries and keys, as a stream of
  // tiles. The timeout is the longest time without a tile. Calls on_tile for
  // every tile, in row-major order of the matrix. If on_tile returns false, the
  // call ends as CANCELLED. Other errors: OUT_OF_RANGE.
  absl::Status BuildBias(const v1::BuildBiasRequest& request,
                         const std::function<bool(const BiasTile&)>& on_tile,
                         const CallOptions& options = {}) const;

  // Builds a bias as one tensor, [heads, query_length, key_length].
  absl::StatusOr<TensorResult> BuildBias(const v1::BuildBiasRequest& request,
                                         const CallOptions& options = {}) const;

  // Rotates q, k or both. A tensor is [B, S, H, D] in the order of args.layout,
  // or [T, H, D]; its result has the same shape and dtype. An output may be the
  // memory of its own input. Tensors over stream_above_bytes, or over the
  // server's limit, are sent as a stream. Other errors: NOT_FOUND,
  // OUT_OF_RANGE, and INVALID_ARGUMENT if an output does not have the size of
  // its tensor.
  absl::StatusOr<ApplyRopeResult> ApplyRope(
      const ApplyRopeArgs& args, const CallOptions& options = {}) const;

  // Rotates through a stream, even if the tensors are small. Messages have at
  // most 4 MiB, and results arrive while tensors are still being sent. If the
  // tensors have no bytes, one message is sent instead. The timeout is the
  // longest time without any progress.
  absl::StatusOr<ApplyRopeResult> ApplyRopeStream(
      const ApplyRopeArgs& args, const CallOptions& options = {}) const;

  // Rotates tensors that do not fit into memory. args.q and args.k have only
  // dtype and shape: no bytes, and no outputs. `next` returns the bytes of q,
  // then the bytes of k, in pieces that may end after any element. `take` gets
  // the bytes of the results in the same order. The first error of either
  // function ends the call and is returned. Bytes that arrived before an error
  // are valid.
  absl::Status ApplyRopeStream(const ApplyRopeArgs& args, const NextBytes& next,
                               const TakeBytes& take,
                               const CallOptions& options = {}) const;

  // Moves rotated keys to other positions, or from one rotary encoding to
  // another, in one rotation. Shapes, aliasing, streams and errors are as in
  // ApplyRope. Other errors: INVALID_ARGUMENT (NOT_REPOSITIONABLE) if no single
  // rotation converts the old encoding to the new one.
  absl::StatusOr<TensorResult> Reposition(
      const RepositionArgs& args, const CallOptions& options = {}) const;

  // Repositions through a stream, even if k is small; see ApplyRopeStream.
  absl::StatusOr<TensorResult> RepositionStream(
      const RepositionArgs& args, const CallOptions& options = {}) const;

  // Repositions caches that do not fit into memory; see ApplyRopeStream.
  absl::Status RepositionStream(const RepositionArgs& args,
                                const NextBytes& next, const TakeBytes& take,
                                const CallOptions& options = {}) const;

  // Combines embeddings x, [B, S, dim], [S, dim] or [T, dim], with an absolute
  // encoding. `out` may be the memory of x. x must fit into one message
  // (max_message_bytes). Other errors: OUT_OF_RANGE.
  absl::StatusOr<TensorResult> AddEncoding(
      const AddEncodingArgs& args, const CallOptions& options = {}) const;

  // Computes attention scores of encodings that act inside attention: q [B, H,
  // Sq, D] and k [B, H, Sk, D] give [B, H, Sq, Sk]. The scores are not divided
  // by sqrt(D). Request and response must each fit into one message. Other
  // errors: OUT_OF_RANGE.
  absl::StatusOr<TensorResult> ScoreRelative(
      const ScoreRelativeArgs& args, const CallOptions& options = {}) const;

  // Reorders the rows of a projection's weight or bias, [H * D, ...], so that a
  // checkpoint for one pairing works with the other pairing. Elements keep
  // their bits. `out` may be the weight's own memory, except in a SharedRegion.
  // Request and response must each fit into one message.
  absl::StatusOr<TensorResult> ConvertPairing(
      const ConvertPairingArgs& args, const CallOptions& options = {}) const;

 private:
  explicit Client(std::shared_ptr<Calls> calls) : calls_(std::move(calls)) {}

  std::shared_ptr<Calls> calls_;
};

}  // namespace posenc
