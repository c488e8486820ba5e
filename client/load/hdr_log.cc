#include "client/load/hdr_log.h"

#include <zlib.h>

#include <bit>
#include <cstdint>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace posenc::load {
namespace {

// The cookies of the V2 encoding and of its compressed form. 0x10 means that
// counts are varints, not words of a fixed size.
constexpr std::uint32_t kEncodingCookie = 0x1c849303 | 0x10;
constexpr std::uint32_t kCompressedCookie = 0x1c849304 | 0x10;

void PutBigEndian(std::uint64_t value, int bytes, std::string* out) {
  for (int i = bytes - 1; i >= 0; --i) {
    out->push_back(static_cast<char>(value >> (8 * i)));
  }
}

// ZigZag maps 0, -1, 1, -2 ... to 0, 1, 2, 3 ...; then each byte has 7 bits,
// the lowest first, and its top bit means that more follow. After 8 such bytes,
// a ninth has the remaining 8 of 64 bits. (Protobuf's varints have up to ten
// bytes.)
void PutVarint(std::int64_t value, std::string* out) {
  std::uint64_t bits = (static_cast<std::uint64_t>(value) << 1) ^
                       static_cast<std::uint64_t>(value >> 63);
  for (int i = 0; i < 8 && bits >= 0x80; ++i) {
    out->push_back(static_cast<char>(bits | 0x80));
    bits >>= 7;
  }
  out->push_back(static_cast<char>(bits));
}

}  // namespace

std::string EncodeHistogram(const Histogram& histogram) {
  std::string counts;
  const std::size_t end =
      histogram.count() ? Histogram::IndexOf(histogram.max()) + 1 : 0;
  for (std::size_t i = 0; i < end;) {
    if (histogram.counts()[i] != 0) {
      PutVarint(histogram.counts()[i++], &counts);
      continue;
    }
    // n > 1 empty buckets in a row are written as -n, a single one as 0.
    std::int64_t zeros = 0;
    for (; i < end && histogram.counts()[i] == 0; ++i) ++zeros;
    PutVarint(zeros == 1 ? 0 : -zeros, &counts);
  }

  std::string encoded;
  PutBigEndian(kEncodingCookie, 4, &encoded);
  PutBigEndian(counts.size(), 4, &encoded);
  PutBigEndian(0, 4, &encoded);  // normalizing index offset
  PutBigEndian(Histogram::kDigits, 4, &encoded);
  PutBigEndian(Histogram::kLowest, 8, &encoded);
  PutBigEndian(Histogram::kHighest, 8, &encoded);
  // The ratio is 1: the histogram's integers are the values.
  PutBigEndian(std::bit_cast<std::uint64_t>(1.0), 8, &encoded);
  encoded += counts;

  uLongf size = compressBound(encoded.size());
  std::string deflated(size, '\0');
  // Fails only if memory is short: the output has room for compressBound()
  // bytes.
  if (compress2(reinterpret_cast<Bytef*>(deflated.data()), &size,
                reinterpret_cast<const Bytef*>(encoded.data()), encoded.size(),
                Z_BEST_COMPRESSION) != Z_OK) {
    return "";
  }
  std::string out;
  PutBigEndian(kCompressedCookie, 4, &out);
  PutBigEndian(size, 4, &out);
  out.append(deflated, 0, size);
  return absl::Base64Escape(out);
}

std::string HdrLogHeader(absl::Time start) {
  return absl::StrFormat(
      "#[Logged with posenc-load]\n"
      "#[Histogram log format version 1.3]\n"
      "#[StartTime: %.3f (seconds since epoch), %s]\n"
      "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\","
      "\"Interval_Compressed_Histogram\"\n",
      absl::ToDoubleSeconds(start - absl::UnixEpoch()),
      absl::FormatTime("%a %b %d %H:%M:%S UTC %Y", start, absl::UTCTimeZone()));
}

std::string HdrLogLine(const std::string& tag, absl::Duration offset,
                       absl::Duration length, const Histogram& histogram) {
  std::string clean = tag;
  for (char& c : clean) {
    if (c == ',' || c == ' ' || c == '\n' || c == '\r') c = '_';
  }
  return absl::StrFormat(
      "%s%.3f,%.3f,%.3f,%s\n",
      clean.empty() ? "" : absl::StrCat("Tag=", clean, ","),
      absl::ToDoubleSeconds(offset), absl::ToDoubleSeconds(length),
      static_cast<double>(histogram.max()) / 1e6, EncodeHistogram(histogram));
}

}  // namespace posenc::load
