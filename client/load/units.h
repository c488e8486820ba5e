// Durations and sizes as people write them: "250ms", "64KiB".

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace posenc::load {

// "10s", "1.5ms", "2m"; above 0 unless zero is allowed. Errors name the flag.
absl::StatusOr<absl::Duration> ParseDuration(absl::string_view flag,
                                             absl::string_view text,
                                             bool allow_zero = false);

// "4096", "64KiB", "16MiB", "1GiB"; "64kB" is 64000. Above 0.
absl::StatusOr<std::int64_t> ParseBytes(absl::string_view flag,
                                        absl::string_view text);

// "1000,2000,4000", each finite and above 0.
absl::StatusOr<std::vector<double>> ParseRates(absl::string_view flag,
                                               absl::string_view text);

// "64KiB", "1.5MiB", "100B".
std::string BytesText(std::int64_t bytes);

// "850 ns", "213 us", "1.25 ms", "2.5 s".
std::string NanosText(double nanos);

}  // namespace posenc::load
