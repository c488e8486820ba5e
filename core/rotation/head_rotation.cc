#include "core/rotation/head_rotation.h"

#include <utility>

#include "core/simd/dispatch.h"

namespace posenc::core {
namespace {

int PairingIndexOf(Pairing pairing) {
  return pairing == Pairing::kInterleaved ? simd::kInterleaved : simd::kHalf;
}

}  // namespace

std::vector<Segment> SegmentsOf(const RopeSpec& spec, std::int64_t head_dim) {
  if (spec.nope) return {};
  const std::int64_t start = spec.slice == RotarySlice::kTrailing
                                 ? head_dim - spec.rotary_dim
                                 : std::int64_t{0};
  if (!spec.axes.has_value() || !spec.axes->halves_per_axis) {
    return {{start, 0, spec.rotary_dim / 2}};
  }
  // Each axis splits its own 2 * pairs channels into halves:
  //   | x of axis 0 | y of axis 0 | x of axis 1 | y of axis 1 | ...
  std::vector<Segment> segments;
  std::int64_t first = 0;
  for (const std::int32_t pairs : spec.axes->sections) {
    if (pairs > 0) segments.push_back({start + 2 * first, first, pairs});
    first += pairs;
  }
  return segments;
}

HeadRotation MakeHeadRotation(Dtype dtype, Saturation saturation,
                              BlockFormat format, std::int64_t head_dim,
                              const RopeSpec& spec,
                              std::vector<Segment> segments, Pairing from,
                              Pairing to) {
  HeadRotation rotation;
  rotation.dtype = dtype;
  rotation.dtype_index = KernelIndex(dtype, saturation);
  rotation.element = DtypeSize(dtype);
  rotation.head = static_cast<std::size_t>(head_dim) * rotation.element;
  rotation.segments = std::move(segments);
  const std::int64_t width = spec.nope ? 0 : spec.rotary_dim;
  rotation.pass_channel = spec.slice == RotarySlice::kTrailing ? 0 : width;
  rotation.pass_width = head_dim - width;
  rotation.rotate =
      simd::ActiveKernels().rotate[rotation.dtype_index][PairingIndexOf(from)]
                                  [PairingIndexOf(to)];
  rotation.same_pairing = PairingIndexOf(from) == PairingIndexOf(to);
  if (dtype != Dtype::kInt8) return rotation;

  rotation.element = sizeof(float);
  rotation.pass_channel = 0;
  rotation.pass_width = 0;
  const Block block = BlockOf(format);
  rotation.head =
      static_cast<std::size_t>(head_dim / block.channels) * block.bytes;
  QuantisedSpan span;
  span.format = format;
  if (!rotation.segments.empty()) {
    const Segment& last = rotation.segments.back();
    const std::int64_t first =
        rotation.segments.front().channel / block.channels;
    const std::int64_t end =
        (last.channel + 2 * last.pairs + block.channels - 1) / block.channels;
    span.first_byte = static_cast<std::size_t>(first) * block.bytes;
    span.blocks = static_cast<std::size_t>(end - first);
    span.channels = static_cast<std::size_t>((end - first) * block.channels);
    for (Segment& segment : rotation.segments) {
      segment.channel -= first * block.channels;
    }
  }
  rotation.quantised = span;
  return rotation;
}

}  // namespace posenc::core
