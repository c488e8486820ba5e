#include "server/convert/rope.h"

#include <utility>

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "server/convert/fields.h"

namespace posenc::server {
namespace {

core::YarnScaling ReadYarn(const v1::YarnScaling& in) {
  core::YarnScaling out;
  out.factor = in.factor();
  out.original_max_position_embeddings = in.original_max_position_embeddings();
  out.beta_fast = Optional(in.has_beta_fast(), in.beta_fast());
  out.beta_slow = Optional(in.has_beta_slow(), in.beta_slow());
  out.attention_factor =
      Optional(in.has_attention_factor(), in.attention_factor());
  out.mscale = Optional(in.has_mscale(), in.mscale());
  out.mscale_all_dim = Optional(in.has_mscale_all_dim(), in.mscale_all_dim());
  if (in.has_truncate()) out.truncate = in.truncate();
  return out;
}

core::LongRopeScaling ReadLongRope(const v1::LongRopeScaling& in) {
  core::LongRopeScaling out;
  out.short_factor = ToVector(in.short_factor());
  out.long_factor = ToVector(in.long_factor());
  out.original_max_position_embeddings = in.original_max_position_embeddings();
  out.factor = Optional(in.has_factor(), in.factor());
  out.attention_factor =
      Optional(in.has_attention_factor(), in.attention_factor());
  out.short_mscale = Optional(in.has_short_mscale(), in.short_mscale());
  out.long_mscale = Optional(in.has_long_mscale(), in.long_mscale());
  return out;
}

void ReadScaling(const v1::RopeSpec& in, core::RopeSpec* out) {
  switch (in.scaling_case()) {
    case v1::RopeSpec::SCALING_NOT_SET:
      break;
    case v1::RopeSpec::kLinear:
      out->scaling = core::LinearScaling{in.linear().factor()};
      break;
    case v1::RopeSpec::kNtk:
      out->scaling = core::NtkScaling{in.ntk().factor()};
      break;
    case v1::RopeSpec::kDynamicNtk:
      out->scaling =
          core::DynamicNtkScaling{in.dynamic_ntk().factor(),
                                  in.dynamic_ntk().max_position_embeddings()};
      break;
    case v1::RopeSpec::kYarn:
      out->scaling = ReadYarn(in.yarn());
      break;
    case v1::RopeSpec::kLongrope:
      out->scaling = ReadLongRope(in.longrope());
      break;
    case v1::RopeSpec::kLlama3:
      out->scaling = core::Llama3Scaling{
          in.llama3().factor(), in.llama3().low_freq_factor(),
          in.llama3().high_freq_factor(),
          in.llama3().original_max_position_embeddings()};
      break;
    case v1::RopeSpec::kProportional:
      out->scaling = core::ProportionalScaling{
          Optional(in.proportional().has_factor(), in.proportional().factor()),
          in.proportional().rotating_pairs()};
      break;
    case v1::RopeSpec::kExplicitFrequencies: {
      const v1::ExplicitFrequencies& given = in.explicit_frequencies();
      out->scaling = core::ExplicitFrequencies{ToVector(given.values()),
                                               given.heads(), given.axes()};
      break;
    }
  }
}

core::RopeSpec ReadSpec(const v1::RopeSpec& in) {
  core::RopeSpec out;
  out.rotary_dim = in.rotary_dim();
  out.slice = EnumOr(core::RotarySlice::kLeading, in.slice());
  out.rope_theta = Optional(in.has_rope_theta(), in.rope_theta());
  out.pairing = static_cast<core::Pairing>(in.pairing());
  out.output_pairing = static_cast<core::Pairing>(in.output_pairing());
  out.attention_factor = Optional(in.has_amplitude(), in.amplitude());
  out.reverse = in.reverse();
  out.angle_precision =
      EnumOr(core::AnglePrecision::kExact, in.angle_precision());
  if (in.has_axes()) {
    const v1::RotaryAxes& axes = in.axes();
    out.axes = {static_cast<core::AxisAssignment>(axes.assignment()),
                ToVector(axes.sections()), ToVector(axes.axis_thetas()),
                axes.halves_per_axis(), ToVector(axes.position_axes())};
  }
  if (in.has_xpos()) {
    const v1::XPos& xpos = in.xpos();
    out.xpos = {Optional(xpos.has_scale_base(), xpos.scale_base()),
                Optional(xpos.has_gamma(), xpos.gamma()), xpos.center()};
  }
  out.nope = in.nope();
  ReadScaling(in, &out);
  return out;
}

void WriteScaling(const core::LinearScaling& in, v1::RopeSpec* out) {
  out->mutable_linear()->set_factor(in.factor);
}
void WriteScaling(const core::NtkScaling& in, v1::RopeSpec* out) {
  out->mutable_ntk()->set_factor(in.factor);
}
void WriteScaling(const core::DynamicNtkScaling& in, v1::RopeSpec* out) {
  out->mutable_dynamic_ntk()->set_factor(in.factor);
  out->mutable_dynamic_ntk()->set_max_position_embeddings(
      in.max_position_embeddings);
}
void WriteScaling(const core::YarnScaling& in, v1::RopeSpec* out) {
  v1::YarnScaling* const yarn = out->mutable_yarn();
  yarn->set_factor(in.factor);
  yarn->set_original_max_position_embeddings(
      in.original_max_position_embeddings);
  if (in.beta_fast) yarn->set_beta_fast(*in.beta_fast);
  if (in.beta_slow) yarn->set_beta_slow(*in.beta_slow);
  if (in.attention_factor) yarn->set_attention_factor(*in.attention_factor);
  if (in.mscale) yarn->set_mscale(*in.mscale);
  if (in.mscale_all_dim) yarn->set_mscale_all_dim(*in.mscale_all_dim);
  if (in.truncate) yarn->set_truncate(*in.truncate);
}
void WriteScaling(const core::LongRopeScaling& in, v1::RopeSpec* out) {
  v1::LongRopeScaling* const longrope = out->mutable_longrope();
  Append(in.short_factor, longrope->mutable_short_factor());
  Append(in.long_factor, longrope->mutable_long_factor());
  longrope->set_original_max_position_embeddings(
      in.original_max_position_embeddings);
  if (in.factor) longrope->set_factor(*in.factor);
  if (in.attention_factor) longrope->set_attention_factor(*in.attention_factor);
  if (in.short_mscale) longrope->set_short_mscale(*in.short_mscale);
  if (in.long_mscale) longrope->set_long_mscale(*in.long_mscale);
}
void WriteScaling(const core::Llama3Scaling& in, v1::RopeSpec* out) {
  v1::Llama3Scaling* const llama3 = out->mutable_llama3();
  llama3->set_factor(in.factor);
  llama3->set_low_freq_factor(in.low_freq_factor);
  llama3->set_high_freq_factor(in.high_freq_factor);
  llama3->set_original_max_position_embeddings(
      in.original_max_position_embeddings);
}
void WriteScaling(const core::ProportionalScaling& in, v1::RopeSpec* out) {
  if (in.factor) out->mutable_proportional()->set_factor(*in.factor);
  out->mutable_proportional()->set_rotating_pairs(in.rotating_pairs);
}
void WriteScaling(const core::ExplicitFrequencies& in, v1::RopeSpec* out) {
  v1::ExplicitFrequencies* const given = out->mutable_explicit_frequencies();
  Append(in.values, given->mutable_values());
  given->set_heads(in.heads);
  if (in.axes > 1) given->set_axes(in.axes);
}
void WriteScaling(std::monostate, v1::RopeSpec*) {}

void WriteSpec(const core::RopeSpec& in, v1::RopeSpec* out) {
  if (in.nope) {
    out->set_nope(true);  // excludes all other fields
    return;
  }
  out->set_rotary_dim(in.rotary_dim);
  out->set_slice(static_cast<v1::RotarySlice>(in.slice));
  if (in.rope_theta) out->set_rope_theta(*in.rope_theta);
  out->set_pairing(static_cast<v1::Pairing>(in.pairing));
  out->set_output_pairing(static_cast<v1::Pairing>(in.output_pairing));
  if (in.attention_factor) out->set_amplitude(*in.attention_factor);
  out->set_reverse(in.reverse);
  out->set_angle_precision(static_cast<v1::AnglePrecision>(in.angle_precision));
  if (in.axes) {
    v1::RotaryAxes* const axes = out->mutable_axes();
    axes->set_assignment(
        static_cast<v1::RotaryAxes::Assignment>(in.axes->assignment));
    Append(in.axes->sections, axes->mutable_sections());
    Append(in.axes->axis_thetas, axes->mutable_axis_thetas());
    axes->set_halves_per_axis(in.axes->halves_per_axis);
    Append(in.axes->position_axes, axes->mutable_position_axes());
  }
  if (in.xpos) {
    v1::XPos* const xpos = out->mutable_xpos();
    if (in.xpos->scale_base) xpos->set_scale_base(*in.xpos->scale_base);
    if (in.xpos->gamma) xpos->set_gamma(*in.xpos->gamma);
    xpos->set_center(in.xpos->center);
  }
  std::visit([out](const auto& scaling) { WriteScaling(scaling, out); },
             in.scaling);
}

}  // namespace

core::interpretation::RopeSource ReadRopeSource(const v1::RopeSource& source) {
  core::interpretation::RopeSource out;
  switch (source.source_case()) {
    case v1::RopeSource::SOURCE_NOT_SET:
      break;
    case v1::RopeSource::kSpec:
      out.source = ReadSpec(source.spec());
      break;
    case v1::RopeSource::kPreset:
      out.source = core::interpretation::PresetName{source.preset()};
      break;
    case v1::RopeSource::kConfigJson:
      out.source = core::interpretation::ConfigJson{source.config_json()};
      break;
  }
  out.profile = EnumOr(out.profile, source.profile());
  out.profile_version = source.profile_version();
  out.part = static_cast<core::interpretation::ModelPart>(source.part());
  if (source.has_layer_type()) out.layer_type = source.layer_type();
  if (source.has_layer_index()) out.layer_index = source.layer_index();
  if (source.has_sequence_length()) {
    out.sequence_length = source.sequence_length();
  }
  out.head_dim = source.head_dim();
  return out;
}

core::QueryScale ReadQueryScale(const v1::QueryScale& scale) {
  return {scale.beta(), scale.floor_scale(), scale.offset()};
}

absl::StatusOr<core::Movement> ReadMovement(const v1::Movement& movement,
                                            OwnedElements* owned) {
  core::Movement out;
  absl::StatusOr<core::Positions> read =
      ReadPositions(movement.old_positions(), owned);
  if (!read.ok()) return core::Prefixed("old_positions", read.status());
  out.old_positions = *std::move(read);
  switch (movement.target_case()) {
    case v1::Movement::TARGET_NOT_SET:
      break;
    case v1::Movement::kNewPositions:
      read = ReadPositions(movement.new_positions(), owned);
      if (!read.ok()) return core::Prefixed("new_positions", read.status());
      out.target = core::NewPositions{*std::move(read)};
      break;
    case v1::Movement::kShift:
      out.target = core::ShiftAll{movement.shift()};
      break;
    case v1::Movement::kShifts: {
      absl::StatusOr<core::ConstTensorView> shifts =
          ReadView(movement.shifts(), owned);
      if (!shifts.ok()) return core::Prefixed("shifts", shifts.status());
      out.target = core::TokenShifts{*std::move(shifts)};
      break;
    }
  }
  return out;
}

absl::StatusOr<core::CacheLayout> ReadCacheLayout(const v1::CacheLayout& cache,
                                                  OwnedElements* owned) {
  core::CacheLayout out;
  out.dimensions = cache.dimensions();
  out.lengths = ToVector(cache.lengths());
  out.layers.assign(cache.layers().begin(), cache.layers().end());
  out.model_layers.assign(cache.model_layers().begin(),
                          cache.model_layers().end());
  RETURN_IF_ERROR(ReadTensorFields(
      "", cache, {{"block_table", &out.block_table}, {"slots", &out.slots}},
      owned));
  return out;
}

core::ConvertPairingArgs ReadConvertPairing(
    const v1::ConvertPairingRequest& request) {
  return {static_cast<core::Pairing>(request.old_pairing()),
          static_cast<core::Pairing>(request.new_pairing()), request.heads(),
          request.rotary_dim(),
          EnumOr(core::RotarySlice::kLeading, request.slice())};
}

void WriteRope(const core::ResolvedRope& rope, const std::string& content_hash,
               v1::ResolveRopeResponse* response) {
  WriteSpec(rope.spec, response->mutable_spec());
  response->set_head_dim(static_cast<std::int32_t>(rope.head_dim));
  Append(rope.inv_freq, response->mutable_inv_freq());
  Append(rope.axis_of_pair, response->mutable_axis_of_pair());
  response->set_amplitude(rope.attention_factor);
  response->set_softmax_scale_multiplier(rope.softmax_scale_multiplier);
  if (rope.query_scale.has_value()) {
    v1::QueryScale* const scale = response->mutable_query_scale();
    scale->set_beta(rope.query_scale->beta);
    scale->set_floor_scale(rope.query_scale->floor_scale);
    scale->set_offset(rope.query_scale->offset);
  }
  for (const core::Assumption& from : rope.assumptions) {
    v1::Assumption* const to = response->add_assumptions();
    to->set_field(from.field);
    to->set_value(from.value);
    to->set_reason(from.reason);
  }
  for (const std::string& warning : rope.warnings) {
    response->add_warnings(warning);
  }
  response->set_content_hash(content_hash);
}

void WriteDifference(const core::interpretation::RopeDifference& difference,
                     v1::RopeDifference* out) {
  out->set_equal(difference.equal);
  out->set_max_relative_frequency_difference(
      difference.max_relative_frequency_difference);
  out->set_worst_pair(difference.worst_pair);
  out->set_amplitude_ratio(difference.attention_factor_ratio);
  out->set_first_diverging_position(difference.first_diverging_position);
  for (const std::string& explanation : difference.explanations) {
    out->add_explanations(explanation);
  }
  out->set_first_distance(difference.first_distance);
  out->set_kept_at_length(difference.kept_at_length);
  out->set_length(difference.length);
}

void WriteAnalysis(const core::RopeAnalysis& analysis,
                   v1::AnalyzeRopeResponse* response) {
  Append(analysis.wavelengths, response->mutable_wavelengths());
  Append(analysis.decay, response->mutable_decay());
  Append(analysis.similarity, response->mutable_similarity());
  Append(analysis.kept, response->mutable_kept());
  response->set_pairs_within_trained_length(
      analysis.pairs_within_trained_length);
}

}  // namespace posenc::server
