// NumPy's .npy: versions 1.0 and 2.0, little-endian f2, f4, f8, i4 and i8 in C
// order. bfloat16 has no .npy type: use .safetensors.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "posenc/client.h"

namespace posenc::cli {

// A view into `bytes`. Errors say what is wrong, without the file's name.
absl::StatusOr<TensorView> ParseNpy(absl::Span<const char> bytes);

// What stands in front of the tensor's bytes; INVALID_ARGUMENT for dtypes that
// .npy does not have.
absl::StatusOr<std::string> NpyHeader(const TensorView& tensor);

absl::Status WriteNpy(const std::string& path, const TensorView& tensor);

}  // namespace posenc::cli
