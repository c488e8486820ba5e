// Rotary encodings of requests: from a RopeSource to a resolved encoding, by
// way of the cache for the calls that rotate.
//
// `field` is the request's field ("rope", "old_rope"), which prefixes errors;
// `given` says whether the request has it.

#pragma once

#include <cstdint>

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

// FieldRequired if there is no source. Costs nothing: whether the source is
// good is found when it is resolved.
absl::Status CheckGiven(absl::string_view field, bool given,
                        const v1::RopeSource& source);

// Resolves an encoding that needs no tensor for that. A specification without
// rotary_dim takes it from the first tensor, so it is left for later.
absl::Status CheckResolves(absl::string_view field, bool given,
                           const v1::RopeSource& source);

// Resolves an encoding. head_dim 0: not known.
absl::StatusOr<core::ResolvedRope> Resolve(absl::string_view field, bool given,
                                           const v1::RopeSource& source,
                                           std::int64_t head_dim,
                                           core::MissingLength missing_length);

// The encoding of a request that explains it, and the one to compare it with.
struct ComparedRopes {
  core::ResolvedRope rope;
  absl::optional<core::ResolvedRope> other;
};

// Resolves the fields "rope" and "compare_with" (null: not given), which have
// been checked with CheckGiven. A scaling that needs a length takes the
// original one. An error names both fields if both are wrong.
absl::StatusOr<ComparedRopes> ResolveCompared(
    const v1::RopeSource& rope, const v1::RopeSource* compare_with,
    std::int64_t head_dim);

// Looks `source` up in the cache by its bytes as they came in `field`, and
// resolves it if it is not there. `source` has been checked with CheckGiven;
// both outlive the result. Errors are relative to RopeSource.
core::RopeLookup CachedLookup(absl::string_view field,
                              const v1::RopeSource& source,
                              const MethodContext& context);

// Whether it takes half a millisecond and more to resolve the source: it has a
// width, or a configuration, that no model has. The largest take 20 and 70 ms,
// for which a thread that serves connections must not be kept.
// head_dim: the request's, which stands for a width that is not given.
bool ResolvesLong(const v1::RopeSource& source, std::int64_t head_dim = 0);

// The same of a request's encodings, if it has any.
template <typename Request>
bool ResolvesLong(const Request& request) {
  if constexpr (requires { request.old_rope(); }) {
    return ResolvesLong(request.old_rope()) || ResolvesLong(request.new_rope());
  } else if constexpr (requires {
                         request.rope();
                         request.head_dim();
                       }) {
    return ResolvesLong(request.rope(), request.head_dim());
  } else if constexpr (requires { request.rope(); }) {
    return ResolvesLong(request.rope());
  } else if constexpr (requires { request.vision().rope(); }) {
    return ResolvesLong(request.vision().rope());
  } else {
    return false;
  }
}

// INVALID_ARGUMENT if head_dim is negative.
absl::Status CheckHeadDim(std::int32_t head_dim);

// FieldRequired if no layout is given.
absl::Status CheckLayout(v1::Layout layout);

}  // namespace posenc::server
