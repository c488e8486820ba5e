// AnalyzeRope returns an encoding's wavelengths, long-term decay and
// similarity.

#include <algorithm>
#include <cstdint>
#include <memory>

#include "core/error.h"
#include "core/rope/analyze.h"
#include "posenc/v1/service.pb.h"
#include "server/convert/rope.h"
#include "server/methods/methods.h"
#include "server/methods/rope_source.h"
#include "server/methods/unary.h"

namespace posenc::server {
namespace {

using Request = v1::AnalyzeRopeRequest;

absl::Status Answer(const Request& request, const MethodContext& /*context*/,
                    StopCheck stop, v1::AnalyzeRopeResponse* response) {
  core::Faults faults;
  faults.Note(CheckHeadDim(request.head_dim()));
  faults.Note(CheckGiven("rope", request.has_rope(), request.rope()));
  if (!faults.none()) return faults.status();
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

// Each distance takes sines and cosines of about 64 pairs, as much time as
// moving 1 KiB.
std::size_t Work(const Request& request) {
  constexpr std::int64_t kBytesPerDistance = 1024;
  const std::int64_t step = std::max<std::int64_t>(1, request.distance_step());
  return kBytesPerDistance * (request.has_compare_with() ? 3 : 1) *
         std::clamp<std::int64_t>(request.max_distance() / step, 0,
                                  core::kMaxDistances);
}

}  // namespace

std::unique_ptr<CallHandler> StartAnalyzeRope(const MethodContext& context) {
  return StartMessageCall<Request, v1::AnalyzeRopeResponse, Answer, Work>(
      context);
}

}  // namespace posenc::server
