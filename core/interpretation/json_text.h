// Facts of a JSON text that parsing loses.

#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace posenc::core::interpretation {

struct JsonText {
  // A key that an object has twice, with its first value and its last, which
  // is the one that parsers keep.
  struct Twice {
    std::string path, first, last;
  };
  // An integer that int64 does not hold. The parser makes it a double, and
  // Python keeps its digits.
  struct LongInteger {
    std::string path, digits;
  };

  // At most 8 of each.
  std::vector<Twice> twice;
  std::vector<LongInteger> long_integers;
  // Why and where it is no JSON, and of a number that is out of range the key;
  // empty if it is JSON.
  std::string fault, fault_path;
  std::size_t fault_byte = 0;  // from 1: where it is no JSON
};

// Takes NaN and the infinities for values, as ParseConfig() does. `text` must
// have passed CheckJsonSize().
JsonText ReadJsonText(absl::string_view text);

}  // namespace posenc::core::interpretation
