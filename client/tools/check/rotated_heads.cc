#include "client/tools/check/rotated_heads.h"

#include <cmath>
#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/tools/check/element.h"
#include "posenc/wire/frame.h"

namespace posenc::check {
namespace {

absl::Status Unsupported(absl::string_view what) {
  return absl::UnimplementedError(
      absl::StrCat("check: ", what, " is not checked"));
}

// Calls `visit` for each channel of one head. Returns false if `visit` returned
// false.
bool VisitHead(const TokenRotation& rotation, const TensorView& before,
               const TensorView& after, std::int64_t head,
               std::int64_t head_dim, const std::vector<long double>& cosines,
               const std::vector<long double>& sines,
               const std::vector<long double>& angle_errors,
               absl::FunctionRef<bool(const RotatedElement& element)> visit) {
  const auto pairs = static_cast<std::int64_t>(rotation.frequencies.size());
  for (std::int64_t i = 0; i < pairs; ++i) {
    const PairChannels from = rotation.before.Channels(i);
    const PairChannels to = rotation.after.Channels(i);
    RotatedElement element;
    element.pair = i;
    element.x = ElementAt(before, head + from.x);
    element.y = ElementAt(before, head + from.y);
    // An error e of the angle moves the pair by at most e (|x| + |y|).
    element.from_angle = angle_errors[i] * rotation.attention_factor *
                         (std::fabs(element.x) + std::fabs(element.y));
    const RotatedPair<long double> exact =
        RotatePair(element.x, element.y, cosines[i], sines[i]);
    element.index = head + to.x;
    element.actual = ElementAt(after, element.index);
    element.exact = exact.x;
    element.terms = exact.x_terms;
    if (!visit(element)) return false;
    element.index = head + to.y;
    element.actual = ElementAt(after, element.index);
    element.exact = exact.y;
    element.terms = exact.y_terms;
    if (!visit(element)) return false;
  }
  const std::int64_t size =
      static_cast<std::int64_t>(wire::ElementBytes(before.dtype));
  const std::int64_t first = rotation.before.first;
  for (std::int64_t channel = 0; channel < head_dim; ++channel) {
    if (channel == first) channel += 2 * pairs;
    if (channel >= head_dim) break;
    RotatedElement element;
    element.index = head + channel;
    element.actual = ElementAt(after, element.index);
    element.exact = ElementAt(before, element.index);
    element.passes_through = true;
    element.same_bytes = std::memcmp(before.bytes.data() + element.index * size,
                                     after.bytes.data() + element.index * size,
                                     static_cast<std::size_t>(size)) == 0;
    if (!visit(element)) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<TokenRotation> TokenRotation::Of(
    const v1::ResolveRopeResponse& rope, std::int64_t head_dim) {
  const v1::RopeSpec& spec = rope.spec();
  const std::int64_t pairs = spec.rotary_dim() / 2;
  if (spec.nope()) return Unsupported("an encoding without rotation");
  if (spec.has_xpos()) return Unsupported("xPos");
  if (spec.angle_precision() == v1::ANGLE_PRECISION_FLOAT32) {
    return Unsupported("float32 angles");
  }
  // This check gives a token the same position on every axis. Axes therefore
  // matter only if frequencies differ by axis.
  if (rope.inv_freq_size() != pairs) {
    return Unsupported("frequencies that differ by head or axis");
  }
  TokenRotation rotation;
  rotation.frequencies.assign(rope.inv_freq().begin(), rope.inv_freq().end());
  rotation.attention_factor = rope.amplitude();
  rotation.reverse = spec.reverse();
  rotation.before.interleaved = spec.pairing() == v1::PAIRING_INTERLEAVED;
  rotation.before.pairs = pairs;
  if (spec.slice() == v1::ROTARY_SLICE_TRAILING) {
    rotation.before.first = head_dim - spec.rotary_dim();
  }
  rotation.after = rotation.before;
  if (spec.output_pairing() != v1::PAIRING_UNSPECIFIED) {
    rotation.after.interleaved =
        spec.output_pairing() == v1::PAIRING_INTERLEAVED;
  }
  rotation.angle_error = 0x1p-64L;
  return rotation;
}

absl::StatusOr<HeadsView> HeadsView::Of(const TensorView& tensor,
                                        v1::Layout layout) {
  // Leaves out the prefix of a name such as "LAYOUT_BSHD".
  const std::string order =
      absl::AsciiStrToLower(v1::Layout_Name(layout).substr(7));
  if (tensor.shape.size() != order.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "shape ", ShapeText(tensor.shape), " has ", tensor.shape.size(),
        " extents; the layout has ", order.size()));
  }
  return HeadsView{tensor, HeadIndex::Of(order, tensor.shape)};
}

void VisitRotatedHeads(
    const TokenRotation& rotation, const HeadsView& before,
    const HeadsView& after,
    absl::FunctionRef<long double(std::int64_t token)> position,
    std::int64_t token_step,
    absl::FunctionRef<bool(const RotatedElement& element)> visit) {
  const HeadIndex& index = before.index;
  const std::size_t pairs = rotation.frequencies.size();
  std::vector<long double> cosines(pairs), sines(pairs), angle_errors(pairs);
  for (std::int64_t s = 0; s < index.tokens; s += token_step) {
    const long double p = rotation.reverse ? -position(s) : position(s);
    for (std::size_t i = 0; i < pairs; ++i) {
      const long double angle = p * rotation.frequencies[i];
      cosines[i] = rotation.attention_factor * std::cos(angle);
      sines[i] = rotation.attention_factor * std::sin(angle);
      angle_errors[i] = std::fabs(angle) * rotation.angle_error;
    }
    for (std::int64_t b = 0; b < index.batch; ++b) {
      for (std::int64_t h = 0; h < index.heads; ++h) {
        if (!VisitHead(rotation, before.tensor, after.tensor,
                       index.Offset(b, s, h), index.head_dim, cosines, sines,
                       angle_errors, visit)) {
          return;
        }
      }
    }
  }
}

}  // namespace posenc::check
