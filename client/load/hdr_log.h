// HdrHistogram's interchange formats, which its tools in every language read:
// the compressed V2 encoding of a histogram, and log files (.hlog) with one for
// each interval. https://github.com/HdrHistogram/HdrHistogram describes both.
//
//   compressed:  cookie (4 bytes), length (4), zlib stream of the encoding
//   encoding:    cookie (4), length of the counts (4), normalizing index offset
//                (4), significant digits (4), lowest value (8), highest value
//                (8), ratio of integers to values, a double (8), counts
//   counts:      ZigZag varints; n > 0 is the count of a bucket, -n stands for
//                n > 1 empty buckets, 0 for one
//
// All numbers except the varints are big-endian.

#pragma once

#include <string>

#include "absl/time/time.h"
#include "client/load/histogram.h"

namespace posenc::load {

// Returns the compressed V2 encoding in base64: "HISTFAAA...". Empty if memory
// is short.
std::string EncodeHistogram(const Histogram& histogram);

// Returns the start of a log: comments ("#[...]") and the names of the columns.
std::string HdrLogHeader(absl::Time start);

// Returns the line of an interval that began `offset` after the log's start.
// `tag` may be empty; commas and white space in it become '_', since they
// separate columns. Values in the histogram are ns, but the column of the
// greatest value is ms, as readers expect.
std::string HdrLogLine(const std::string& tag, absl::Duration offset,
                       absl::Duration length, const Histogram& histogram);

}  // namespace posenc::load
