#include "server/convert/positions.h"

#include <utility>

#include "core/error.h"
#include "server/convert/fields.h"

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

}  // namespace

absl::StatusOr<InputPositions> ReadPositions(const v1::Positions& positions) {
  InputPositions out;
  switch (positions.kind_case()) {
    case v1::Positions::KIND_NOT_SET:
      break;
    case v1::Positions::kStart:
      out.positions = core::StartPosition{positions.start()};
      break;
    case v1::Positions::kStarts:
      out.positions =
          core::SequenceStarts{ToVector(positions.starts().values())};
      break;
    case v1::Positions::kIds: {
      absl::StatusOr<InputTensor> ids = ReadTensor(positions.ids());
      if (!ids.ok()) return core::Prefixed("ids", ids.status());
      out.ids = *std::move(ids);
      out.positions = core::PositionIds{out.ids.view};
      break;
    }
    case v1::Positions::kPacked:
      out.positions =
          core::PackedSequences{ToVector(positions.packed().cu_seqlens()),
                                ToVector(positions.packed().starts())};
      break;
  }
  return out;
}

core::PositionScheme ReadScheme(const v1::BuildPositionsRequest& request) {
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
  }
  return {};
}

}  // namespace posenc::server
