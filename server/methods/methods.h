// The RPCs of the service, one file each: what a request must be, and how its
// response is computed.
//
// Simple RPCs give a function to one of the templates in unary.h; streams have
// a CallHandler of their own. Numbers are core's, conversions are convert's:
// a method puts the two together and names the fields that errors refer to.

#pragma once

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/budget/limits.h"
#include "server/convert/unknown_fields.h"
#include "server/methods/rope_cache.h"
#include "server/rpc/call_headers.h"
#include "server/rpc/call_spec.h"
#include "server/rpc/handler.h"
#include "server/shared/shared_files.h"

namespace posenc::server {

// What a call may do with shared memory.
struct CallSharing {
  SharedFiles* files = nullptr;  // null: no memory is shared
  absl::Status allowed;          // SharedFiles::Allows() of its peer
  // A retry policy has sent the call before.
  bool repeated = false;
};

// What methods share. Outlives their handlers.
struct MethodContext {
  const Limits* limits;  // with defaults filled in
  RopeCache* cache;
  CallSharing sharing;
  // What the call's headers say, for `start` alone; null without a call.
  const CallHeaders* call = nullptr;
  // Of the request that is answered; null if it came in another form.
  const RopeBytes* ropes = nullptr;
};

struct Method : MethodTraits {
  // An error refuses the call at its headers.
  std::function<absl::StatusOr<std::unique_ptr<CallHandler>>(
      const MethodContext& context)>
      start;
  bool needs_token = true;  // where callers must show one
};

// The contract's.
absl::Span<const Method> Methods();

// Null if `name` is no RPC of the contract.
const Method* FindMethod(absl::string_view name);

// Each returns the handler of a new call.
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
