// Slices that are written past the caches although they, or their halves, are
// no whole cache lines. Part of kernels.inl.
//
//   dst      ..|--line--|--line--|--line--|--line--|..
//   slices       |---0---|---1---|---2---|---3---|
//
// They are gathered in a buffer that stays in the first-level cache, and whole
// lines of it are streamed. The first line and the last one, which others have
// a part of, are written by bytes.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/simd/kernels_bytes.inl"
#include "core/simd/kernels_slice.inl"

namespace posenc::simd {
namespace {

// What is gathered before it is streamed. Smaller pieces wait for their own
// stores, larger ones for the memory: float16 of 80 channels, 64 MB, of the
// best copy, by pieces of 320 B 0.93, of 1 KiB 0.94, of 4 KiB 0.87 (Xeon);
// float32 by 512 B 0.89, 1 KiB 0.92, 2 KiB 0.78 of a streaming copy (Zen 5).
constexpr std::size_t kPiece = 1024;

template <class Isa>
class LineStream {
 public:
  // The bytes of a slice and of what stands beside it.
  static constexpr std::size_t kMaxSlice = 2048;

  LineStream() = default;
  LineStream(const LineStream&) = delete;
  LineStream& operator=(const LineStream&) = delete;

  // For bytes that follow one another from dst on.
  void Start(char* dst) {
    others_ = reinterpret_cast<std::uintptr_t>(dst) % kLine;
    line_ = dst - others_;
    next_ = buffer_ + others_;
  }

  // Where the next bytes have to be put. Who puts some there says so.
  char* next() const { return next_; }
  void set_next(char* next) { next_ = next; }
  // As soon as they end here or behind it, Take() has to be called.
  const char* limit() const { return buffer_ + kPiece; }

  // Streams the whole lines in front of `end`. Returns the place of the next
  // bytes, which has room for a piece of small slices or one of kMaxSlice.
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

  // Writes all that is left.
  void End() {
    const char* const end = Take(next_);
    const char* const begin = buffer_ + others_;
    std::memcpy(line_ + others_, begin, static_cast<std::size_t>(end - begin));
  }

 private:
  std::size_t others_;  // bytes in front of the first, in its line
  char* line_;          // where the buffer's first byte goes
  char* next_;
  alignas(kLine) char buffer_[kLine + kPiece + kMaxSlice];
};

}  // namespace
}  // namespace posenc::simd
