#include "core/interpretation/content_hash.h"

#include <openssl/sha.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "absl/strings/escaping.h"
#include "core/rope/xpos.h"

namespace posenc::core::interpretation {
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
  bytes.Double(rope.attention_factor);
  bytes.Integer(spec.xpos.has_value());
  if (spec.xpos) {
    bytes.Double(spec.xpos->scale_base.value_or(kXPosScaleBase));
    bytes.Double(spec.xpos->gamma.value_or(kXPosGamma));
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

}  // namespace posenc::core::interpretation
