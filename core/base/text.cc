#include "core/base/text.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/base/error.h"

namespace posenc::core {

std::string OneLine(absl::string_view text, std::size_t most) {
  std::string line;
  for (const char c : text) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) {
      absl::StrAppend(&line, absl::CHexEscape(absl::string_view(&c, 1)));
    } else {
      line.push_back(c);
    }
  }
  if (line.size() <= most) return line;
  std::size_t end = most - 3;
  // A character of several bytes must not be cut.
  while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xc0) == 0x80) {
    --end;
  }
  return line.substr(0, end) + "...";
}

int EditDistance(absl::string_view a, absl::string_view b) {
  const std::size_t width = b.size() + 1;
  // Rows i - 2, i - 1 and i of the table of distances between prefixes.
  std::vector<int> older(width), old(width), row(width);
  std::iota(old.begin(), old.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int>(i);
    for (std::size_t j = 1; j < width; ++j) {
      row[j] = std::min({old[j] + 1, row[j - 1] + 1,
                         old[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], older[j - 2] + 1);
      }
    }
    older = std::exchange(old, row);
  }
  return old.back();
}

std::string PlainNumber(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) {
    return absl::StrCat(static_cast<std::int64_t>(value));
  }
  return NumberText(value);
}

std::string SizeText(std::int64_t bytes) {
  for (const auto& [unit, bits] :
       {std::pair{"GiB", 30}, {"MiB", 20}, {"KiB", 10}}) {
    if (bytes != 0 && bytes % (std::int64_t{1} << bits) == 0) {
      return absl::StrCat(bytes >> bits, unit);
    }
  }
  return absl::StrCat(bytes, " bytes");
}

}  // namespace posenc::core
