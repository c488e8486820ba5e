#include "server/convert/relative.h"

#include "core/base/status_macros.h"
#include "server/convert/fields.h"

namespace posenc::server {
namespace {

std::optional<core::Dtype> ReadDtype(v1::Dtype dtype) {
  if (dtype == v1::DTYPE_UNSPECIFIED) return std::nullopt;
  return static_cast<core::Dtype>(dtype);
}

core::DebertaBuckets ReadDeberta(const v1::DebertaBuckets& in) {
  return {in.bucket_size(), in.max_position()};
}

core::Alibi ReadAlibi(const v1::Alibi& in) {
  return {in.heads(), Optional(in.has_max_bias(), in.max_bias()),
          ToVector(in.slopes())};
}

core::RelativeIndex ReadRelativeIndex(const v1::RelativeIndex& in) {
  core::RelativeIndex out;
  switch (in.rule_case()) {
    case v1::RelativeIndex::RULE_NOT_SET:
      break;
    case v1::RelativeIndex::kClip:
      out.rule = core::ClippedDistance{in.clip().left(), in.clip().right()};
      break;
    case v1::RelativeIndex::kDeberta:
      out.rule = ReadDeberta(in.deberta());
      break;
    case v1::RelativeIndex::kGrid:
      out.rule = core::GridIndex{ToVector(in.grid().extents())};
      break;
  }
  return out;
}

absl::Status ReadT5(const v1::T5Buckets& in, OwnedElements* owned,
                    core::Bias* out) {
  auto& bias = out->emplace<core::T5Bias>();
  bias.buckets = {in.num_buckets(), in.max_distance(), in.bidirectional()};
  return ReadTensorFields("bias.t5", in, {{"weights", &bias.weights}}, owned);
}

absl::Status ReadFire(const v1::Fire& in, OwnedElements* owned,
                      core::Bias* out) {
  auto& bias = out->emplace<core::Fire>();
  bias.c = in.c();
  bias.threshold = in.threshold();
  bias.epsilon = in.epsilon();
  return ReadTensorFields(
      "bias.fire", in,
      {{"w1", &bias.w1}, {"b1", &bias.b1}, {"w2", &bias.w2}, {"b2", &bias.b2}},
      owned);
}

absl::Status ReadUntied(const v1::UntiedPositions& in, OwnedElements* owned,
                        core::Bias* out) {
  auto& bias = out->emplace<core::UntiedPositions>();
  bias.scale = Optional(in.has_scale(), in.scale());
  return ReadTensorFields("bias.untied_positions", in,
                          {{"position_queries", &bias.position_queries},
                           {"position_keys", &bias.position_keys}},
                          owned);
}

absl::Status ReadBiasRule(const v1::Bias& in, OwnedElements* owned,
                          core::Bias* out) {
  switch (in.bias_case()) {
    case v1::Bias::BIAS_NOT_SET:
      break;
    case v1::Bias::kAlibi:
      *out = ReadAlibi(in.alibi());
      break;
    case v1::Bias::kT5:
      return ReadT5(in.t5(), owned, out);
    case v1::Bias::kKerple:
      *out =
          core::Kerple{static_cast<core::KerpleKernel>(in.kerple().kernel()),
                       ToVector(in.kerple().r1()), ToVector(in.kerple().r2())};
      break;
    case v1::Bias::kFire:
      return ReadFire(in.fire(), owned, out);
    case v1::Bias::kSandwich:
      *out = core::Sandwich{in.sandwich().heads(), in.sandwich().dim()};
      break;
    case v1::Bias::kRelativeIndex:
      *out = ReadRelativeIndex(in.relative_index());
      break;
    case v1::Bias::kUntiedPositions:
      return ReadUntied(in.untied_positions(), owned, out);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<core::BiasArgs> ReadBias(const v1::BuildBiasRequest& request,
                                        OwnedElements* owned) {
  core::BiasArgs out;
  RETURN_IF_ERROR(ReadBiasRule(request.bias(), owned, &out.bias));
  out.range = {request.query_start(), request.query_length(),
               request.key_start(), request.key_length()};
  out.dtype = ReadDtype(request.dtype());
  out.causal = request.causal();
  return out;
}

absl::StatusOr<core::ScoreArgs> ReadScore(
    const v1::ScoreRelativeRequest& request, OwnedElements* owned) {
  core::ScoreArgs out;
  const v1::RelativeScore& in = request.score();
  switch (in.score_case()) {
    case v1::RelativeScore::SCORE_NOT_SET:
      break;
    case v1::RelativeScore::kShaw: {
      auto& score = out.score.emplace<core::ShawScore>();
      score.left = Optional(in.shaw().has_left(), in.shaw().left());
      RETURN_IF_ERROR(ReadTensorFields(
          "score.shaw", in.shaw(), {{"key_table", &score.key_table}}, owned));
      break;
    }
    case v1::RelativeScore::kTransformerXl: {
      auto& score = out.score.emplace<core::TransformerXlScore>();
      score.clamp_distance = in.transformer_xl().clamp_distance();
      RETURN_IF_ERROR(ReadTensorFields(
          "score.transformer_xl", in.transformer_xl(),
          {{"u", &score.u}, {"v", &score.v}, {"r", &score.r}}, owned));
      break;
    }
    case v1::RelativeScore::kDeberta: {
      const v1::DebertaScore& deberta = in.deberta();
      auto& score = out.score.emplace<core::DebertaScore>();
      score.buckets = ReadDeberta(deberta.buckets());
      score.paper_position_to_content = deberta.paper_position_to_content();
      RETURN_IF_ERROR(
          ReadTensorFields("score.deberta", deberta,
                           {{"position_keys", &score.position_keys},
                            {"position_queries", &score.position_queries}},
                           owned));
      break;
    }
  }
  out.query_start = request.query_start();
  out.key_start = request.key_start();
  out.dtype = ReadDtype(request.dtype());
  return out;
}

}  // namespace posenc::server
