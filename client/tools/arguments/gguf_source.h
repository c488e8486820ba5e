// Reads a GGUF file as a rotary encoding, so that every command that takes a
// config.json also takes a GGUF.

#pragma once

#include "absl/status/statusor.h"
#include "client/tools/arguments/options.h"

namespace posenc::cli {

// Returns llama.cpp's frequencies, amplitude, axes and head_dim for the layers
// with full attention. With --layer-type sliding_attention, returns them for
// the layers with a sliding window. If the file has the two lists of longrope,
// --length selects the list; without --length, the context length in the file
// selects it. Errors have exit code 2 (flags that do not apply to a GGUF) or 3
// (the file).
absl::StatusOr<v1::RopeSource> GgufSource(const SourceFlags& flags);

}  // namespace posenc::cli
