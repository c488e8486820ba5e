// The RPCs of the service, one file each: how a request is checked, and how its
// response is computed.
//
// Simple RPCs pass a function to one of the templates in unary.h; streams have
// their own CallHandler. Core computes and server/convert converts: a method
// joins the two and names the fields of errors.

#pragma once

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/positions.h"
#include "server/budget/limits.h"
#include "server/convert/unknown_fields.h"
#include "server/methods/rope_cache.h"
#include "server/rpc/call_headers.h"
#include "server/rpc/call_spec.h"
#include "server/rpc/handler.h"
#include "server/shared/shared_files.h"

namespace posenc::server {

// The permission of a call to use shared memory.
struct CallSharing {
  SharedFiles* files = nullptr;  // null: no memory is shared
  absl::Status allowed;          // SharedFiles::Allows() for its peer
  // True if the client's retry policy has sent the call before.
  bool repeated = false;
};

// Objects that all methods share. They outlive the handlers.
struct MethodContext {
  const Limits* limits;  // with defaults filled in
  RopeCache* cache;
  CallSharing sharing;
  // The call's headers, for `start` only; null without a call.
  const CallHeaders* call = nullptr;
  // Encodings of the request; null if it is no message of the contract.
  const RopeBytes* ropes = nullptr;
  // Claims memory that a stream's rotation keeps; empty in other calls.
  core::ReserveFunction reserve;
};

struct Method : MethodTraits {
  // Makes the handler of a call. An error refuses the call at its headers.
  std::function<absl::StatusOr<std::unique_ptr<CallHandler>>(
      const MethodContext& context)>
      start;
  bool needs_token = true;  // if the server has tokens
};

// Returns the methods of the contract.
absl::Span<const Method> Methods();

// Returns null if the contract has no RPC of this name.
const Method* FindMethod(absl::string_view name);

// These return the handler of a new call.
std::unique_ptr<CallHandler> StartGetServerInfo(const MethodContext& context);
std::unique_ptr<CallHandler> StartResolveRope(const MethodContext& context);
std::unique_ptr<CallHandler> StartBuildTable(const MethodContext& context);
std::unique_ptr<CallHandler> StartBuildTableStream(
    const MethodContext& context);
std::unique_ptr<CallHandler> StartBuildBias(const MethodContext& context);
std::unique_ptr<CallHandler> StartBuildPositions(const MethodContext& context);
std::unique_ptr<CallHandler> StartApplyRope(const MethodContext& context);
std::unique_ptr<CallHandler> StartApplyRopeStream(const MethodContext& context);
std::unique_ptr<CallHandler> StartReposition(const MethodContext& context);
std::unique_ptr<CallHandler> StartRepositionStream(
    const MethodContext& context);
std::unique_ptr<CallHandler> StartAddEncoding(const MethodContext& context);
std::unique_ptr<CallHandler> StartScoreRelative(const MethodContext& context);
std::unique_ptr<CallHandler> StartConvertPairing(const MethodContext& context);
std::unique_ptr<CallHandler> StartAnalyzeRope(const MethodContext& context);
std::unique_ptr<CallHandler> StartDiagnoseRope(const MethodContext& context);

}  // namespace posenc::server
