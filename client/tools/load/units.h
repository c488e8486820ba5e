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

// Makes INVALID_ARGUMENT: "<text>"; must be <rule>.
absl::Status InvalidText(absl::string_view text, absl::string_view rule);

// Parses "10s", "1.5ms", "2m". The duration must be above 0, or at least 0 with
// `allow_zero`, and at most a year.
absl::StatusOr<absl::Duration> ParseDuration(absl::string_view text,
                                             bool allow_zero = false);

// Parses "4096", "64KiB", "16MiB", "1GiB"; "64kB" is 64000. The number must be
// above 0.
absl::StatusOr<std::int64_t> ParseBytes(absl::string_view text);

// Parses "1000,2000.5", each above 0 and at most `most`; `rule` is the text of
// this rule in errors.
absl::StatusOr<std::vector<double>> ParseNumbers(absl::string_view text,
                                                 double most,
                                                 absl::string_view rule);

// Returns "64KiB", "1.5MiB", "100B": powers of 1024, as in --size.
std::string BytesText(std::int64_t bytes);

// Returns "850 ns", "213 us", "1.25 ms", "2.5 s": three digits.
std::string NanosText(double nanos);

}  // namespace posenc::load
