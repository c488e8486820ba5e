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
// Size: ApplyRope and Reposition send tensors that are too large for a message
// as a stream; BuildTable receives such a table as a stream.
//
// Errors: absl::Status with the server's code and message, nothing throws.
// ErrorReason() returns the machine-readable reason. Every call may end as
//   INVALID_ARGUMENT     the request can never succeed: FIELD_REQUIRED,
//                        FIELD_INVALID, TENSOR_SIZE_MISMATCH, SHAPE_MISMATCH
//   UNIMPLEMENTED        the server is older than this client: FIELD_UNKNOWN,
//                        or no reason; the message tells its version
//   RESOURCE_EXHAUSTED   a message is over a limit (MESSAGE_TOO_LARGE; send
//                        less) or the server is full (OVERLOADED; retry later)
//   UNAVAILABLE          the server is draining (DRAINING) or not there, after
//                        four attempts; the message begins with the target
//   DEADLINE_EXCEEDED    the timeout is over; the message likewise
//   UNAUTHENTICATED      the server requires a token and does not accept this
//                        one (UNAUTHENTICATED)
//   PERMISSION_DENIED    the token is not for this method (PERMISSION_DENIED)
//   INTERNAL             a bug, or an answer that does not fit the request
// (reasons are written here without "ERROR_REASON_"). A method's comment names
// the errors that it adds. With a RopeSource, NOT_FOUND is PRESET_UNKNOWN and
// INVALID_ARGUMENT may be MODEL_CONFIG_INVALID; OUT_OF_RANGE is
// POSITION_OUT_OF_RANGE. The client checks nothing that the server checks.

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
  // Authorities of the server's certificate. Empty: the system's.
  std::string ca_file;
  // The client's certificate, followed by its issuers, and its key without a
  // passphrase, for servers that require one. Set both or neither.
  std::string cert_file;
  std::string key_file;
  // The name that the server's certificate must bear. Empty: the target's.
  std::string server_name;
};

struct ClientOptions {
  // A gRPC target: "dns:///posenc:50051", "127.0.0.1:50051",
  // "unix:/run/posenc". Required.
  std::string target;

  // Default deadline of a unary call. For streams: the longest time without any
  // progress; the whole stream then has a deadline of a day. Infinity: none.
  // CallOptions overrides it.
  absl::Duration timeout = absl::Seconds(60);

  // Bytes of the largest message, either way: a larger one ends its call as
  // RESOURCE_EXHAUSTED. At most 2 GiB - 1. The default is the server's; raise
  // it if the server's limits are raised.
  std::int64_t max_message_bytes = std::int64_t{512} << 20;

  // Bytes above which ApplyRope and Reposition use a stream instead of one
  // message. Unset: max_message_bytes. Lower it, for example to 16 MiB, to
  // overlap transfer with computation.
  absl::optional<std::int64_t> stream_above_bytes;

  // Connections for messages of 64 KiB and more, made when they are needed: a
  // single connection would slow concurrent calls down. A call takes the one
  // with the fewest calls under way. Small messages share another connection.
  // 0: all messages share it.
  int bulk_channels = 4;

  // A TCP connection is closed if its peer accepts no bytes for this long. A
  // call whose deadline passes meanwhile returns only then, as gRPC may still
  // read its tensors. Unix sockets have no such timeout.
  absl::Duration stuck_timeout = absl::Seconds(10);

  // gRPC's service config, as JSON. Unset: kServiceConfig.
  absl::optional<std::string> service_config;

  // The caller's own credentials, instead of `tls`. If neither is set:
  // plaintext.
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

// Options of one call.
struct CallOptions {
  // Deadline of the whole call, also of a stream. Unset: the client's timeout.
  // 0 or less: the call ends at once.
  absl::optional<absl::Duration> timeout;

  // Called whenever bytes of a result have arrived while ApplyRope, Reposition
  // or BuildTable uses a stream. `bytes` is the size of all tensors together.
  std::function<void(std::int64_t bytes_done, std::int64_t bytes)> on_progress;

  // The call's id in the server's log (metadata "x-request-id") and in its
  // errors: ErrorFact(status, "requestId"). Unset: the client's, or else 16
  // random bytes in hexadecimal for each call.
  std::string request_id;

  // The W3C trace context that the call belongs to, for servers with traces:
  // "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01". Unset: the
  // client's.
  std::string traceparent;
};

// The published service config: round robin over healthy servers, and up to
// four attempts for calls that end as UNAVAILABLE.
extern const char kServiceConfig[];

class Client {
 public:
  // Makes a client of the server or servers at options.target. It does not wait
  // for the network and never fails: without a server, the first call fails. If
  // CheckCredentials() fails, every call returns its error.
  static Client Connect(const ClientOptions& options);

  // Checks that the files of TLS and of the token can be used, and that the
  // token may be sent to the target. INVALID_ARGUMENT begins with the option:
  // "tls.ca_file: ...".
  static absl::Status CheckCredentials(const ClientOptions& options);

  // Makes a client that sends all messages over the caller's channel, for
  // example that of an in-process server. The channel's limits apply. A call
  // whose deadline passes while it sends returns once the channel has sent or
  // dropped its tensors; see stuck_timeout.
  explicit Client(std::shared_ptr<grpc::Channel> channel,
                  absl::Duration timeout = absl::Seconds(60));

  // Makes a region of shared memory with a new name in the server's directory.
  // Later calls of this client and of its copies pass only the places of
  // tensors in it (shared_region.h). If the server shares no memory with this
  // client, the region is private memory, and its tensors are sent. Also
  // RESOURCE_EXHAUSTED if the directory has too little space, INVALID_ARGUMENT
  // if the server does not accept such a large file, NOT_FOUND and the like if
  // the directory cannot be used from here: in another container it may have
  // another path, see Share().
  absl::StatusOr<std::shared_ptr<SharedRegion>> MakeRegion(
      std::size_t bytes, const CallOptions& options = {}) const;

  // Also passes only the places of tensors in this region. The client does not
  // keep the region alive.
  void Share(const std::shared_ptr<SharedRegion>& region) const;

  // Returns the server's version, instruction set, limits and presets.
  absl::StatusOr<v1::GetServerInfoResponse> GetServerInfo(
      const CallOptions& options = {}) const;

  // Converts a preset, a config.json or a specification to exact frequencies,
  // and lists the assumptions; optionally explains the differences from another
  // encoding. Also NOT_FOUND.
  absl::StatusOr<v1::ResolveRopeResponse> ResolveRope(
      const v1::ResolveRopeRequest& request,
      const CallOptions& options = {}) const;

  // Reads all descriptions of a checkpoint as each of its readers does. Returns
  // the disagreements and their fixes.
  absl::StatusOr<v1::DiagnoseRopeResponse> DiagnoseRope(
      const v1::DiagnoseRopeRequest& request,
      const CallOptions& options = {}) const;

  // Returns wavelengths, long-term decay and similarity between positions, as
  // numbers for plots. The encoding must have one axis. Also NOT_FOUND.
  absl::StatusOr<v1::AnalyzeRopeResponse> AnalyzeRope(
      const v1::AnalyzeRopeRequest& request,
      const CallOptions& options = {}) const;

  // Builds position ids for batches that are packed, padded, split over
  // devices, or mix text and images. Other calls take the answer's `positions`
  // unchanged.
  absl::StatusOr<v1::BuildPositionsResponse> BuildPositions(
      const v1::BuildPositionsRequest& request,
      const CallOptions& options = {}) const;

  // Builds rows of a table: cosines and sines of a rotary encoding, or an
  // absolute encoding; BuildTableResult has the shapes. A table over a limit is
  // requested again as a stream, and on_progress is called. Also NOT_FOUND and
  // OUT_OF_RANGE.
  absl::StatusOr<BuildTableResult> BuildTable(
      const v1::BuildTableRequest& request,
      const CallOptions& options = {}) const;

  // Builds the same in the caller's memory. The server itself writes outputs in
  // a SharedRegion if the request determines the table's size. The table of a
  // preset or a configuration is received and copied: call ResolveRope first to
  // avoid that.
  absl::StatusOr<BuildTableResult> BuildTable(
      const v1::BuildTableRequest& request, const TableOutputs& out,
      const CallOptions& options = {}) const;

  // Builds the same, but calls on_rows for every message, in the order of the
  // rows, instead of collecting them. If on_rows returns false, the call ends
  // as CANCELLED.
  absl::Status BuildTableStream(
      const v1::BuildTableStreamRequest& request,
      const std::function<bool(const TableChunk&)>& on_rows,
      const CallOptions& options = {}) const;

  // Builds an attention bias for a range of queries and keys, as a stream of
  // tiles. The timeout is the longest time without a tile. Calls on_tile for
  // every tile, in row-major order of the matrix. If on_tile returns false, the
  // call ends as CANCELLED. Also OUT_OF_RANGE.
  absl::Status BuildBias(const v1::BuildBiasRequest& request,
                         const std::function<bool(const BiasTile&)>& on_tile,
                         const CallOptions& options = {}) const;

  // Builds the same as one tensor, [heads, query_length, key_length].
  absl::StatusOr<TensorResult> BuildBias(const v1::BuildBiasRequest& request,
                                         const CallOptions& options = {}) const;

  // Rotates q, k or both, [B, S, H, D] in the order of args.layout or [T, H,
  // D]; results have their shapes and dtypes. An output may be its input's own
  // memory. Tensors over stream_above_bytes, or over the server's limit, go as
  // a stream. Also NOT_FOUND and OUT_OF_RANGE; INVALID_ARGUMENT also if an
  // output is not as large as its tensor.
  absl::StatusOr<ApplyRopeResult> ApplyRope(
      const ApplyRopeArgs& args, const CallOptions& options = {}) const;

  // Rotates through a stream, whatever the size; messages have at most 4 MiB,
  // and results come while tensors are sent. Arguments without tensor bytes go
  // as one message. The timeout is the longest time without any progress.
  absl::StatusOr<ApplyRopeResult> ApplyRopeStream(
      const ApplyRopeArgs& args, const CallOptions& options = {}) const;

  // Rotates tensors that are larger than memory: args.q and args.k have no
  // bytes and no outputs. `next` returns the bytes of q, then of k, in pieces
  // that may end after any element; `take` gets the bytes of the results in the
  // same order. The first error of either function ends the call and is
  // returned. Bytes that arrived before an error are valid.
  absl::Status ApplyRopeStream(const ApplyRopeArgs& args, const NextBytes& next,
                               const TakeBytes& take,
                               const CallOptions& options = {}) const;

  // Moves rotated keys to other positions, or from one rotary encoding to
  // another, in one rotation. Shapes, aliasing, streams and errors are those of
  // ApplyRope; INVALID_ARGUMENT also if no single rotation converts the old
  // encoding to the new one (NOT_REPOSITIONABLE).
  absl::StatusOr<TensorResult> Reposition(
      const RepositionArgs& args, const CallOptions& options = {}) const;

  // Repositions through a stream, whatever the size; see ApplyRopeStream.
  absl::StatusOr<TensorResult> RepositionStream(
      const RepositionArgs& args, const CallOptions& options = {}) const;

  // Repositions caches that are larger than memory; see ApplyRopeStream.
  absl::Status RepositionStream(const RepositionArgs& args,
                                const NextBytes& next, const TakeBytes& take,
                                const CallOptions& options = {}) const;

  // Combines embeddings x, [B, S, dim], [S, dim] or [T, dim], with an absolute
  // encoding. `out` may be x's own memory. x must fit into one message
  // (max_message_bytes). Also OUT_OF_RANGE.
  absl::StatusOr<TensorResult> AddEncoding(
      const AddEncodingArgs& args, const CallOptions& options = {}) const;

  // Computes attention scores of encodings that act inside attention: q
  // [B, H, Sq, D] and k [B, H, Sk, D] give [B, H, Sq, Sk], not divided by
  // sqrt(D). One message each way. Also OUT_OF_RANGE.
  absl::StatusOr<TensorResult> ScoreRelative(
      const ScoreRelativeArgs& args, const CallOptions& options = {}) const;

  // Reorders the rows of a projection's weight or bias, [H * D, ...], so that
  // a checkpoint for one pairing works with the other. Elements are moved bit
  // for bit. `out` may be the weight's own memory. One message.
  absl::StatusOr<TensorResult> ConvertPairing(
      const ConvertPairingArgs& args, const CallOptions& options = {}) const;

 private:
  class Calls;
  explicit Client(std::shared_ptr<Calls> calls) : calls_(std::move(calls)) {}

  std::shared_ptr<Calls> calls_;
};

}  // namespace posenc
