#include "core/interpretation/formats/gguf_reader.h"

#include <algorithm>
#include <bit>
#include <cstddef>

namespace posenc::core::interpretation {
namespace {

constexpr std::size_t kPiece = std::size_t{64} << 10;
// Bound on the memory of all names and values that are kept. A usual model
// needs less than 1 MiB. A list of bools takes eight times its size in the
// file.
constexpr std::uint64_t kMaxKept = std::uint64_t{64} << 20;

static_assert(std::endian::native == std::endian::little);

}  // namespace

bool GgufReader::Needs(std::uint64_t n, absl::string_view what,
                       std::uint64_t begin) {
  if (!ok()) return false;
  if (n <= left()) return true;
  Fail("ends at byte ", source_.size, "; ", what, " of ", n,
       " bytes begins at byte ", begin);
  return false;
}

std::string GgufReader::Text(std::uint64_t kept) {
  const std::uint64_t begin = at_;
  const auto length = Scalar<std::uint64_t>("a string's length");
  if (!Needs(length, "a string", begin)) return "";
  std::string text;
  if (length > kept) {
    Skip(length);
  } else {
    text.resize(length);
    Copy(text.data(), length);
  }
  return text;
}

void GgufReader::Keep(std::uint64_t bytes) {
  kept_ += bytes;
  if (kept_ > kMaxKept) {
    Fail("names and values that would be kept have more than ", kMaxKept,
         " bytes");
  }
}

void GgufReader::Copy(char* to, std::size_t n) {
  while (n > 0 && ok()) {
    if (at_ < begin_ || at_ >= begin_ + piece_.size()) {
      begin_ = at_;
      piece_.resize(std::min<std::uint64_t>(kPiece, left()));
      const absl::Status read =
          source_.read(begin_, piece_.data(), piece_.size());
      if (!read.ok()) {
        status_ = read;
        piece_.clear();
        return;
      }
    }
    const std::size_t start = at_ - begin_;
    const std::size_t have = std::min(n, piece_.size() - start);
    std::memcpy(to, piece_.data() + start, have);
    to += have;
    n -= have;
    at_ += have;
  }
}

}  // namespace posenc::core::interpretation
