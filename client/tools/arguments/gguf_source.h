// Reads a GGUF file as a rotary encoding, so that every command that takes a
// config.json also takes a GGUF.

#pragma once

#include "absl/status/statusor.h"
#include "client/tools/arguments/options.h"

namespace posenc::cli {

// Returns llama.cpp's frequencies, amplitude, axes and head_dim for the layers
// with full attention, or, with --layer-type sliding_attention, for the others.
// If the file has longrope's two lists, selects one by --length, or by the
// context that the file claims. Errors have exit code 2 (flags that do not
// apply to a GGUF) or 3 (the file).
absl::StatusOr<v1::RopeSource> GgufSource(const SourceFlags& flags);

}  // namespace posenc::cli
