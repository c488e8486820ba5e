// Types of values in a GGUF file, and errors of files (gguf_file.h).

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/interpretation/formats/gguf_file.h"

namespace posenc::core::interpretation {

enum GgufType : std::uint32_t {
  kGgufU8 = 0,
  kGgufI8,
  kGgufU16,
  kGgufI16,
  kGgufU32,
  kGgufI32,
  kGgufF32,
  kGgufBool,
  kGgufString,
  kGgufArray,
  kGgufU64,
  kGgufI64,
  kGgufF64,
  kGgufTypes
};

template <typename... Facts>
absl::Status Malformed(const Facts&... facts) {
  return absl::InvalidArgumentError(absl::StrCat(facts...));
}

// Returns a name for a message: control characters are escaped, and a long name
// is cut.
std::string Shown(absl::string_view name);

// Returns a value as a number. The value must be a number or a bool.
double AsNumber(const GgufValue& value);

}  // namespace posenc::core::interpretation
