// ResolveRope, ApplyRope, Reposition, ConvertPairing, AnalyzeRope.

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/rope/frequencies.h"
#include "posenc/v1/service.pb.h"
#include "server/calls/call.h"
#include "server/calls/rope_cache.h"

namespace posenc::server {

// The encoding in the field `field` of a request.
absl::StatusOr<core::ResolvedRope> ResolveField(
    absl::string_view field, bool given, const v1::RopeSource& source,
    std::int32_t head_dim, core::MissingLength missing_length);

absl::Status AnswerResolveRope(const v1::ResolveRopeRequest& request,
                               v1::ResolveRopeResponse* response);
absl::Status AnswerAnalyzeRope(const v1::AnalyzeRopeRequest& request,
                               StopCheck stop,
                               v1::AnalyzeRopeResponse* response);

// A cache may be null.
absl::StatusOr<TensorCall> PrepareApplyRope(const v1::ApplyRopeRequest& request,
                                            const TakenTensors& taken,
                                            RopeCache* cache);
absl::StatusOr<TensorCall> PrepareReposition(
    const v1::RepositionRequest& request, const TakenTensors& taken,
    RopeCache* cache);
// Whether the settings of a stream are good, before any tensor has come.
absl::Status CheckApplyRopeSettings(const v1::ApplyRopeRequest& request);
absl::Status CheckRepositionSettings(const v1::RepositionRequest& request);

absl::StatusOr<TensorCall> PrepareConvertPairing(
    const v1::ConvertPairingRequest& request, const TakenTensors& taken);

}  // namespace posenc::server
