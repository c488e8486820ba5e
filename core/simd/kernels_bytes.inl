// Copies of bytes as they are. Part of kernels.inl.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <xsimd/xsimd.hpp>

#include "core/simd/kernels_slice.inl"

namespace posenc::simd {
namespace {

// The first and the last kSize of `bytes`, which are at most twice as many.
template <std::size_t kSize>
[[gnu::always_inline]] inline void CopyEnds(const char* src, char* dst,
                                            std::size_t bytes) {
  char first[kSize], last[kSize];
  std::memcpy(first, src, kSize);
  std::memcpy(last, src + bytes - kSize, kSize);
  std::memcpy(dst, first, kSize);
  std::memcpy(dst + bytes - kSize, last, kSize);
}

// By vectors, the last of which may overlap the one before.
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

// Copies so many bytes beside each slice, `offset` elements from it on.
template <class Dtype>
void CopyPassing(const SliceRun<Dtype>& run, std::ptrdiff_t offset,
                 std::size_t bytes) {
  constexpr auto kSize =
      static_cast<std::ptrdiff_t>(sizeof(typename Dtype::Storage));
  for (std::size_t n = 0; n < run.count; ++n) {
    const auto i = static_cast<std::ptrdiff_t>(n);
    for (std::size_t k = 0; k < run.lanes; ++k) {
      const auto* const src =
          reinterpret_cast<const char*>(run.src[k] + offset) +
          i * run.src_stride * kSize;
      auto* const dst = reinterpret_cast<char*>(run.dst[k] + offset) +
                        i * run.dst_stride * kSize;
      if (run.ahead != 0) Fetch(src + run.ahead, bytes);
      CopyBytes<typename Dtype::Isa>(src, dst, bytes);
    }
  }
}

// Whole lines.
template <class Isa>
void StreamBytes(const char* src, char* dst, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += kLine) {
    Isa::StreamLine(src + i, dst + i);
  }
}

}  // namespace
}  // namespace posenc::simd
