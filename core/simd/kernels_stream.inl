// Fetches bytes, copies them, or writes them with non-temporal stores. Part of
// kernels.inl.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <xsimd/xsimd.hpp>

namespace posenc::simd {
namespace {

constexpr std::size_t kLine = 64;  // size of a cache line
constexpr std::size_t kPage = 4096;

// Prefetches bytes. Fetch() is always inlined, because g++ 12 would remove a
// call of a function that seems to have no effect. kCache is 3 for the
// first-level cache, and 2 for the second-level cache.
template <int kCache>
[[gnu::always_inline]] inline void Fetch(const char* at, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += kLine) {
    __builtin_prefetch(at + i, 0, kCache);
  }
}

// Copies the first and the last kSize bytes. Together these two parts are all
// bytes, because bytes <= 2 * kSize.
template <std::size_t kSize>
[[gnu::always_inline]] inline void CopyEnds(const char* src, char* dst,
                                            std::size_t bytes) {
  char first[kSize], last[kSize];
  std::memcpy(first, src, kSize);
  std::memcpy(last, src + bytes - kSize, kSize);
  std::memcpy(dst, first, kSize);
  std::memcpy(dst + bytes - kSize, last, kSize);
}

// Copies by vectors. The last vector may overlap the previous vector.
template <class Isa>
[[gnu::always_inline]] inline void CopyBytes(const char* src, char* dst,
                                             std::size_t bytes) {
  using Bytes = xsimd::batch<std::uint8_t, typename Isa::Arch>;
  constexpr std::size_t kSize = Bytes::size;
  const auto copy = [&](std::size_t at) {
    Bytes::load_unaligned(reinterpret_cast<const std::uint8_t*>(src + at))
        .store_unaligned(reinterpret_cast<std::uint8_t*>(dst + at));
  };
  if (bytes < kSize) {
    if (bytes >= 32) return CopyEnds<32>(src, dst, bytes);
    if (bytes >= 16) return CopyEnds<16>(src, dst, bytes);
    if (bytes >= 8) return CopyEnds<8>(src, dst, bytes);
    for (std::size_t i = 0; i < bytes; ++i) dst[i] = src[i];
    return;
  }
  for (std::size_t i = 0; i + kSize <= bytes; i += kSize) copy(i);
  if (bytes % kSize != 0) copy(bytes - kSize);
}

// Copies whole cache lines with non-temporal stores.
template <class Isa>
void StreamBytes(const char* src, char* dst, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += kLine) {
    Isa::StreamLine(src + i, dst + i);
  }
}

// Writes slices that are not whole cache lines with non-temporal stores:
//
//   dst      ..|--line--|--line--|--line--|--line--|..
//   slices       |---0---|---1---|---2---|---3---|
//
// LineStream gathers slices in a buffer that stays in the first-level cache,
// and streams whole lines of the buffer. The first and the last line may
// contain other bytes, too, so plain stores write these two lines.
template <class Isa>
class LineStream {
 public:
  // The fastest size of a piece that is gathered and then streamed. Smaller
  // pieces wait for their own stores, and larger pieces wait for the memory
  // (Xeon).
  static constexpr std::size_t kPiece = 1024;
  // The greatest size that is gathered.
  static constexpr std::size_t kMaxBytes = 2048;

  LineStream() = default;
  LineStream(const LineStream&) = delete;
  LineStream& operator=(const LineStream&) = delete;

  // Begins a run of bytes at dst. Returns the address for the next bytes, which
  // has space for kMaxBytes.
  char* Start(char* dst) {
    others_ = reinterpret_cast<std::uintptr_t>(dst) % kLine;
    line_ = dst - others_;
    return buffer_ + others_;
  }

  // Streams the whole lines before `end`, and returns the address for the next
  // bytes.
  char* Take(char* end) {
    const auto bytes = static_cast<std::size_t>(end - buffer_);
    const std::size_t whole = bytes / kLine * kLine;
    if (whole == 0) return end;
    std::size_t from = 0;
    if (others_ > 0) {
      std::memcpy(line_ + others_, buffer_ + others_, kLine - others_);
      others_ = 0;
      from = kLine;
    }
    StreamBytes<Isa>(buffer_ + from, line_ + from, whole - from);
    line_ += whole;
    if (whole != bytes) std::memcpy(buffer_, buffer_ + whole, kLine);
    return end - whole;
  }

  // Writes the remaining bytes before `end`.
  void End(char* end) {
    end = Take(end);
    const char* const begin = buffer_ + others_;
    std::memcpy(line_ + others_, begin, static_cast<std::size_t>(end - begin));
  }

 private:
  std::size_t others_;  // bytes in the cache line before the run
  char* line_;          // the address in dst of buffer_[0]
  alignas(kLine) char buffer_[kLine + kMaxBytes];
};

}  // namespace
}  // namespace posenc::simd
