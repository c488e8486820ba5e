#include "core/model/content_hash.h"

#include <openssl/sha.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "absl/strings/escaping.h"

// Canonical form, hashed byte by byte: each integer as 8 bytes little-endian,
// each double as its IEEE bits likewise with -0 as +0, each list behind its
// length. In this order:
//   1               version of this form
//   nope            1 and nothing more where the layer does not rotate
//   rotary_dim
//   slice           1 leading, 2 trailing. A slice as wide as the head is
//                   leading and trailing at once: where head_dim is known it
//                   counts as leading. head_dim itself is not part.
//   pairing, output pairing (the pairing where it is the same)
//   halves_per_axis
//   reverse
//   angle precision
//   amplitude
//   xPos            0, or 1, scale_base, gamma, center
//   heads, axes of frequencies, list of frequencies
//   list of the axis of each pair; empty where all are of axis 0
// Scaling, base, softmax multiplier and query scale are not: the first two are
// in the frequencies, the others no part of the rotation.

namespace posenc::core {
namespace {

class Bytes {
 public:
  void Integer(std::int64_t value) {
    for (int shift = 0; shift < 64; shift += 8) {
      bytes_.push_back(static_cast<unsigned char>(
          static_cast<std::uint64_t>(value) >> shift));
    }
  }
  void Double(double value) {
    Integer(std::bit_cast<std::int64_t>(value == 0 ? 0.0 : value));
  }
  std::string Sha256() const {
    unsigned char digest[SHA256_DIGEST_LENGTH];
    SHA256(bytes_.data(), bytes_.size(), digest);
    return absl::BytesToHexString(absl::string_view(
        reinterpret_cast<const char*>(digest), sizeof(digest)));
  }

 private:
  std::vector<unsigned char> bytes_;
};

}  // namespace

std::string ContentHash(const ResolvedRope& rope) {
  const RopeSpec& spec = rope.spec;
  Bytes bytes;
  bytes.Integer(1);
  bytes.Integer(spec.nope);
  if (spec.nope) return bytes.Sha256();
  bytes.Integer(spec.rotary_dim);
  bytes.Integer(spec.rotary_dim == rope.head_dim
                    ? static_cast<std::int64_t>(RotarySlice::kLeading)
                    : static_cast<std::int64_t>(spec.slice));
  bytes.Integer(static_cast<std::int64_t>(spec.pairing));
  bytes.Integer(static_cast<std::int64_t>(
      spec.output_pairing == Pairing::kUnspecified ? spec.pairing
                                                   : spec.output_pairing));
  bytes.Integer(spec.axes && spec.axes->halves_per_axis);
  bytes.Integer(spec.reverse);
  bytes.Integer(static_cast<std::int64_t>(spec.angle_precision));
  bytes.Double(rope.amplitude);
  bytes.Integer(spec.xpos.has_value());
  if (spec.xpos) {
    bytes.Double(spec.xpos->scale_base.value_or(512));
    bytes.Double(spec.xpos->gamma.value_or(0.4));
    bytes.Double(spec.xpos->center);
  }
  bytes.Integer(rope.heads);
  bytes.Integer(rope.frequency_axes);
  bytes.Integer(static_cast<std::int64_t>(rope.inv_freq.size()));
  for (const double w : rope.inv_freq) bytes.Double(w);
  const bool one_axis =
      std::all_of(rope.axis_of_pair.begin(), rope.axis_of_pair.end(),
                  [](std::int32_t axis) { return axis == 0; });
  bytes.Integer(one_axis ? 0
                         : static_cast<std::int64_t>(rope.axis_of_pair.size()));
  if (!one_axis) {
    for (const std::int32_t axis : rope.axis_of_pair) bytes.Integer(axis);
  }
  return bytes.Sha256();
}

}  // namespace posenc::core
