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
// Taken are versions 1.0 and 2.0 with little-endian f2, f4, f8, i4 and i8 in C
// order. Version 3.0 differs only for structured arrays, which no tensor is.
// bfloat16 has no .npy type; .safetensors has one.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "posenc/client.h"

namespace posenc::cli {

// Whether the bytes begin as an .npy file does.
bool IsNpy(absl::Span<const char> bytes);

// The array as a view into `bytes`. Nothing in the file is trusted: the data
// must have exactly the bytes that dtype and shape take. Errors are
// INVALID_ARGUMENT and say what is wrong, without the file's name.
absl::StatusOr<TensorView> ParseNpy(absl::Span<const char> bytes);

// Everything that stands before the tensor's bytes. INVALID_ARGUMENT for dtypes
// that .npy does not have.
absl::StatusOr<std::string> NpyHeader(const TensorView& tensor);

absl::Status WriteNpy(const std::string& path, const TensorView& tensor);

}  // namespace posenc::cli
