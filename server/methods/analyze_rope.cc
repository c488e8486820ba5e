// AnalyzeRope returns an encoding's wavelengths, long-term decay and
// similarity.

#include <algorithm>
#include <cstdint>

#include "core/rope/analyze.h"
#include "posenc/v1/service.pb.h"
#include "server/convert/rope.h"
#include "server/methods/methods.h"
#include "server/methods/rope_source.h"

namespace posenc::server {

absl::Status AnswerAnalyzeRope(const v1::AnalyzeRopeRequest& request,
                               const MethodContext& /*context*/, StopCheck stop,
                               v1::AnalyzeRopeResponse* response) {
  const absl::StatusOr<ComparedRopes> ropes = ResolveCompared(
      request.rope(),
      request.has_compare_with() ? &request.compare_with() : nullptr,
      request.head_dim());
  if (!ropes.ok()) return ropes.status();
  absl::StatusOr<core::RopeAnalysis> analysis = core::AnalyzeRope(
      ropes->rope, request.max_distance(), request.distance_step(),
      request.trained_length(), [stop] { return stop(); },
      ropes->other ? &*ropes->other : nullptr);
  if (!analysis.ok()) return analysis.status();
  WriteAnalysis(*analysis, response);
  return absl::OkStatus();
}

// Each distance takes sines and cosines of about 64 pairs, which takes as long
// as moving 1 KiB. A loop's thread computes at most about 128 KiB.
bool TakesLong(const v1::AnalyzeRopeRequest& request) {
  constexpr std::int64_t kShort = 128;
  const std::int64_t step = std::max<std::int64_t>(1, request.distance_step());
  const std::int64_t distances =
      std::min<std::int64_t>(request.max_distance() / step, kShort + 1);
  return distances * (request.has_compare_with() ? 3 : 1) > kShort ||
         ResolvesLong(request.rope(), request.head_dim());
}

}  // namespace posenc::server
