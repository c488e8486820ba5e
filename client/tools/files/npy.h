// NumPy's .npy format: one array in a file.
//
//   offset  bytes
//   0       6      magic, "\x93NUMPY"
//   6       2      version: 1 0 or 2 0
//   8       2, 4   length of the header, little-endian; 4 bytes in version 2
//   10, 12         header: a Python literal, padded with spaces and ended by a
//                  newline, so that the data starts at a multiple of 64
//                  {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
//                  data, in C order
//
// This reader takes versions 1.0 and 2.0 with little-endian f2, f4, f8, i1, i4
// and i8 in C order. Version 3.0 differs only for structured arrays, which are
// not tensors. .npy has no type for bfloat16; .safetensors has one.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "posenc/client.h"

namespace posenc::cli {

// Returns true if the bytes begin like an .npy file.
bool IsNpy(absl::Span<const char> bytes);

// Returns the array as a view into `bytes`. Nothing in the file is trusted: the
// size of the data must follow from dtype and shape. Errors are
// INVALID_ARGUMENT and do not name the file.
absl::StatusOr<TensorView> ParseNpy(absl::Span<const char> bytes);

// Returns the bytes before the tensor's data. INVALID_ARGUMENT for dtypes that
// .npy does not have.
absl::StatusOr<std::string> NpyHeader(const TensorView& tensor);

absl::Status WriteNpy(const std::string& path, const TensorView& tensor);

}  // namespace posenc::cli
