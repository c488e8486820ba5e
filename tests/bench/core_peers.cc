// Rotations and a table for core_peers.py, which compares them with those of
// other libraries in one process.

#include <cstddef>
#include <cstdint>
#include <functional>

#include "core/simd/dispatch.h"
#include "tests/bench/core_rotation.h"
#include "tests/bench/core_table.h"

namespace {

using posenc::bench::RotationShape;
using Call = std::function<void()>;

}  // namespace

extern "C" {

// Returns GetServerInfo's name of the instruction set.
const char* PosencIsa() { return posenc::simd::ActiveKernels().name; }

// Makes a whole call on [tokens, heads, head_dim], for PosencRun. dtype is
// numbered as posenc.v1.Dtype.
void* PosencRotation(int dtype, int interleaved, std::int64_t tokens,
                     std::int64_t heads, std::int64_t head_dim, const void* src,
                     void* dst) {
  RotationShape shape;
  shape.dtype = static_cast<posenc::core::Dtype>(dtype);
  shape.pairing = interleaved != 0 ? posenc::core::Pairing::kInterleaved
                                   : posenc::core::Pairing::kHalfSplit;
  shape.tokens = tokens;
  shape.heads = heads;
  shape.head_dim = shape.rotary_dim = head_dim;
  return new Call(posenc::bench::CallOf(
      shape, static_cast<const std::byte*>(src), static_cast<std::byte*>(dst)));
}

// Makes the table 131072 x 64 of float32, for PosencRun.
void* PosencTable(float* cos, float* sin) {
  return new Call(posenc::bench::TableOf(cos, sin).build);
}

void PosencRun(void* call) { (*static_cast<Call*>(call))(); }

void PosencFree(void* call) { delete static_cast<Call*>(call); }

}  // extern "C"
