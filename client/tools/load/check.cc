#include "client/tools/load/check.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/tools/check/element.h"
#include "client/tools/check/rotated_heads.h"
#include "client/tools/check/rounding.h"
#include "core/base/status_macros.h"
#include "posenc/wire/frame.h"

namespace posenc::load {
namespace {

// In a larger tensor, about this number of elements is checked: all elements of
// evenly spread tokens. Such a check takes a second instead of minutes.
constexpr std::int64_t kCheckedElements = std::int64_t{1} << 21;

// Bound on the relative error of angles. The server may round a frequency to
// the float64 next to the frequency that this file computes. The relative
// difference of the two frequencies is at most 2^-52.
constexpr long double kAngleError = 0x1p-52L;

// Returns the rotation of the workload's encoding: half-split pairs with the
// default frequencies, or the preset as the server resolved it.
absl::StatusOr<check::TokenRotation> RotationOf(
    const v1::ResolveRopeResponse* rope, std::int64_t head_dim) {
  if (rope != nullptr) return check::TokenRotation::Of(*rope, head_dim);
  check::TokenRotation rotation;
  rotation.angle_error = kAngleError;
  for (std::int64_t i = 0; i < head_dim / 2; ++i) {
    // The contract's default frequency, 10000^(-2i/d), as a float64.
    rotation.frequencies.push_back(static_cast<double>(
        std::pow(10000.0L, -2.0L * static_cast<long double>(i) /
                               static_cast<long double>(head_dim))));
  }
  rotation.before.pairs = head_dim / 2;
  rotation.after = rotation.before;
  return rotation;
}

absl::Status Wrong(const std::string& rpc, std::int64_t index, double actual,
                   long double expected) {
  return absl::DataLossError(
      absl::StrCat(rpc, ": element ", index, " of the answer is ", actual,
                   "; must be ", static_cast<double>(expected)));
}

// Checks an answer's dtype, shape and number of bytes.
absl::Status CheckForm(const std::string& rpc, const v1::Tensor& got,
                       v1::Dtype dtype,
                       const std::vector<std::int64_t>& shape) {
  const std::vector<std::int64_t> actual(got.shape().begin(),
                                         got.shape().end());
  if (got.dtype() == dtype && actual == shape &&
      got.data().size() ==
          static_cast<std::size_t>(check::ElementCount(shape)) *
              wire::ElementBytes(dtype)) {
    return absl::OkStatus();
  }
  return absl::DataLossError(
      absl::StrCat(rpc, ": the answer is ", check::ShapeText(actual), " of ",
                   check::DtypeName(got.dtype()), "; must be ",
                   check::ShapeText(shape), " of ", check::DtypeName(dtype)));
}

// Checks that `got` is the tensor `sent`, [B, S, H, D], after a rotation of
// each token s to position start + s * step.
absl::Status CheckHeads(const std::string& rpc, const v1::Tensor& sent,
                        const v1::Tensor& got,
                        const check::TokenRotation& rotation,
                        std::int64_t start, std::int64_t step) {
  const TensorView before = ViewOf(sent);
  RETURN_IF_ERROR(CheckForm(rpc, got, before.dtype, before.shape));
  ASSIGN_OR_RETURN(const auto sent_heads,
                   check::HeadsView::Of(before, v1::LAYOUT_BSHD));
  const check::HeadsView got_heads{ViewOf(got), sent_heads.index};
  const check::RoundingBound bound(before.dtype);
  absl::Status status;
  check::VisitRotatedHeads(
      rotation, sent_heads, got_heads,
      [&](std::int64_t token) {
        return static_cast<long double>(start + token * step);
      },
      (check::ElementCount(before.shape) + kCheckedElements - 1) /
          kCheckedElements,
      [&](const check::RotatedElement& element) {
        const bool right =
            element.passes_through
                ? element.same_bytes
                : bound.Allows(element.actual, element.exact,
                               static_cast<double>(element.terms),
                               static_cast<double>(element.from_angle));
        if (right) return true;
        status = Wrong(rpc, element.index, element.actual, element.exact);
        return false;
      });
  return status;
}

absl::Status Parse(const std::string& rpc, const std::string& request,
                   const std::string& answer, google::protobuf::Message* sent,
                   google::protobuf::Message* got) {
  if (sent->ParseFromString(request) && got->ParseFromString(answer)) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat(rpc, ": the answer does not parse"));
}

}  // namespace

absl::Status CheckAnswer(const std::string& rpc, const std::string& request,
                         const std::string& answer,
                         const v1::ResolveRopeResponse* preset_rope) {
  if (rpc == "ApplyRope") {
    v1::ApplyRopeRequest sent;
    v1::ApplyRopeResponse got;
    RETURN_IF_ERROR(Parse(rpc, request, answer, &sent, &got));
    ASSIGN_OR_RETURN(const auto rotation,
                     RotationOf(preset_rope, sent.q().shape(3)));
    return CheckHeads(rpc, sent.q(), got.q(), rotation,
                      sent.positions().start(), 1);
  }
  if (rpc == "Reposition") {
    v1::RepositionRequest sent;
    v1::RepositionResponse got;
    RETURN_IF_ERROR(Parse(rpc, request, answer, &sent, &got));
    ASSIGN_OR_RETURN(auto rotation, RotationOf(preset_rope, sent.k().shape(3)));
    rotation.attention_factor = 1;  // the keys already include the factor
    return CheckHeads(rpc, sent.k(), got.k(), rotation, sent.movement().shift(),
                      0);
  }
  return absl::OkStatus();
}

}  // namespace posenc::load
