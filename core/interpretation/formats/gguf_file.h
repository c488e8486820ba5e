// Reads the header of a GGUF file, versions 2 and 3, without ggml: the keys,
// and the names, shapes and offsets of the tensors. Everything is little-endian
// and unaligned:
//
//   bytes  what
//   4      "GGUF"
//   4      version
//   8      number of tensors
//   8      number of keys
//   ...    keys:    u64 length, bytes; u32 type; value
//   ...    tensors: u64 length, bytes; u32 dimensions; for each dimension a
//                   u64 extent, the fastest first; u32 type; u64 offset in
//                   the data
//   ...    padding to general.alignment (32 if absent), and the data
//
// Types of values: 0 u8, 1 i8, 2 u16, 3 i16, 4 u32, 5 i32, 6 f32, 7 bool (a
// byte), 8 string (u64 length, bytes), 9 array (u32 type of elements, u64
// count, elements), 10 u64, 11 i64, 12 f64.
//
// Nothing in the file is trusted. A count of keys, tensors, elements or bytes
// is compared with the number of bytes that are left in the file before
// anything is allocated. Values of keys that are not about rotation or shape
// are skipped.
//
// Source: the GGUF specification (ggml's docs/gguf.md).

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/base/tensor.h"

namespace posenc::core::interpretation {

// The source of the bytes: a file, or the part of a file that a client sent.
struct ByteSource {
  std::uint64_t size = 0;
  // Copies the `n` bytes at `offset` to `to`. offset + n is at most `size`.
  std::function<absl::Status(std::uint64_t offset, char* to, std::size_t n)>
      read;
};

// Returns a source over bytes in memory. The bytes must outlive the source.
ByteSource SourceOf(absl::string_view bytes);

using GgufValue = std::variant<std::int64_t, std::uint64_t, double, bool,
                               std::string, std::vector<double>>;

struct GgufTensor {
  std::string name;
  std::vector<std::uint64_t> shape;  // the fastest extent first
  std::uint32_t type = 0;            // in ggml: 0 F32, 1 F16, 28 F64, 30 BF16
  std::uint64_t offset = 0;          // from the file's start
};

struct GgufFile {
  std::uint32_t version = 0;
  // Only keys about rotation or shape. Strings have at most 1 MiB, lists at
  // most 65,536 numbers.
  std::map<std::string, GgufValue> keys;
  // Only tensors that affect rotation: rope_freqs.weight,
  // rope_factors_{long,short}.weight, and the projections of queries.
  std::vector<GgufTensor> tensors;

  const GgufTensor* FindTensor(absl::string_view name) const;

  // These functions return the value of a key; nullopt or empty if the key is
  // absent. A value of another type, a fraction for Integer() and a number that
  // is not finite are errors that name the key. `status` keeps the first error.
  std::optional<double> Number(absl::string_view key,
                               absl::Status* status) const;
  std::optional<std::int64_t> Integer(absl::string_view key,
                                      absl::Status* status) const;
  std::optional<bool> Flag(absl::string_view key, absl::Status* status) const;
  std::optional<std::string> Text(absl::string_view key,
                                  absl::Status* status) const;
  // A single number counts as a list with one element. An array is an error if
  // llama.cpp does not read its elements as numbers.
  std::vector<double> Numbers(absl::string_view key,
                              absl::Status* status) const;
};

// Errors are INVALID_ARGUMENT with one line that says what is wrong and where,
// for example "ends at byte 200; a string of 26 bytes begins at byte 190".
// Errors of the source are returned unchanged.
absl::StatusOr<GgufFile> ReadGguf(const ByteSource& source);

// Returns the elements of a tensor. Returns an error that names the tensor if
// it lies outside of the file, does not have a float type, or has more than
// 2^24 elements.
absl::StatusOr<std::vector<double>> ReadGgufTensor(const ByteSource& source,
                                                   const GgufTensor& tensor);

// Converts `n` little-endian elements to numbers.
std::vector<double> DecodeFloats(Dtype dtype, const char* bytes, std::size_t n);

// Returns the dtype for ggml's types F32, F16, F64 and BF16; nullopt for other
// types.
std::optional<Dtype> GgufDtype(std::uint32_t type);

// Returns a GGUF file of version 3 that has the keys of `file` and no tensors.
// A client sends the result in place of the whole file, which also has the
// tensors and a vocabulary of about ten MiB.
std::string WriteGgufKeys(const GgufFile& file);

}  // namespace posenc::core::interpretation
