#include "server/convert.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/error.h"

namespace posenc::server {
namespace {

// The contract's limit on elements that are written out.
constexpr int kMaxValues = 65536;

std::string ToString(absl::uint128 value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

std::size_t VarintBytes(std::uint64_t value) {
  std::size_t bytes = 1;
  for (; value >= 0x80; value >>= 7) ++bytes;
  return bytes;
}

// Of a length-delimited field whose number is below 16.
absl::uint128 FieldBytes(absl::uint128 length) {
  return 1 + VarintBytes(absl::Uint128Low64(length)) + length;
}

template <typename Repeated>
auto ToVector(const Repeated& values) {
  return std::vector<typename Repeated::value_type>(values.begin(),
                                                    values.end());
}

absl::Status CheckInteger(double value, core::Dtype dtype, int index) {
  const double limit =
      dtype == core::Dtype::kInt32 ? 2147483648.0 : 9223372036854775808.0;
  const std::string field = absl::StrCat("values[", index, "]");
  const std::string number = absl::StrFormat("%.17g", value);
  if (!(value == std::trunc(value))) {
    return core::FieldInvalid(
        field, absl::StrCat(number, " is not an integer; ",
                            core::DtypeName(dtype), " takes integers only"));
  }
  if (!(value >= -limit && value < limit)) {
    return core::FieldInvalid(
        field, absl::StrCat(number, " does not fit ", core::DtypeName(dtype)));
  }
  return absl::OkStatus();
}

absl::Status SizeMismatch(absl::string_view field, core::Dtype dtype,
                          const core::Shape& shape, absl::uint128 expected,
                          absl::uint128 actual, absl::string_view fact) {
  return core::MakeError(
      absl::StatusCode::kInvalidArgument,
      core::ErrorReason::kTensorSizeMismatch, field,
      absl::StrCat(fact, "; shape ", core::ShapeToString(shape), " of ",
                   core::DtypeName(dtype), " takes ", ToString(expected),
                   " bytes"),
      {{"expectedBytes", ToString(expected)},
       {"actualBytes", ToString(actual)}});
}

std::optional<double> Optional(bool has, double value) {
  return has ? std::optional<double>(value) : std::nullopt;
}

core::RopeSpec ReadSpec(const v1::RopeSpec& in) {
  core::RopeSpec out;
  out.rotary_dim = in.rotary_dim();
  out.slice = in.slice() == v1::ROTARY_SLICE_TRAILING
                  ? core::RotarySlice::kTrailing
                  : core::RotarySlice::kLeading;
  out.rope_theta = Optional(in.has_rope_theta(), in.rope_theta());
  out.pairing = static_cast<core::Pairing>(in.pairing());
  out.output_pairing = static_cast<core::Pairing>(in.output_pairing());
  out.amplitude = Optional(in.has_amplitude(), in.amplitude());
  out.reverse = in.reverse();
  out.angle_precision = in.angle_precision() == v1::ANGLE_PRECISION_FLOAT32
                            ? core::AnglePrecision::kFloat32
                            : core::AnglePrecision::kExact;
  if (in.has_axes()) {
    const v1::RotaryAxes& axes = in.axes();
    out.axes = {static_cast<core::AxisAssignment>(axes.assignment()),
                ToVector(axes.sections()), ToVector(axes.axis_thetas()),
                axes.halves_per_axis()};
  }
  if (in.has_xpos()) {
    const v1::XPos& xpos = in.xpos();
    out.xpos = {Optional(xpos.has_scale_base(), xpos.scale_base()),
                Optional(xpos.has_gamma(), xpos.gamma()), xpos.center()};
  }
  out.nope = in.nope();
  switch (in.scaling_case()) {
    case v1::RopeSpec::SCALING_NOT_SET:
      break;
    case v1::RopeSpec::kLinear:
      out.scaling = core::LinearScaling{in.linear().factor()};
      break;
    case v1::RopeSpec::kNtk:
      out.scaling = core::NtkScaling{in.ntk().factor()};
      break;
    case v1::RopeSpec::kDynamicNtk:
      out.scaling =
          core::DynamicNtkScaling{in.dynamic_ntk().factor(),
                                  in.dynamic_ntk().max_position_embeddings()};
      break;
    case v1::RopeSpec::kYarn: {
      const v1::YarnScaling& yarn = in.yarn();
      core::YarnScaling to;
      to.factor = yarn.factor();
      to.original_max_position_embeddings =
          yarn.original_max_position_embeddings();
      to.beta_fast = Optional(yarn.has_beta_fast(), yarn.beta_fast());
      to.beta_slow = Optional(yarn.has_beta_slow(), yarn.beta_slow());
      to.attention_factor =
          Optional(yarn.has_attention_factor(), yarn.attention_factor());
      to.mscale = Optional(yarn.has_mscale(), yarn.mscale());
      to.mscale_all_dim =
          Optional(yarn.has_mscale_all_dim(), yarn.mscale_all_dim());
      if (yarn.has_truncate()) to.truncate = yarn.truncate();
      out.scaling = to;
      break;
    }
    case v1::RopeSpec::kLongrope: {
      const v1::LongRopeScaling& longrope = in.longrope();
      core::LongRopeScaling to;
      to.short_factor = ToVector(longrope.short_factor());
      to.long_factor = ToVector(longrope.long_factor());
      to.original_max_position_embeddings =
          longrope.original_max_position_embeddings();
      to.factor = Optional(longrope.has_factor(), longrope.factor());
      to.attention_factor = Optional(longrope.has_attention_factor(),
                                     longrope.attention_factor());
      to.short_mscale =
          Optional(longrope.has_short_mscale(), longrope.short_mscale());
      to.long_mscale =
          Optional(longrope.has_long_mscale(), longrope.long_mscale());
      out.scaling = std::move(to);
      break;
    }
    case v1::RopeSpec::kLlama3:
      out.scaling = core::Llama3Scaling{
          in.llama3().factor(), in.llama3().low_freq_factor(),
          in.llama3().high_freq_factor(),
          in.llama3().original_max_position_embeddings()};
      break;
    case v1::RopeSpec::kProportional:
      out.scaling = core::ProportionalScaling{
          Optional(in.proportional().has_factor(), in.proportional().factor()),
          in.proportional().rotating_pairs()};
      break;
    case v1::RopeSpec::kExplicitFrequencies: {
      const v1::ExplicitFrequencies& given = in.explicit_frequencies();
      out.scaling = core::ExplicitFrequencies{ToVector(given.values()),
                                              given.heads(), given.axes()};
      break;
    }
  }
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
  longrope->mutable_short_factor()->Add(in.short_factor.begin(),
                                        in.short_factor.end());
  longrope->mutable_long_factor()->Add(in.long_factor.begin(),
                                       in.long_factor.end());
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
  given->mutable_values()->Add(in.values.begin(), in.values.end());
  given->set_heads(in.heads);
  given->set_axes(in.axes);
}
void WriteScaling(std::monostate, v1::RopeSpec*) {}

void WriteSpec(const core::RopeSpec& in, v1::RopeSpec* out) {
  if (in.nope) {
    out->set_nope(true);  // excludes every other field
    return;
  }
  out->set_rotary_dim(in.rotary_dim);
  out->set_slice(static_cast<v1::RotarySlice>(in.slice));
  if (in.rope_theta) out->set_rope_theta(*in.rope_theta);
  out->set_pairing(static_cast<v1::Pairing>(in.pairing));
  out->set_output_pairing(static_cast<v1::Pairing>(in.output_pairing));
  if (in.amplitude) out->set_amplitude(*in.amplitude);
  out->set_reverse(in.reverse);
  out->set_angle_precision(static_cast<v1::AnglePrecision>(in.angle_precision));
  if (in.axes) {
    v1::RotaryAxes* const axes = out->mutable_axes();
    axes->set_assignment(
        static_cast<v1::RotaryAxes::Assignment>(in.axes->assignment));
    axes->mutable_sections()->Add(in.axes->sections.begin(),
                                  in.axes->sections.end());
    axes->mutable_axis_thetas()->Add(in.axes->axis_thetas.begin(),
                                     in.axes->axis_thetas.end());
    axes->set_halves_per_axis(in.axes->halves_per_axis);
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

absl::StatusOr<InputTensor> ReadTensor(const v1::Tensor& tensor) {
  if (tensor.dtype() == v1::DTYPE_UNSPECIFIED) {
    return core::FieldRequired("dtype", "not given; every tensor needs one");
  }
  InputTensor out;
  out.view.dtype = static_cast<core::Dtype>(tensor.dtype());
  out.view.shape = ToVector(tensor.shape());
  absl::StatusOr<std::int64_t> count = core::ElementCount(out.view.shape);
  if (!count.ok()) return count.status();

  const std::size_t size = core::DtypeSize(out.view.dtype);
  const absl::uint128 expected = absl::uint128(*count) * size;
  const std::size_t data_bytes = tensor.data().size();
  const int values = tensor.values_size();
  const auto mismatch = [&](absl::string_view field, std::size_t actual,
                            absl::string_view fact) {
    return SizeMismatch(field, out.view.dtype, out.view.shape, expected, actual,
                        fact);
  };
  if (values > 0 && data_bytes > 0) {
    return core::FieldInvalid(
        "values", absl::StrCat(values, " elements beside ", data_bytes,
                               " bytes of data; give one of the two"));
  }
  if (values > kMaxValues) {
    return core::FieldInvalid(
        "values", absl::StrCat(values, " elements; at most ", kMaxValues,
                               " may be written out, send data"));
  }
  if (values == 0 && data_bytes == 0 && *count > 0) {
    return core::FieldRequired(
        "data", absl::StrCat("neither data nor values; shape ",
                             core::ShapeToString(out.view.shape), " holds ",
                             *count, " elements"));
  }
  if (values > 0) {
    if (*count != values) {
      return mismatch(
          "values", values * size,
          absl::StrCat(values, " elements (", values * size, " bytes)"));
    }
    out.form = TensorForm::kValues;
    out.rounded = std::make_unique<char[]>(values * size);
    out.view.data = out.rounded.get();
    const core::TensorView room = {out.view.dtype, out.view.shape,
                                   out.rounded.get()};
    for (int i = 0; i < values; ++i) {
      if (!core::IsFloating(room.dtype)) {
        const absl::Status integer =
            CheckInteger(tensor.values(i), room.dtype, i);
        if (!integer.ok()) return integer;
      }
      core::StoreDouble(tensor.values(i), room, i);
    }
    return out;
  }
  if (expected != data_bytes) {
    return mismatch("data", data_bytes, absl::StrCat(data_bytes, " bytes"));
  }
  out.view.data = tensor.data().data();
  return out;
}

absl::uint128 TensorFieldBytes(core::Dtype dtype, const core::Shape& shape,
                               TensorForm form) {
  v1::Tensor header;
  header.set_dtype(static_cast<v1::Dtype>(dtype));
  absl::uint128 count = 1;
  for (const std::int64_t extent : shape) {
    header.add_shape(extent);
    count *= static_cast<std::uint64_t>(extent);
  }
  const absl::uint128 bytes =
      count *
      (form == TensorForm::kValues ? sizeof(double) : core::DtypeSize(dtype));
  absl::uint128 total = header.ByteSizeLong();
  if (bytes > 0) total += FieldBytes(bytes);
  return FieldBytes(total);
}

core::TensorView AllocateTensor(core::Dtype dtype, const core::Shape& shape,
                                v1::Tensor* tensor) {
  tensor->set_dtype(static_cast<v1::Dtype>(dtype));
  std::size_t bytes = core::DtypeSize(dtype);
  for (const std::int64_t extent : shape) {
    tensor->add_shape(extent);
    bytes *= static_cast<std::size_t>(extent);
  }
  std::string* const data = tensor->mutable_data();
  data->resize(bytes);
  return {dtype, shape, data->data()};
}

void SpellOut(v1::Tensor* tensor) {
  const core::ConstTensorView view = {static_cast<core::Dtype>(tensor->dtype()),
                                      ToVector(tensor->shape()),
                                      tensor->data().data()};
  const std::int64_t count =
      tensor->data().size() / core::DtypeSize(view.dtype);
  tensor->mutable_values()->Reserve(count);
  for (std::int64_t i = 0; i < count; ++i) {
    tensor->add_values(core::ElementAsDouble(view, i));
  }
  tensor->clear_data();
}

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

absl::StatusOr<core::RopeSource> ReadRopeSource(const v1::RopeSource& source) {
  core::RopeSource out;
  switch (source.source_case()) {
    case v1::RopeSource::SOURCE_NOT_SET:
      return core::FieldRequired(
          "", "no source; give a spec, a preset or a config_json");
    case v1::RopeSource::kSpec:
      out.source = ReadSpec(source.spec());
      break;
    case v1::RopeSource::kPreset:
      out.source = core::PresetName{source.preset()};
      break;
    case v1::RopeSource::kConfigJson:
      out.source = core::ConfigJson{source.config_json()};
      break;
  }
  if (source.profile() != v1::PROFILE_UNSPECIFIED) {
    out.profile = static_cast<core::Profile>(source.profile());
  }
  if (source.has_layer_type()) out.layer_type = source.layer_type();
  if (source.has_layer_index()) out.layer_index = source.layer_index();
  if (source.has_sequence_length()) {
    out.sequence_length = source.sequence_length();
  }
  return out;
}

core::QueryScale ReadQueryScale(const v1::QueryScale& scale) {
  return {scale.beta(), scale.floor_scale(), scale.offset()};
}

core::Sinusoidal ReadSinusoidal(const v1::Sinusoidal& in) {
  core::Sinusoidal out;
  out.dim = in.dim();
  out.base = Optional(in.has_base(), in.base());
  out.order = static_cast<core::SinusoidalOrder>(in.order());
  out.endpoint = in.endpoint();
  if (in.has_padding_position()) out.padding_position = in.padding_position();
  out.odd_dim_sine = in.odd_dim_sine();
  return out;
}

core::Direction ReadDirection(v1::Direction direction) {
  return direction == v1::DIRECTION_UNSPECIFIED
             ? core::Direction::kForward
             : static_cast<core::Direction>(direction);
}

core::TableLayout ReadTableLayout(v1::TableLayout layout) {
  return layout == v1::TABLE_LAYOUT_UNSPECIFIED
             ? core::TableLayout::kHalf
             : static_cast<core::TableLayout>(layout);
}

core::Dtype ReadTableDtype(v1::Dtype dtype) {
  return dtype == v1::DTYPE_UNSPECIFIED ? core::Dtype::kFloat32
                                        : static_cast<core::Dtype>(dtype);
}

void WriteRope(const core::ResolvedRope& rope, const std::string& content_hash,
               v1::ResolveRopeResponse* response) {
  WriteSpec(rope.spec, response->mutable_spec());
  response->set_head_dim(static_cast<std::int32_t>(rope.head_dim));
  response->mutable_inv_freq()->Add(rope.inv_freq.begin(), rope.inv_freq.end());
  response->mutable_axis_of_pair()->Add(rope.axis_of_pair.begin(),
                                        rope.axis_of_pair.end());
  response->set_amplitude(rope.amplitude);
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

void WriteDifference(const core::RopeDifference& difference,
                     v1::RopeDifference* out) {
  out->set_equal(difference.equal);
  out->set_max_relative_frequency_difference(
      difference.max_relative_frequency_difference);
  out->set_worst_pair(difference.worst_pair);
  out->set_amplitude_ratio(difference.amplitude_ratio);
  out->set_first_diverging_position(difference.first_diverging_position);
  for (const std::string& explanation : difference.explanations) {
    out->add_explanations(explanation);
  }
}

}  // namespace posenc::server
