// HdrHistogram's interchange forms, which its tools in every language read:
// the compressed V2 encoding, and log files (.hlog) of it.
// https://github.com/HdrHistogram/HdrHistogram (the format's description).

#pragma once

#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/load/histogram.h"

namespace posenc::load {

// The V2 encoding, deflated, as base64: "HISTFAAA...".
std::string EncodeHistogram(const Histogram& histogram);

// "#[..." lines and the column names.
std::string HdrLogHeader(absl::Time start);

// One interval that began `offset` after the log's start. `tag` may be empty;
// commas and spaces in it become '_'. Values are ns; the column of the greatest
// is in ms, as readers expect.
std::string HdrLogLine(const std::string& tag, absl::Duration offset,
                       absl::Duration length, const Histogram& histogram);

}  // namespace posenc::load
