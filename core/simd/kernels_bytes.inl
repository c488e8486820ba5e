// Copies of bytes as they are. Part of kernels.inl.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <xsimd/xsimd.hpp>

#include "core/simd/kernels_slice.inl"

namespace posenc::simd {
namespace {

// By vectors, the last of which may overlap the one before.
template <class Isa>
void CopyBytes(const char* src, char* dst, std::size_t bytes) {
  using Bytes = xsimd::batch<std::uint8_t, typename Isa::Arch>;
  constexpr std::size_t kSize = Bytes::size;
  const auto copy = [&](std::size_t at) {
    Bytes::load_unaligned(reinterpret_cast<const std::uint8_t*>(src + at))
        .store_unaligned(reinterpret_cast<std::uint8_t*>(dst + at));
  };
  if (bytes < kSize) {
    std::memcpy(dst, src, bytes);
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

// The least number of slices of so many bytes that fill whole cache lines.
inline std::size_t SlicesOfWholeLines(std::size_t bytes) {
  std::size_t slices = 1;
  while (slices * bytes % kLine != 0) slices *= 2;
  return slices;
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
