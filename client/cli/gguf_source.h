// A GGUF file as a rotary encoding, so that every command that takes a
// config.json takes it, too.

#pragma once

#include "absl/status/statusor.h"
#include "client/cli/options.h"

namespace posenc::cli {

// Frequencies, amplitude and axes as llama.cpp has them, of the layers with
// full attention, or, with --layer-type sliding_attention, of the others; of
// longrope's two lists the one for --length tokens, or for the context that the
// file claims; with the width of a head of those layers. Errors have exit code
// 2 (flags that a GGUF does not have) or 3 (the file).
absl::StatusOr<v1::RopeSource> GgufSource(const SourceFlags& flags);

}  // namespace posenc::cli
