// Casts of a vector's bits. Part of kernels.inl.

#pragma once

#include <xsimd/xsimd.hpp>

namespace posenc::simd {
namespace {

// The same bits as a vector of another type. xsimd 8 takes the vector's type,
// and later versions that of its elements.
template <class To, class From>
To BitCast(const From& x) {
#if XSIMD_VERSION_MAJOR < 9
  return xsimd::bitwise_cast<To>(x);
#else
  return xsimd::bitwise_cast<typename To::value_type>(x);
#endif
}

}  // namespace
}  // namespace posenc::simd
