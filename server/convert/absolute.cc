#include "server/convert/absolute.h"

#include "core/base/status_macros.h"
#include "server/convert/fields.h"

namespace posenc::server {
namespace {

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

core::SincosGrid ReadGrid(const v1::SincosGrid& in) {
  core::SincosGrid out;
  out.dim = in.dim();
  out.extents = ToVector(in.extents());
  out.base = Optional(in.has_base(), in.base());
  out.last_axis_first = in.last_axis_first();
  out.leading_zero_rows = in.leading_zero_rows();
  out.steps = ToVector(in.steps());
  return out;
}

core::Timestep ReadTimestep(const v1::Timestep& in) {
  core::Timestep out;
  out.dim = in.dim();
  out.max_period = Optional(in.has_max_period(), in.max_period());
  out.cos_first = in.cos_first();
  out.downscale_freq_shift =
      Optional(in.has_downscale_freq_shift(), in.downscale_freq_shift());
  out.scale = Optional(in.has_scale(), in.scale());
  return out;
}

}  // namespace

absl::StatusOr<core::AbsoluteEncoding> ReadAbsolute(
    const v1::AbsoluteEncoding& encoding, OwnedElements* owned) {
  core::AbsoluteEncoding out;
  switch (encoding.encoding_case()) {
    case v1::AbsoluteEncoding::ENCODING_NOT_SET:
      break;
    case v1::AbsoluteEncoding::kSinusoidal:
      out = ReadSinusoidal(encoding.sinusoidal());
      break;
    case v1::AbsoluteEncoding::kLearned: {
      const v1::LearnedTable& in = encoding.learned();
      auto& learned = out.emplace<core::LearnedTable>();
      learned.hierarchical_alpha =
          Optional(in.has_hierarchical_alpha(), in.hierarchical_alpha());
      RETURN_IF_ERROR(
          ReadTensorFields("learned", in, {{"table", &learned.table}}, owned));
      break;
    }
    case v1::AbsoluteEncoding::kSincosGrid:
      out = ReadGrid(encoding.sincos_grid());
      break;
    case v1::AbsoluteEncoding::kTimestep:
      out = ReadTimestep(encoding.timestep());
      break;
    case v1::AbsoluteEncoding::kFourierFeatures: {
      const v1::FourierFeatures& in = encoding.fourier_features();
      auto& features = out.emplace<core::FourierFeatures>();
      features.cos_first = in.cos_first();
      RETURN_IF_ERROR(ReadTensorFields("fourier_features", in,
                                       {{"frequencies", &features.frequencies}},
                                       owned));
      break;
    }
  }
  return out;
}

}  // namespace posenc::server
