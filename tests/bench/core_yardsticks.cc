#include "tests/bench/core_yardsticks.h"

#include <immintrin.h>

#include <bit>
#include <cmath>
#include <cstring>

namespace posenc::bench {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kGroup = 4 * kPage;
constexpr std::size_t kStep = 4 * kLine;  // bytes of one page at a time

// The widest vector of the CPU. g++ 12 splits wider vectors through memory, and
// copies from cache to cache would take three times as long.
#if defined(__AVX512F__)
constexpr std::size_t kVector = 64;
#elif defined(__AVX2__)
constexpr std::size_t kVector = 32;
#else
constexpr std::size_t kVector = 16;
#endif
constexpr std::size_t kVectors = kLine / kVector;
using Vector =
    float __attribute__((vector_size(kVector), aligned(4), may_alias));
using Doubles = double __attribute__((vector_size(kVector), may_alias));
using Bytes = long long __attribute__((vector_size(kVector), may_alias));
struct Line {
  Vector vectors[kVectors];
};

Line Load(const char* at) {
  Line line;
  for (std::size_t i = 0; i < kVectors; ++i) {
    line.vectors[i] = *reinterpret_cast<const Vector*>(at + i * kVector);
  }
  return line;
}
void Store(const Line& line, char* at) {
  for (std::size_t i = 0; i < kVectors; ++i) {
    *reinterpret_cast<Vector*>(at + i * kVector) = line.vectors[i];
  }
}
Line Scale(Line line, float factor) {
  for (Vector& vector : line.vectors) vector *= factor;
  return line;
}
Line Scale(Line line, double factor) {
  for (Vector& vector : line.vectors) {
    reinterpret_cast<Doubles&>(vector) *= factor;
  }
  return line;
}

void Stream(const Line& line, char* at) {
  for (std::size_t i = 0; i < kVectors; ++i) {
    const auto bytes = reinterpret_cast<const Bytes&>(line.vectors[i]);
#if defined(__AVX512F__)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(at), bytes);
#elif defined(__AVX2__)
    _mm256_stream_si256(reinterpret_cast<__m256i*>(at + i * kVector), bytes);
#else
    _mm_stream_si128(reinterpret_cast<__m128i*>(at + i * kVector), bytes);
#endif
  }
}

void Fetch(const char* at) {
  for (std::size_t i = 0; i < kStep; i += kLine) __builtin_prefetch(at + i);
}

// Calls work(offset) for each kStep bytes, in groups of kPages pages.
template <std::size_t kPages, class Function>
void Walk(std::size_t bytes, const Function& work) {
  for (std::size_t group = 0; group < bytes; group += kPages * kPage) {
    for (std::size_t i = 0; i < kPage; i += kStep) {
      for (std::size_t page = 0; page < kPages; ++page) {
        work(group + page * kPage + i);
      }
    }
  }
}

template <std::size_t kPages>
void CopyPages(const void* src, void* dst, std::size_t bytes) {
  const auto* const from = static_cast<const char*>(src);
  auto* const to = static_cast<char*>(dst);
  Walk<kPages>(bytes, [&](std::size_t at) {
    Fetch(from + at + kPages * kPage);
    for (std::size_t i = 0; i < kStep; i += kLine) {
      Stream(Load(from + at + i), to + at + i);
    }
  });
  _mm_sfence();
}

// Returns 1, but the compiler does not know the value.
template <class Real>
Real One() {
  Real one = 1;
  asm volatile("" : "+x"(one));
  return one;
}

template <std::size_t kPages, class Real>
void ScalePages(Real* data, std::size_t bytes) {
  auto* const to = reinterpret_cast<char*>(data);
  const Real one = One<Real>();
  Walk<kPages>(bytes, [&](std::size_t at) {
    Fetch(to + at + kPages * kPage);
    for (std::size_t i = 0; i < kStep; i += kLine) {
      Store(Scale(Load(to + at + i), one), to + at + i);
    }
  });
}

struct Float32 {
  using Storage = float;
  using Real = float;
  static float Get(float x) { return x; }
  static float Put(float x) { return x; }
};
struct Float64 {
  using Storage = double;
  using Real = double;
  static double Get(double x) { return x; }
  static double Put(double x) { return x; }
};
struct Float16 {
  using Storage = _Float16;
  using Real = float;
  static float Get(_Float16 x) { return x; }
  static _Float16 Put(float x) { return static_cast<_Float16>(x); }
};
struct Bfloat16 {
  using Storage = std::uint16_t;
  using Real = float;
  static float Get(std::uint16_t x) {
    return std::bit_cast<float>(std::uint32_t{x} << 16);
  }
  static std::uint16_t Put(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >>
                                      16);
  }
};

template <class Dtype>
void Rotate(core::Pairing pairing, const void* src_bytes, void* dst_bytes,
            std::int64_t tokens, std::int64_t heads, std::int64_t head_dim,
            const double* cos_rows, const double* sin_rows) {
  using Real = typename Dtype::Real;
  const auto* src = static_cast<const typename Dtype::Storage*>(src_bytes);
  auto* dst = static_cast<typename Dtype::Storage*>(dst_bytes);
  const std::int64_t pairs = head_dim / 2;
  const bool half = pairing == core::Pairing::kHalfSplit;
  Real cos[1024], sin[1024];
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t i = 0; i < pairs; ++i) {
      cos[i] = static_cast<Real>(cos_rows[t * pairs + i]);
      sin[i] = static_cast<Real>(sin_rows[t * pairs + i]);
    }
    for (std::int64_t h = 0; h < heads; ++h, src += head_dim, dst += head_dim) {
      if (half) {
        for (std::int64_t i = 0; i < pairs; ++i) {
          const Real x = Dtype::Get(src[i]), y = Dtype::Get(src[i + pairs]);
          dst[i] = Dtype::Put(x * cos[i] - y * sin[i]);
          dst[i + pairs] = Dtype::Put(x * sin[i] + y * cos[i]);
        }
      } else {
        for (std::int64_t i = 0; i < pairs; ++i) {
          const Real x = Dtype::Get(src[2 * i]), y = Dtype::Get(src[2 * i + 1]);
          dst[2 * i] = Dtype::Put(x * cos[i] - y * sin[i]);
          dst[2 * i + 1] = Dtype::Put(x * sin[i] + y * cos[i]);
        }
      }
    }
  }
}

}  // namespace

void StreamCopy(const void* src, void* dst, std::size_t bytes) {
  CopyPages<1>(src, dst, bytes);
}
void StreamCopyFourPages(const void* src, void* dst, std::size_t bytes) {
  CopyPages<4>(src, dst, bytes);
}

void VectorCopy(const void* src, void* dst, std::size_t bytes) {
  const auto* const from = static_cast<const char*>(src);
  auto* const to = static_cast<char*>(dst);
  for (std::size_t i = 0; i < bytes; i += 2 * kLine) {
    const Line a = Load(from + i), b = Load(from + i + kLine);
    Store(a, to + i);
    Store(b, to + i + kLine);
  }
}

template <class Real>
void VectorScale(Real* data, std::size_t bytes) {
  auto* const to = reinterpret_cast<char*>(data);
  const Real one = One<Real>();
  for (std::size_t i = 0; i < bytes; i += 2 * kLine) {
    const Line a = Scale(Load(to + i), one),
               b = Scale(Load(to + i + kLine), one);
    Store(a, to + i);
    Store(b, to + i + kLine);
  }
}
template <class Real>
void FetchingScale(Real* data, std::size_t bytes) {
  ScalePages<1>(data, bytes);
}
template <class Real>
void FetchingScaleFourPages(Real* data, std::size_t bytes) {
  ScalePages<4>(data, bytes);
}
template void VectorScale(float*, std::size_t);
template void VectorScale(double*, std::size_t);
template void FetchingScale(float*, std::size_t);
template void FetchingScale(double*, std::size_t);
template void FetchingScaleFourPages(float*, std::size_t);
template void FetchingScaleFourPages(double*, std::size_t);

void StreamFill(void* dst, std::size_t bytes) {
  auto* const to = static_cast<char*>(dst);
  Line x = {};
  for (Vector& vector : x.vectors) vector += 1.0F;
  for (std::size_t i = 0; i < bytes; i += kLine) Stream(x, to + i);
  _mm_sfence();
}

void NaiveRotate(core::Dtype dtype, core::Pairing pairing, const void* src,
                 void* dst, std::int64_t tokens, std::int64_t heads,
                 std::int64_t head_dim, const double* cos, const double* sin) {
  switch (dtype) {
    case core::Dtype::kFloat64:
      return Rotate<Float64>(pairing, src, dst, tokens, heads, head_dim, cos,
                             sin);
    case core::Dtype::kFloat16:
      return Rotate<Float16>(pairing, src, dst, tokens, heads, head_dim, cos,
                             sin);
    case core::Dtype::kBfloat16:
      return Rotate<Bfloat16>(pairing, src, dst, tokens, heads, head_dim, cos,
                              sin);
    default:
      return Rotate<Float32>(pairing, src, dst, tokens, heads, head_dim, cos,
                             sin);
  }
}

void NaiveTable(const double* inv_freq, std::int64_t rows, std::int64_t pairs,
                float* cos, float* sin) {
  for (std::int64_t p = 0; p < rows; ++p) {
    for (std::int64_t i = 0; i < pairs; ++i) {
      const double phi = static_cast<double>(p) * inv_freq[i];
      cos[p * pairs + i] = static_cast<float>(std::cos(phi));
      sin[p * pairs + i] = static_cast<float>(std::sin(phi));
    }
  }
}

}  // namespace posenc::bench
