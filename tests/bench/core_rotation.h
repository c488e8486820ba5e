// Rotations to measure: a tensor's shape, and the work on it.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "core/base/tensor.h"
#include "core/rope/spec.h"
#include "core/rotation/apply.h"

namespace posenc::bench {

// A tensor to rotate. It has the shape [tokens, heads, head_dim], or
// [1, heads, tokens, head_dim] for kBhsd.
struct RotationShape {
  core::Dtype dtype = core::Dtype::kFloat32;
  core::Pairing pairing = core::Pairing::kHalfSplit;
  core::Layout layout = core::Layout::kThd;  // or kBhsd
  std::int64_t tokens = 1;
  std::int64_t heads = 32;
  std::int64_t head_dim = 128;
  std::int64_t rotary_dim = 128;

  std::int64_t bytes() const {
    return tokens * heads * head_dim *
           static_cast<std::int64_t>(core::DtypeSize(dtype));
  }
  core::Shape shape() const {
    if (layout == core::Layout::kBhsd) return {1, heads, tokens, head_dim};
    return {tokens, heads, head_dim};
  }
};

// Ends the process with the error, if there is one.
void Require(const absl::Status& status);

// Looks up the plain encoding of base 10000, which is resolved and prepared
// once, as in a server.
core::RopeLookup LookupOf(core::Pairing pairing, std::int64_t rotary_dim,
                          std::int64_t head_dim);

// Returns the whole call, at positions 0, 1, ..: prepares, computes rows,
// rotates. dst may be src.
std::function<void()> CallOf(const RotationShape& shape, const std::byte* src,
                             std::byte* dst);

// Returns only the pass over the tensor. The cos/sin rows are ready if the
// shape has one block.
std::function<void()> PassOf(const RotationShape& shape, const std::byte* src,
                             std::byte* dst);

}  // namespace posenc::bench
