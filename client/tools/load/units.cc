#include "client/tools/load/units.h"

#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace posenc::load {

absl::Status InvalidText(absl::string_view text, absl::string_view rule) {
  return absl::InvalidArgumentError(
      absl::StrCat("\"", text, "\"; must be ", rule));
}

absl::StatusOr<absl::Duration> ParseDuration(absl::string_view text,
                                             bool allow_zero) {
  absl::Duration duration;
  if (!absl::ParseDuration(text, &duration) ||
      duration < absl::ZeroDuration() ||
      (!allow_zero && duration == absl::ZeroDuration()) ||
      // A year in nanoseconds is 3 * 10^16, so that sums stay far from 2^63.
      duration > absl::Hours(24 * 365)) {
    return InvalidText(text, allow_zero
                                 ? "a duration of at most a year, such as 10s"
                                 : "a duration above 0, such as 10s or 250ms");
  }
  return duration;
}

absl::StatusOr<std::int64_t> ParseBytes(absl::string_view text) {
  static constexpr std::pair<absl::string_view, double> kUnits[] = {
      {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"kB", 1e3},
      {"MB", 1e6},     {"GB", 1e9},     {"B", 1},        {"", 1}};
  for (const auto& [unit, factor] : kUnits) {
    absl::string_view number = text;
    if (!absl::ConsumeSuffix(&number, unit)) continue;
    double value;
    // Checks the characters, because SimpleAtod accepts "inf", "1e3" and " 1".
    if (number.empty() ||
        number.find_first_not_of("0123456789.") != absl::string_view::npos ||
        !absl::SimpleAtod(number, &value)) {
      break;
    }
    const double bytes = value * factor;
    if (bytes < 1 || bytes > 0x1p62 || bytes != std::floor(bytes)) break;
    return static_cast<std::int64_t>(bytes);
  }
  return InvalidText(text, "a whole number of bytes, such as 4096 or 64KiB");
}

absl::StatusOr<std::vector<double>> ParseNumbers(absl::string_view text,
                                                 double most,
                                                 absl::string_view rule) {
  std::vector<double> numbers;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    double number;
    if (!absl::SimpleAtod(part, &number) || !(number > 0) || number > most) {
      return InvalidText(text, rule);
    }
    numbers.push_back(number);
  }
  return numbers;
}

std::string BytesText(std::int64_t bytes) {
  static constexpr const char* kNames[] = {"B", "KiB", "MiB", "GiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 3) {
    value /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.4g%s", value, kNames[unit]);
}

std::string NanosText(double nanos) {
  if (nanos >= 1e9) return absl::StrFormat("%.3g s", nanos / 1e9);
  // The units change at 999.5, not at 1000, because %.3g prints 999.5 as 1e+03.
  if (nanos >= 999.5e3) {
    return nanos >= 999.5e6 ? "1 s" : absl::StrFormat("%.3g ms", nanos / 1e6);
  }
  if (nanos >= 999.5) return absl::StrFormat("%.3g us", nanos / 1e3);
  return absl::StrFormat("%.3g ns", nanos);
}

}  // namespace posenc::load
