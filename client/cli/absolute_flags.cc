// Which flags go together is told to CLI11 rather than checked by hand: a kind
// of encoding excludes the other kinds, and a detail needs its kind. Only flags
// that belong to two kinds (--base, --cos-first) are checked when the message
// is built. Values are not judged here: the server knows what each field may
// be, and its errors name the field as the flag does.

#include "client/cli/absolute_flags.h"

#include "client/cli/options.h"
#include "client/cli/status.h"
#include "client/cli/tensor_file.h"

namespace posenc::cli {
namespace {

absl::Status SetSinusoidal(const AbsoluteFlags& flags,
                           v1::Sinusoidal* encoding) {
  const absl::StatusOr<v1::SinusoidalOrder> order =
      ParseEnum<v1::SinusoidalOrder>("--order", "SINUSOIDAL_ORDER_",
                                     flags.order);
  if (!order.ok()) return order.status();
  encoding->set_dim(*flags.sinusoidal);
  encoding->set_order(*order);
  encoding->set_endpoint(flags.endpoint);
  encoding->set_odd_dim_sine(flags.odd_dim_sine);
  if (flags.base) encoding->set_base(*flags.base);
  if (flags.padding_position) {
    encoding->set_padding_position(*flags.padding_position);
  }
  return absl::OkStatus();
}

absl::Status SetGrid(const AbsoluteFlags& flags, v1::SincosGrid* encoding) {
  const absl::StatusOr<std::vector<std::int32_t>> extents =
      ParseExtents("--extents", flags.extents);
  if (!extents.ok()) return extents.status();
  encoding->set_dim(*flags.sincos_grid);
  encoding->mutable_extents()->Assign(extents->begin(), extents->end());
  encoding->set_last_axis_first(flags.last_axis_first);
  encoding->set_leading_zero_rows(flags.leading_zero_rows);
  if (flags.base) encoding->set_base(*flags.base);
  return ParseNumbers("--steps", flags.steps, encoding->mutable_steps());
}

void SetTimestep(const AbsoluteFlags& flags, v1::Timestep* encoding) {
  encoding->set_dim(*flags.timestep);
  encoding->set_cos_first(flags.cos_first);
  if (flags.max_period) encoding->set_max_period(*flags.max_period);
  if (flags.downscale_freq_shift) {
    encoding->set_downscale_freq_shift(*flags.downscale_freq_shift);
  }
  if (flags.scale) encoding->set_scale(*flags.scale);
}

}  // namespace

bool AbsoluteFlags::Empty() const {
  return !sinusoidal && learned.empty() && !sincos_grid && !timestep &&
         fourier_features.empty();
}

void AddAbsoluteFlags(CLI::App* app, AbsoluteFlags* flags) {
  const auto add = [&](const char* name, auto* value, const char* text,
                       const char* type) {
    return app->add_option(name, *value, text)
        ->group("Absolute encoding")
        ->type_name(type);
  };
  const auto add_flag = [&](const char* name, bool* value, const char* text) {
    return app->add_flag(name, *value, text)->group("Absolute encoding");
  };
  CLI::Option* const sinusoidal = add("--sinusoidal", &flags->sinusoidal,
                                      "Sinusoidal rows of this width", "DIM");
  sinusoidal->needs(
      add("--order", &flags->order, "interleaved, sin_cos or cos_sin", "NAME"));
  app->get_option("--order")->needs(sinusoidal);
  add("--base", &flags->base,
      "Of a sinusoidal encoding or a grid (default 10000)", "X");
  add_flag("--endpoint", &flags->endpoint,
           "The last frequency is 1/base (tensor2tensor, fairseq)")
      ->needs(sinusoidal);
  add("--padding-position", &flags->padding_position,
      "Its row is zero (fairseq)", "P")
      ->needs(sinusoidal);
  add_flag("--odd-dim-sine", &flags->odd_dim_sine,
           "An odd dim ends in an unpaired sine, not in a zero")
      ->needs(sinusoidal);

  CLI::Option* const learned =
      add("--learned", &flags->learned,
          "Rows of a trained table: an .npy, or FILE.safetensors:NAME", "FILE");
  add("--hierarchical-alpha", &flags->hierarchical_alpha,
      "Extends it to rows^2 positions; in (0, 1), not 0.5", "X")
      ->needs(learned);

  CLI::Option* const grid =
      add("--sincos-grid", &flags->sincos_grid,
          "Rows of an image's cells, of this width", "DIM");
  grid->needs(add("--extents", &flags->extents,
                  "Cells per axis, outermost first: 14x14", "EXTENTS"));
  app->get_option("--extents")->needs(grid);
  add_flag("--last-axis-first", &flags->last_axis_first,
           "The first channels encode the last axis (MAE)")
      ->needs(grid);
  add("--leading-zero-rows", &flags->leading_zero_rows, "Class tokens in front",
      "N")
      ->needs(grid);
  add("--steps", &flags->steps, "Between cells, per axis: 0.5,0.5", "LIST")
      ->needs(grid);

  CLI::Option* const timestep =
      add("--timestep", &flags->timestep, "Diffusion timesteps, of this width",
          "DIM");
  add("--max-period", &flags->max_period, "Default 10000", "X")
      ->needs(timestep);
  add("--downscale-freq-shift", &flags->downscale_freq_shift,
      "Default 0; 1 in DDPM", "X")
      ->needs(timestep);
  add("--scale", &flags->scale, "Of the position; 1000 in FLUX", "X")
      ->needs(timestep);

  CLI::Option* const fourier =
      add("--fourier-features", &flags->fourier_features,
          "sin and cos of 2 pi x B: B [axes, dim/2], an .npy, or "
          "FILE.safetensors:NAME",
          "FILE");
  add_flag("--cos-first", &flags->cos_first,
           "Cosines before sines: --timestep, --fourier-features");
  const std::initializer_list<CLI::Option*> kinds = {sinusoidal, learned, grid,
                                                     timestep, fourier};
  for (CLI::Option* a : kinds) {
    for (CLI::Option* b : kinds) {
      if (a != b) a->excludes(b);
    }
  }
}

absl::StatusOr<v1::AbsoluteEncoding> BuildAbsolute(const AbsoluteFlags& flags) {
  if (flags.base && !flags.sinusoidal && !flags.sincos_grid) {
    return UsageError("--base: belongs to --sinusoidal and --sincos-grid");
  }
  if (flags.cos_first && !flags.timestep && flags.fourier_features.empty()) {
    return UsageError(
        "--cos-first: belongs to --timestep and --fourier-features");
  }
  v1::AbsoluteEncoding encoding;
  absl::Status status;
  if (flags.sinusoidal) {
    status = SetSinusoidal(flags, encoding.mutable_sinusoidal());
  } else if (!flags.learned.empty()) {
    v1::LearnedTable* const learned = encoding.mutable_learned();
    if (flags.hierarchical_alpha) {
      learned->set_hierarchical_alpha(*flags.hierarchical_alpha);
    }
    status = ReadTensor("--learned", flags.learned, learned->mutable_table());
  } else if (flags.sincos_grid) {
    status = SetGrid(flags, encoding.mutable_sincos_grid());
  } else if (flags.timestep) {
    SetTimestep(flags, encoding.mutable_timestep());
  } else if (!flags.fourier_features.empty()) {
    v1::FourierFeatures* const fourier = encoding.mutable_fourier_features();
    fourier->set_cos_first(flags.cos_first);
    status = ReadTensor("--fourier-features", flags.fourier_features,
                        fourier->mutable_frequencies());
  } else {
    status = UsageError(
        "one of --sinusoidal, --learned, --sincos-grid, --timestep and "
        "--fourier-features is required");
  }
  if (!status.ok()) return status;
  return encoding;
}

}  // namespace posenc::cli
