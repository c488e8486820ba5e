// gguf.pairing: the order of the rows of a query projection.

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/doctor/input_checks.h"

namespace posenc::core::doctor {
namespace {

using interpretation::GgufPairing;

bool AreAlike(const std::vector<double>& a, const std::vector<double>& b,
              double tolerance) {
  const std::size_t n = std::min(a.size(), b.size());
  for (std::size_t i = 0; i < n; ++i) {
    if (!(std::abs(a[i] - b[i]) <= tolerance)) return false;
  }
  return n > 0;
}

}  // namespace

void CheckPairing(const DoctorInput& gguf, const DoctorInput& checkpoint,
                  const ConfigCase& config, std::vector<Finding>* findings) {
  if (!gguf.gguf || !gguf.query || !checkpoint.query ||
      config.reference() == nullptr) {
    return;
  }
  const ResolvedRope& rope = *config.reference()->ropes[0];
  const auto& ours = gguf.query->rows;
  const auto& theirs = checkpoint.query->rows;
  const auto d = static_cast<std::size_t>(rope.spec.rotary_dim);
  // Partial and trailing slices are permuted in another way, so they are not
  // checked.
  if (rope.spec.nope || rope.spec.rotary_dim != rope.head_dim || d < 4 ||
      ours.size() < d || theirs.size() < d) {
    return;
  }
  double most = 0;
  for (const auto& row : theirs) {
    for (const double value : row) most = std::max(most, std::abs(value));
  }
  // A conversion to another 16-bit format keeps 8 significant bits.
  const double tolerance = 0x1p-7 * most;
  bool as_it_was = true, permuted = true;
  for (std::size_t i = 0; i < d / 2; ++i) {
    as_it_was &= AreAlike(ours[i], theirs[i], tolerance) &&
                 AreAlike(ours[i + d / 2], theirs[i + d / 2], tolerance);
    permuted &= AreAlike(ours[2 * i], theirs[i], tolerance) &&
                AreAlike(ours[2 * i + 1], theirs[i + d / 2], tolerance);
  }
  if (as_it_was == permuted) return;  // different weights, or rows too similar
  const GgufPairing pairing = gguf.gguf->pairing;
  const bool right = permuted ? pairing != GgufPairing::kHalfSplit
                              : pairing != GgufPairing::kInterleaved ||
                                    rope.spec.pairing != Pairing::kHalfSplit;
  if (right) return;
  AddFinding(
      "gguf.pairing",
      {gguf.path, Say(permuted ? "pairing.permuted" : "pairing.not-permuted",
                      {gguf.query->name, gguf.gguf->architecture})},
      {gguf.path, checkpoint.path, config.path()},
      {gguf.query->name, checkpoint.query->name}, findings);
}

}  // namespace posenc::core::doctor
