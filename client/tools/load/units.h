// Quantities in readable form: "250ms", "64KiB". Errors of parsers name the
// text and the rule.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace posenc::load {

// Makes INVALID_ARGUMENT with the message "<text>; must be <rule>".
absl::Status InvalidText(absl::string_view text, absl::string_view rule);

// Parses a duration, for example "10s", "1.5ms" or "2m". The duration must be
// above 0, or at least 0 with `allow_zero`, and at most a year.
absl::StatusOr<absl::Duration> ParseDuration(absl::string_view text,
                                             bool allow_zero = false);

// Parses a size, for example "4096", "64KiB", "16MiB" or "1GiB"; "64kB" is
// 64000. The number must be above 0.
absl::StatusOr<std::int64_t> ParseBytes(absl::string_view text);

// Parses a list of numbers, for example "1000,2000.5". Each number must be
// above 0 and at most `most`; `rule` is the text of this rule in errors.
absl::StatusOr<std::vector<double>> ParseNumbers(absl::string_view text,
                                                 double most,
                                                 absl::string_view rule);

// Returns a size in powers of 1024, as in --size: for example "64KiB", "1.5MiB"
// or "100B".
std::string BytesText(std::int64_t bytes);

// Returns a duration with three digits, for example "850 ns", "213 us",
// "1.25 ms" or "2.5 s".
std::string NanosText(double nanos);

}  // namespace posenc::load
