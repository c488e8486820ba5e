// Facts that are lost when a JSON text is parsed.

#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace posenc::core::interpretation {

struct JsonText {
  // A key that an object has twice, with its first and last value. Parsers keep
  // the last one.
  struct Twice {
    std::string path, first, last;
  };
  // An integer that int64 cannot hold. The parser converts it to double; Python
  // keeps all digits.
  struct LongInteger {
    std::string path, digits;
  };

  // Each list has at most 8 elements.
  std::vector<Twice> twice;
  std::vector<LongInteger> long_integers;
  // `fault` says why the text is not JSON, and is empty for JSON. `fault_path`
  // is the key of a number that is out of range.
  std::string fault, fault_path;
  std::size_t fault_byte = 0;  // position of the fault, counted from 1
};

// Accepts NaN and the infinities as values, like ParseText(). `text` must
// have passed CheckJsonSize().
JsonText ReadJsonText(absl::string_view text);

}  // namespace posenc::core::interpretation
