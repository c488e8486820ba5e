// Types of values in a GGUF file, and errors of files (gguf_file.h).

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/interpretation/formats/gguf_file.h"

namespace posenc::core::interpretation::gguf {

enum ValueType : std::uint32_t {
  kU8 = 0,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
  kTypes
};

template <typename... Facts>
absl::Status Malformed(const Facts&... facts) {
  return absl::InvalidArgumentError(absl::StrCat(facts...));
}

// Returns a name for a message: control characters are escaped, and a long name
// is cut.
std::string Shown(absl::string_view name);

// Returns a value that is a number or a bool as a number.
double AsNumber(const GgufValue& value);

}  // namespace posenc::core::interpretation::gguf
