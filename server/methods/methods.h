// The RPCs of the service. Each RPC has a file that checks its requests and
// computes its responses.
//
// A unary RPC is a function; a stream is a CallHandler. core/ computes, and
// server/convert converts messages. A method combines both, and names the
// fields of errors.

#pragma once

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/positions/positions.h"
#include "posenc/v1/service.pb.h"
#include "server/call/call_headers.h"
#include "server/call/computation.h"
#include "server/call/handler.h"
#include "server/convert/rope_cache.h"
#include "server/convert/tensor.h"
#include "server/scheduling/limits.h"
#include "server/shared_memory/shared_files.h"

namespace posenc::server {

// The permission of a call to use shared memory.
struct CallSharing {
  SharedFiles* files = nullptr;  // null: no memory is shared
  bool allowed = true;           // SharedFiles::Allows() for its peer
  // True if the client's retry policy has sent the call before.
  bool repeated = false;
};

// The objects that a method gets for a call. They must outlive the handler.
struct MethodContext {
  const Limits* limits;  // with defaults filled in
  RopeCache* cache;
  CallSharing sharing;
  // The call's headers, which only Method::start may use; may be null.
  const CallHeaders* call = nullptr;
  BorrowedTensors borrowed;  // tensors of the request
  // Memory for converted tensors. Lives as long as the request.
  OwnedElements* owned = nullptr;
  // Claims memory for expanded positions, and for the list of the slots that
  // hold a cache's tokens.
  core::ReserveFunction reserve;
  // The StopCheck of CallHandler::Next(). May be empty.
  std::function<absl::Status()> stop;
};

struct Method : MethodTraits {
  // Makes the handler of a call. An error refuses the call before its message
  // is read.
  std::function<absl::StatusOr<std::unique_ptr<CallHandler>>(
      const MethodContext& context)>
      start;
  bool needs_token = true;  // if the server has tokens
};

// Returns the methods of the contract.
absl::Span<const Method> Methods();

// Returns null if the contract has no RPC of this name.
const Method* FindMethod(absl::string_view name);

// These functions answer requests of the unary RPCs. server/adapters/kserve
// uses them, too, with its own framing. A TensorAnswer borrows the request, and
// its tensors are not computed yet. A function that returns a Status fills the
// empty `response`. Errors are those of the RPC.
absl::StatusOr<TensorAnswer> AnswerBuildTable(
    const v1::BuildTableRequest& request, const MethodContext& context);
absl::StatusOr<TensorAnswer> AnswerBuildPositions(
    const v1::BuildPositionsRequest& request, const MethodContext& context);
absl::StatusOr<TensorAnswer> AnswerApplyRope(
    const v1::ApplyRopeRequest& request, const MethodContext& context);
absl::StatusOr<TensorAnswer> AnswerReposition(
    const v1::RepositionRequest& request, const MethodContext& context);
absl::StatusOr<TensorAnswer> AnswerAddEncoding(
    const v1::AddEncodingRequest& request, const MethodContext& context);
absl::StatusOr<TensorAnswer> AnswerScoreRelative(
    const v1::ScoreRelativeRequest& request, const MethodContext& context);
absl::StatusOr<TensorAnswer> AnswerConvertPairing(
    const v1::ConvertPairingRequest& request, const MethodContext& context);

// The answer computes the analysis in parts, and can be stopped between parts.
absl::StatusOr<TensorAnswer> AnswerAnalyzeRope(
    const v1::AnalyzeRopeRequest& request, const MethodContext& context);

// Returns the matrix as one tile. Refuses a request for several tiles.
absl::StatusOr<TensorAnswer> AnswerWholeBias(
    const v1::BuildBiasRequest& request, const MethodContext& context);

absl::Status AnswerGetServerInfo(const v1::GetServerInfoRequest& request,
                                 const MethodContext& context, StopCheck stop,
                                 v1::GetServerInfoResponse* response);
absl::Status AnswerResolveRope(const v1::ResolveRopeRequest& request,
                               const MethodContext& context, StopCheck stop,
                               v1::ResolveRopeResponse* response);
absl::Status AnswerDiagnoseRope(const v1::DiagnoseRopeRequest& request,
                                const MethodContext& context, StopCheck stop,
                                v1::DiagnoseRopeResponse* response);

// These functions return the handlers of streams.
std::unique_ptr<CallHandler> StartBuildTableStream(
    const MethodContext& context);
std::unique_ptr<CallHandler> StartBuildBias(const MethodContext& context);
std::unique_ptr<CallHandler> StartApplyRopeStream(const MethodContext& context);
std::unique_ptr<CallHandler> StartRepositionStream(
    const MethodContext& context);

}  // namespace posenc::server
