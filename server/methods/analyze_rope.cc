// AnalyzeRope returns an encoding's wavelengths, long-term decay and
// similarity.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "core/base/status_macros.h"
#include "core/rope/analyze.h"
#include "posenc/v1/service.pb.h"
#include "server/convert/rope.h"
#include "server/methods/methods.h"
#include "server/methods/rope_source.h"

namespace posenc::server {
namespace {

// Computing time of a tile: about a millisecond.
constexpr std::int64_t kTileNanoseconds = 1000000;

}  // namespace

absl::StatusOr<TensorAnswer> AnswerAnalyzeRope(
    const v1::AnalyzeRopeRequest& request, const MethodContext& /*context*/) {
  ASSIGN_OR_RETURN(
      const ComparedRopes ropes,
      ResolveCompared(
          request.rope(),
          request.has_compare_with() ? &request.compare_with() : nullptr,
          request.head_dim()));
  ASSIGN_OR_RETURN(
      core::RopeAnalyzer created,
      core::RopeAnalyzer::Create(
          ropes.rope, request.max_distance(), request.distance_step(),
          request.trained_length(), ropes.other ? &*ropes.other : nullptr));
  const auto analyzer =
      std::make_shared<core::RopeAnalyzer>(std::move(created));
  const std::int64_t distances = analyzer->distances();
  const std::int64_t nanoseconds =
      std::max<std::int64_t>(1, analyzer->Nanoseconds());
  const std::int64_t in_tile =
      std::max<std::int64_t>(1, kTileNanoseconds / nanoseconds);
  auto response = std::make_shared<v1::AnalyzeRopeResponse>();
  TensorAnswer answer;
  answer.computation = std::make_unique<TileFunction>(
      (distances + in_tile - 1) / in_tile,
      [analyzer, distances, in_tile](std::int64_t tile,
                                     absl::Span<const OutputBuffer> /*none*/,
                                     StopCheck /*stop*/) {
        const std::int64_t first = tile * in_tile;
        analyzer->Evaluate(first, std::min(in_tile, distances - first));
        return absl::OkStatus();
      },
      distances * nanoseconds);
  answer.complete = [analyzer, response = response.get()] {
    WriteAnalysis(analyzer->analysis(), response);
    return absl::OkStatus();
  };
  answer.response = std::move(response);
  return answer;
}

}  // namespace posenc::server
