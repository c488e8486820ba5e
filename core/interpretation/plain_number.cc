#include "core/interpretation/plain_number.h"

#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "core/error.h"

namespace posenc::core::interpretation {

std::string PlainNumber(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) {
    return absl::StrCat(static_cast<std::int64_t>(value));
  }
  return NumberText(value);
}

}  // namespace posenc::core::interpretation
