#include "server/convert/positions.h"

#include <utility>

#include "core/base/error.h"
#include "core/interpretation/config.h"
#include "server/convert/fields.h"
#include "server/convert/rope.h"

namespace posenc::server {
namespace {

core::MultimodalScheme ReadMultimodal(const v1::MultimodalPositions& in) {
  core::MultimodalScheme out;
  for (const v1::MultimodalPositions::Span& span : in.spans()) {
    switch (span.content_case()) {
      case v1::MultimodalPositions::Span::CONTENT_NOT_SET:
        out.spans.emplace_back();
        break;
      case v1::MultimodalPositions::Span::kTextTokens:
        out.spans.emplace_back(std::int64_t{span.text_tokens()});
        break;
      case v1::MultimodalPositions::Span::kVision: {
        const v1::MultimodalPositions::VisionGrid& vision = span.vision();
        out.spans.emplace_back(core::VisionGrid{
            vision.time(), vision.height(), vision.width(),
            vision.spatial_merge_size(),
            Optional(vision.has_time_step(), vision.time_step())});
        break;
      }
    }
  }
  return out;
}

absl::StatusOr<core::PositionScheme> ReadVision(const v1::VisionPositions& in) {
  if (!in.has_rope()) {
    return core::FieldRequired("vision.rope",
                               "not set; give the preset or config_json that "
                               "has the tower");
  }
  if (in.merge_size() < 0) {
    return core::FieldInvalid("vision.merge_size", in.merge_size(),
                              "; must not be negative");
  }
  absl::StatusOr<core::TowerGrid> tower =
      core::interpretation::ResolveTowerGrid(ReadRopeSource(in.rope()));
  if (!tower.ok()) return core::Prefixed("vision.rope", tower.status());
  core::VisionScheme out;
  out.tower = *std::move(tower);
  out.text_tokens = in.text_tokens();
  if (in.merge_size() > 0) out.tower.merge_size = in.merge_size();
  for (const v1::VisionPositions::Grid& grid : in.grids()) {
    out.grids.push_back(
        {grid.time() == 0 ? 1 : grid.time(), grid.height(), grid.width()});
  }
  return out;
}

}  // namespace

absl::StatusOr<core::Positions> ReadPositions(const v1::Positions& positions,
                                              OwnedElements* owned) {
  switch (positions.kind_case()) {
    case v1::Positions::KIND_NOT_SET:
      break;
    case v1::Positions::kStart:
      return core::StartPosition{positions.start()};
    case v1::Positions::kStarts:
      return core::SequenceStarts{ToVector(positions.starts().values())};
    case v1::Positions::kIds: {
      absl::StatusOr<core::ConstTensorView> ids =
          ReadView(positions.ids(), owned);
      if (!ids.ok()) return core::Prefixed("ids", ids.status());
      return core::PositionIds{*std::move(ids)};
    }
    case v1::Positions::kPacked:
      return core::PackedSequences{ToVector(positions.packed().cu_seqlens()),
                                   ToVector(positions.packed().starts())};
  }
  return core::Positions();
}

absl::StatusOr<core::PositionScheme> ReadScheme(
    const v1::BuildPositionsRequest& request) {
  switch (request.scheme_case()) {
    case v1::BuildPositionsRequest::SCHEME_NOT_SET:
      break;
    case v1::BuildPositionsRequest::kPacked:
      return core::PackedScheme{ToVector(request.packed().lengths())};
    case v1::BuildPositionsRequest::kPadded: {
      const v1::PaddedPositions& in = request.padded();
      return core::PaddedScheme{ToVector(in.lengths()), in.padded_length(),
                                in.left(), in.padding_position()};
    }
    case v1::BuildPositionsRequest::kContextParallel: {
      const v1::ContextParallelPositions& in = request.context_parallel();
      return core::ContextParallelScheme{ToVector(in.lengths()), in.size(),
                                         in.rank()};
    }
    case v1::BuildPositionsRequest::kGrid: {
      const v1::GridPositions& in = request.grid();
      return core::GridScheme{ToVector(in.extents()), ToVector(in.offsets()),
                              ToVector(in.steps()), in.merge_size()};
    }
    case v1::BuildPositionsRequest::kMultimodal:
      return ReadMultimodal(request.multimodal());
    case v1::BuildPositionsRequest::kAttentionSinks: {
      const v1::AttentionSinkPositions& in = request.attention_sinks();
      return core::AttentionSinkScheme{in.sinks(), in.window(), in.length()};
    }
    case v1::BuildPositionsRequest::kVision:
      return ReadVision(request.vision());
  }
  return core::PositionScheme();
}

}  // namespace posenc::server
