// Describes how the heads of one tensor are rotated: the rotated channels, and
// the kernel. ApplyRope and Reposition use this description.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/tensor.h"
#include "core/rope/spec.h"
#include "core/rotation/quantised_rows.h"
#include "core/simd/kernels.h"

namespace posenc::core {

// A run of channels that contains whole pairs. All rotated channels are one
// segment, unless each axis splits its own channels into halves: then each axis
// that has pairs has its own segment.
struct Segment {
  std::int64_t channel;
  std::int64_t first_pair;
  std::int64_t pairs;

  bool operator==(const Segment&) const = default;
};

// The segments of a head of head_dim channels; none for NoPE.
std::vector<Segment> SegmentsOf(const RopeSpec& spec, std::int64_t head_dim);

// The blocks of an int8 head that have rotated channels, with the blocks
// between them. These blocks rotate in float32; all other blocks pass through.
struct QuantisedSpan {
  BlockFormat format = BlockFormat::kNone;
  std::size_t first_byte = 0;
  std::size_t blocks = 0;
  std::size_t channels = 0;
};

struct HeadRotation {
  Dtype dtype = Dtype::kFloat32;
  int dtype_index = 0;      // simd::DtypeIndex
  std::size_t element = 0;  // size in bytes, for the kernel
  std::size_t head = 0;     // size in bytes
  std::vector<Segment> segments;
  // Set if the dtype is int8. The kernel then rotates floats, and the channels
  // of the segments are counted from the beginning of the span.
  std::optional<QuantisedSpan> quantised;
  // The channels that pass through, except in int8.
  std::int64_t pass_channel = 0;
  std::int64_t pass_width = 0;
  simd::RotateKernel rotate = nullptr;
  bool same_pairing = true;  // input and output have the same pairing
};

// Describes the rotation of heads of head_dim channels. `spec` decides which
// channels pass through. `spec` does not decide the segments, because they may
// belong to two encodings. Saturation matters only for FP8, and `format` only
// for int8.
HeadRotation MakeHeadRotation(Dtype dtype, Saturation saturation,
                              BlockFormat format, std::int64_t head_dim,
                              const RopeSpec& spec,
                              std::vector<Segment> segments, Pairing from,
                              Pairing to);

}  // namespace posenc::core
