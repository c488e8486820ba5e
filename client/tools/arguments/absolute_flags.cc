// The flags of a posenc.v1.AbsoluteEncoding. `posenc table` prints the rows of
// this encoding, and `posenc add` adds them to embeddings.

#include "client/tools/arguments/options.h"
#include "client/tools/files/status.h"

namespace posenc::cli {
namespace {

constexpr FieldFlag kFlags[] = {
    {"--sinusoidal", "sinusoidal.dim", "DIM", "Sinusoidal rows of this width"},
    {"--order", "sinusoidal.order", "NAME", "interleaved, sin_cos or cos_sin",
     "--sinusoidal", true},
    {"--base", "sinusoidal.base sincos_grid.base", "X",
     "Base for --sinusoidal, --sincos-grid (default 10000)",
     "--sinusoidal --sincos-grid"},
    {"--endpoint", "sinusoidal.endpoint", nullptr,
     "The last frequency is 1/base (tensor2tensor, fairseq)", "--sinusoidal"},
    {"--padding-position", "sinusoidal.padding_position", "P",
     "Position of the zero row (fairseq)", "--sinusoidal"},
    {"--odd-dim-sine", "sinusoidal.odd_dim_sine", nullptr,
     "An odd dim ends in an unpaired sine, not in a zero", "--sinusoidal"},

    {"--learned", "learned.table", "FILE",
     "Rows of a trained table: an .npy, or FILE.safetensors:NAME"},
    {"--hierarchical-alpha", "learned.hierarchical_alpha", "X",
     "Extends the table to rows^2 positions; in (0, 1), not 0.5", "--learned"},

    {"--sincos-grid", "sincos_grid.dim", "DIM",
     "Rows of this width for an image's cells"},
    {"--extents", "sincos_grid.extents", "EXTENTS",
     "Cells per axis, outermost first: 14x14", "--sincos-grid", true},
    {"--last-axis-first", "sincos_grid.last_axis_first", nullptr,
     "The first channels encode the last axis (MAE)", "--sincos-grid"},
    {"--leading-zero-rows", "sincos_grid.leading_zero_rows", "N",
     "Zero rows in front, for class tokens", "--sincos-grid"},
    {"--steps", "sincos_grid.steps", "LIST",
     "Distance between cells, per axis: 0.5,0.5", "--sincos-grid"},

    {"--timestep", "timestep.dim", "DIM", "Diffusion timesteps of this width"},
    {"--max-period", "timestep.max_period", "X", "Default 10000", "--timestep"},
    {"--downscale-freq-shift", "timestep.downscale_freq_shift", "X",
     "Default 0; 1 in DDPM", "--timestep"},
    {"--scale", "timestep.scale", "X", "Factor on the position; 1000 in FLUX",
     "--timestep"},

    {"--fourier-features", "fourier_features.frequencies", "FILE",
     "B [axes, dim/2] in sin, cos(2 pi x B): an .npy, or "
     "FILE.safetensors:NAME"},
    {"--cos-first", "timestep.cos_first fourier_features.cos_first", nullptr,
     "Cosines before sines: --timestep, --fourier-features",
     "--timestep --fourier-features"},
};

}  // namespace

void AddAbsoluteFlags(CLI::App* app, FieldFlags* flags) {
  flags->Add(app, "Absolute encoding", kFlags);
}

absl::Status NoEncoding() {
  return UsageError(
      "no encoding; give --preset, --config or --spec for a rotary one, or an "
      "absolute one: --sinusoidal, --learned, --sincos-grid, --timestep, "
      "--fourier-features");
}

}  // namespace posenc::cli
