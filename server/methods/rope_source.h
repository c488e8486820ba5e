// Resolves the rotary encodings of requests, with a cache for the calls that
// rotate.
//
// `field` is the request's field ("rope", "old_rope"), which prefixes errors.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/rope/frequencies.h"
#include "core/rope/prepared_rope.h"
#include "posenc/v1/rope.pb.h"
#include "posenc/v1/service.pb.h"
#include "server/methods/methods.h"

namespace posenc::server {

// Returns FieldRequired if there is no source. Does not check the source: that
// happens when it is resolved.
absl::Status CheckGiven(absl::string_view field, const v1::RopeSource& source);

// Checks an encoding by resolving it. Skips a specification without rotary_dim,
// because it takes its width from the first tensor.
absl::Status CheckResolves(absl::string_view field,
                           const v1::RopeSource& source);

// The encoding to explain, and the one to compare it with.
struct ComparedRopes {
  core::ResolvedRope rope;
  absl::optional<core::ResolvedRope> other;
};

// Resolves the fields "rope" and "compare_with" (null: not given) with the
// field "head_dim" (0: not given). A scaling that needs a length takes the
// original one. An error names all wrong fields, and that of `more`.
absl::StatusOr<ComparedRopes> ResolveCompared(
    const v1::RopeSource& rope, const v1::RopeSource* compare_with,
    std::int32_t head_dim, const absl::Status& more = absl::OkStatus());

// Returns an encoding's key in the cache: its unparsed bytes in `ropes`, if
// `ropes` has them.
std::string CacheKey(absl::string_view field, const v1::RopeSource& source,
                     std::int64_t head_dim, const RopeBytes* ropes);

// Returns a lookup in the cache by the unparsed bytes of `field`; it resolves
// `source` if needed. CheckGiven has accepted `source`; it and the context's
// objects outlive the result. Errors are relative to RopeSource.
core::RopeLookup CachedLookup(absl::string_view field,
                              const v1::RopeSource& source,
                              const MethodContext& context);

// Returns whether resolving the source takes half a millisecond or more: its
// width or its configuration is larger than that of any model. The largest take
// 20 and 70 ms, too long for a thread that serves connections. head_dim: the
// request's, for a source without a width.
bool ResolvesLong(const v1::RopeSource& source, std::int64_t head_dim = 0);

// These return whether the answer to a request takes half a millisecond or more
// although its message is small: by default, if its encodings resolve long.
bool TakesLong(const v1::ResolveRopeRequest& request);
inline bool TakesLong(const v1::AnalyzeRopeRequest& request) {
  return ResolvesLong(request.rope(), request.head_dim()) ||
         ResolvesLong(request.compare_with(), request.head_dim());
}
inline bool TakesLong(const v1::DiagnoseRopeRequest& /*request*/) {
  return true;  // about ten readers of each configuration are compared
}
template <typename Request>
bool TakesLong(const Request& request) {
  if constexpr (requires { request.old_rope(); }) {
    return ResolvesLong(request.old_rope()) || ResolvesLong(request.new_rope());
  } else if constexpr (requires { request.rope(); }) {
    return ResolvesLong(request.rope());
  } else if constexpr (requires { request.vision().rope(); }) {
    return ResolvesLong(request.vision().rope());
  } else {
    return false;
  }
}

// Returns FieldRequired if no layout is given.
absl::Status CheckLayout(v1::Layout layout);

}  // namespace posenc::server
