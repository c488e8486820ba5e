// Resolves the rotary encodings of requests. CachedLookup() and CachedLayers()
// use the cache.
//
// `field` is the request's field ("rope", "old_rope"). The fields of errors
// begin with this field.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/rope/frequencies.h"
#include "core/rope/prepared_rope.h"
#include "core/rotation/reposition.h"
#include "posenc/v1/rope.pb.h"
#include "posenc/v1/service.pb.h"
#include "server/methods/methods.h"

namespace posenc::server {

// Returns FieldRequired if there is no source. The source itself is checked
// when it is resolved.
absl::Status CheckGiven(absl::string_view field, const v1::RopeSource& source);

// Checks an encoding by resolving it. Skips a specification without rotary_dim,
// because such an encoding takes its width from the first tensor.
absl::Status CheckResolves(absl::string_view field,
                           const v1::RopeSource& source);

// The encoding to explain, and the encoding to compare it with.
struct ComparedRopes {
  core::ResolvedRope rope;
  absl::optional<core::ResolvedRope> other;
};

// Resolves the fields "rope" and "compare_with" (null: not given) with the
// field "head_dim" (0: not given). A scaling that needs a sequence length is
// resolved for the original length. An error names all wrong fields. `more` is
// an error of another field, which is reported together with these fields.
absl::StatusOr<ComparedRopes> ResolveCompared(
    const v1::RopeSource& rope, const v1::RopeSource* compare_with,
    std::int32_t head_dim, const absl::Status& more = absl::OkStatus());

// Returns an encoding's key in the cache.
std::string CacheKey(const v1::RopeSource& source, std::int64_t head_dim);

// Returns a function that finds the encoding in the cache, or resolves `source`
// if the cache does not have it. CheckGiven() must have accepted `source`.
// `source` and the context's objects must outlive the function. The fields of
// errors are relative to RopeSource.
core::RopeLookup CachedLookup(const v1::RopeSource& source,
                              const MethodContext& context);

// Returns a function that finds or resolves the encoding of a model's layer.
// `layers` is the number of layers for which the function will be called.
// Layers with equal encodings get the same object. Returns an error if the
// source chooses a layer itself, is a spec, or is too large to be read for each
// layer. If the context's `stop` returns an error, the function returns this
// error.
absl::StatusOr<core::LayerLookup> CachedLayers(absl::string_view field,
                                               const v1::RopeSource& source,
                                               int layers,
                                               const MethodContext& context);

// Returns whether resolving the source may take half a millisecond or more.
// Returns true if the width is larger than in any published model, or the
// configuration is longer than nearly all configurations. The largest width
// takes 20 ms, and the largest configuration 70 ms, which is too long for a
// thread that serves connections. `head_dim` is the request's field, for a
// source without a width.
bool ResolvesLong(const v1::RopeSource& source, std::int64_t head_dim = 0);

}  // namespace posenc::server
