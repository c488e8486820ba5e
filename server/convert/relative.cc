#include "server/convert/relative.h"

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "server/convert/fields.h"

namespace posenc::server {
namespace {

// Reads the tensors of one encoding, and collects their faults.
class TensorFields {
 public:
  TensorFields(absl::string_view encoding, InputTensors* tensors)
      : encoding_(encoding), tensors_(tensors) {}

  TensorFields& Read(absl::string_view field, bool given,
                     const v1::Tensor& tensor,
                     std::optional<core::ConstTensorView>* view) {
    faults_.Note(ReadTensorField(absl::StrCat(encoding_, ".", field), given,
                                 tensor, tensors_, view));
    return *this;
  }
  absl::Status status() const { return faults_.status(); }

 private:
  const absl::string_view encoding_;
  InputTensors* const tensors_;
  core::Faults faults_;
};

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

absl::Status ReadT5(const v1::T5Buckets& in, InputTensors* tensors,
                    core::Bias* out) {
  core::T5Bias bias;
  bias.buckets = {in.num_buckets(), in.max_distance(), in.bidirectional()};
  const absl::Status read =
      TensorFields("bias.t5", tensors)
          .Read("weights", in.has_weights(), in.weights(), &bias.weights)
          .status();
  *out = bias;
  return read;
}

absl::Status ReadFire(const v1::Fire& in, InputTensors* tensors,
                      core::Bias* out) {
  core::Fire bias;
  bias.c = in.c();
  bias.threshold = in.threshold();
  bias.epsilon = in.epsilon();
  const absl::Status read = TensorFields("bias.fire", tensors)
                                .Read("w1", in.has_w1(), in.w1(), &bias.w1)
                                .Read("b1", in.has_b1(), in.b1(), &bias.b1)
                                .Read("w2", in.has_w2(), in.w2(), &bias.w2)
                                .Read("b2", in.has_b2(), in.b2(), &bias.b2)
                                .status();
  *out = bias;
  return read;
}

absl::Status ReadUntied(const v1::UntiedPositions& in, InputTensors* tensors,
                        core::Bias* out) {
  core::UntiedPositions bias;
  bias.scale = Optional(in.has_scale(), in.scale());
  const absl::Status read =
      TensorFields("bias.untied_positions", tensors)
          .Read("position_queries", in.has_position_queries(),
                in.position_queries(), &bias.position_queries)
          .Read("position_keys", in.has_position_keys(), in.position_keys(),
                &bias.position_keys)
          .status();
  *out = bias;
  return read;
}

absl::Status ReadBiasRule(const v1::Bias& in, InputTensors* tensors,
                          core::Bias* out) {
  switch (in.bias_case()) {
    case v1::Bias::BIAS_NOT_SET:
      break;
    case v1::Bias::kAlibi:
      *out = ReadAlibi(in.alibi());
      break;
    case v1::Bias::kT5:
      return ReadT5(in.t5(), tensors, out);
    case v1::Bias::kKerple:
      *out =
          core::Kerple{static_cast<core::KerpleKernel>(in.kerple().kernel()),
                       ToVector(in.kerple().r1()), ToVector(in.kerple().r2())};
      break;
    case v1::Bias::kFire:
      return ReadFire(in.fire(), tensors, out);
    case v1::Bias::kSandwich:
      *out = core::Sandwich{in.sandwich().heads(), in.sandwich().dim()};
      break;
    case v1::Bias::kRelativeIndex:
      *out = ReadRelativeIndex(in.relative_index());
      break;
    case v1::Bias::kUntiedPositions:
      return ReadUntied(in.untied_positions(), tensors, out);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<InputBias> ReadBias(const v1::BuildBiasRequest& request) {
  InputBias out;
  RETURN_IF_ERROR(ReadBiasRule(request.bias(), &out.tensors, &out.args.bias));
  out.args.range = {request.query_start(), request.query_length(),
                    request.key_start(), request.key_length()};
  out.args.dtype = ReadDtype(request.dtype());
  out.args.causal = request.causal();
  return out;
}

absl::StatusOr<InputScore> ReadScore(const v1::ScoreRelativeRequest& request) {
  InputScore out;
  absl::Status read;
  const v1::RelativeScore& in = request.score();
  switch (in.score_case()) {
    case v1::RelativeScore::SCORE_NOT_SET:
      break;
    case v1::RelativeScore::kShaw: {
      const v1::ShawScore& shaw = in.shaw();
      core::ShawScore score;
      score.left = Optional(shaw.has_left(), shaw.left());
      read = TensorFields("score.shaw", &out.tensors)
                 .Read("key_table", shaw.has_key_table(), shaw.key_table(),
                       &score.key_table)
                 .status();
      out.args.score = score;
      break;
    }
    case v1::RelativeScore::kTransformerXl: {
      const v1::TransformerXlScore& xl = in.transformer_xl();
      core::TransformerXlScore score;
      score.clamp_distance = xl.clamp_distance();
      read = TensorFields("score.transformer_xl", &out.tensors)
                 .Read("u", xl.has_u(), xl.u(), &score.u)
                 .Read("v", xl.has_v(), xl.v(), &score.v)
                 .Read("r", xl.has_r(), xl.r(), &score.r)
                 .status();
      out.args.score = score;
      break;
    }
    case v1::RelativeScore::kDeberta: {
      const v1::DebertaScore& deberta = in.deberta();
      core::DebertaScore score;
      score.buckets = ReadDeberta(deberta.buckets());
      score.paper_position_to_content = deberta.paper_position_to_content();
      read = TensorFields("score.deberta", &out.tensors)
                 .Read("position_keys", deberta.has_position_keys(),
                       deberta.position_keys(), &score.position_keys)
                 .Read("position_queries", deberta.has_position_queries(),
                       deberta.position_queries(), &score.position_queries)
                 .status();
      out.args.score = score;
      break;
    }
  }
  if (!read.ok()) return read;
  out.args.query_start = request.query_start();
  out.args.key_start = request.key_start();
  out.args.dtype = ReadDtype(request.dtype());
  return out;
}

}  // namespace posenc::server
