#include "client/load/check.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/check/element.h"
#include "client/check/rotated_heads.h"
#include "client/check/rounding.h"
#include "client/flags/status_macros.h"
#include "posenc/wire/frame.h"

namespace posenc::load {
namespace {

// About this number of elements is checked of a larger tensor, in whole tokens
// (rows of a table) that are spread evenly: a second's work rather than
// minutes.
constexpr std::int64_t kCheckedElements = std::int64_t{1} << 21;

// Returns the distance of checked tokens.
std::int64_t Stride(std::int64_t elements) {
  return (elements + kCheckedElements - 1) / kCheckedElements;
}

// Bound on the relative error of angles. Frequencies computed here differ from
// the server's by one rounding, at most two units of float64.
constexpr long double kAngleError = 0x1p-52L;

// Returns the contract's default frequency, 10000^(-2i/d), as a float64.
double Frequency(std::int64_t i, std::int64_t dim) {
  return static_cast<double>(std::pow(
      10000.0L,
      -2.0L * static_cast<long double>(i) / static_cast<long double>(dim)));
}

// Returns the rotation of the workload's encoding: half-split pairs with the
// default frequencies, or the preset as the server resolved it.
absl::StatusOr<check::TokenRotation> RotationOf(
    const v1::ResolveRopeResponse* rope, std::int64_t head_dim) {
  if (rope != nullptr) return check::TokenRotation::Of(*rope, head_dim);
  check::TokenRotation rotation;
  rotation.angle_error = kAngleError;
  for (std::int64_t i = 0; i < head_dim / 2; ++i) {
    rotation.frequencies.push_back(Frequency(i, head_dim));
  }
  rotation.before.pairs = head_dim / 2;
  rotation.after = rotation.before;
  return rotation;
}

// Returns the largest error of a cosine or sine due to its angle.
double AngleError(long double angle) {
  return static_cast<double>(std::fabs(angle) * kAngleError);
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

// Checks that `got` is `sent`, [B, S, H, D], with token s rotated to position
// start + s * step.
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
      Stride(check::ElementCount(before.shape)),
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

// Checks cosines and sines, one row for each position.
absl::Status CheckTable(const v1::BuildTableRequest& request,
                        const v1::BuildTableResponse& response,
                        const check::TokenRotation& rotation) {
  const auto pairs = static_cast<std::int64_t>(rotation.frequencies.size());
  const check::RoundingBound bound(request.dtype());
  const auto factor = static_cast<double>(rotation.attention_factor);
  for (const bool is_cos : {true, false}) {
    const v1::Tensor& got = is_cos ? response.cos() : response.sin();
    RETURN_IF_ERROR(
        CheckForm("BuildTable", got, request.dtype(), {request.rows(), pairs}));
    const TensorView table = ViewOf(got);
    const std::int64_t stride = Stride(request.rows() * pairs);
    for (std::int64_t row = 0; row < request.rows(); row += stride) {
      for (std::int64_t i = 0; i < pairs; ++i) {
        const long double angle =
            static_cast<long double>(request.positions().start() + row) *
            rotation.frequencies[i];
        const long double exact = rotation.attention_factor *
                                  (is_cos ? std::cos(angle) : std::sin(angle));
        const double actual = check::ElementAt(table, row * pairs + i);
        if (!bound.Allows(actual, exact, static_cast<double>(std::fabs(exact)),
                          AngleError(angle) * factor)) {
          return Wrong("BuildTable", row * pairs + i, actual, exact);
        }
      }
    }
  }
  return absl::OkStatus();
}

// Checks the sum of x and sinusoidal rows, interleaved: channel 2i has the
// sine, 2i + 1 the cosine of one angle.
absl::Status CheckSum(const v1::AddEncodingRequest& request,
                      const v1::AddEncodingResponse& response) {
  const TensorView x = ViewOf(request.x());
  const TensorView y = ViewOf(response.x());
  RETURN_IF_ERROR(CheckForm("AddEncoding", response.x(), x.dtype, x.shape));
  const std::int64_t tokens = x.shape[1];
  const std::int64_t dim = x.shape[2];
  const std::int64_t stride = Stride(check::ElementCount(x.shape));
  const check::RoundingBound bound(x.dtype);
  for (std::int64_t s = 0; s < tokens; s += stride) {
    for (std::int64_t i = 0; i < dim; ++i) {
      const long double angle =
          static_cast<long double>(request.positions().start() + s) *
          Frequency(i / 2, dim);
      const long double encoding = i % 2 ? std::cos(angle) : std::sin(angle);
      for (std::int64_t b = 0; b < x.shape[0]; ++b) {
        const std::int64_t index = (b * tokens + s) * dim + i;
        const long double sent = check::ElementAt(x, index);
        const double actual = check::ElementAt(y, index);
        if (!bound.Allows(
                actual, sent + encoding,
                static_cast<double>(std::fabs(sent) + std::fabs(encoding)),
                AngleError(angle))) {
          return Wrong("AddEncoding", index, actual, sent + encoding);
        }
      }
    }
  }
  return absl::OkStatus();
}

// Checks frequencies to one unit of float64, and that there is a content hash.
absl::Status CheckFrequencies(const v1::ResolveRopeRequest& request,
                              const v1::ResolveRopeResponse& response) {
  const int pairs = response.inv_freq_size();
  if (pairs == 0 || response.content_hash().size() != 64) {
    return absl::DataLossError(absl::StrCat(
        "ResolveRope: ", pairs, " frequencies and a hash of ",
        response.content_hash().size(), " digits; must be some and 64"));
  }
  for (int i = 0; i < pairs; ++i) {
    const double actual = response.inv_freq(i);
    // A preset's frequencies have no reference here; they must only be finite.
    if (!request.rope().has_spec()) {
      if (!std::isfinite(actual)) return Wrong("ResolveRope", i, actual, 0);
      continue;
    }
    const double expected = Frequency(i, request.head_dim());
    if (std::fabs(actual - expected) > expected * 0x1p-52) {
      return Wrong("ResolveRope", i, actual, expected);
    }
  }
  return absl::OkStatus();
}

// Parses both, and calls `check`.
template <typename Request, typename Response, typename Check>
absl::Status CheckAs(const std::string& rpc, const std::string& request,
                     const std::string& answer, const Check& check) {
  Request sent;
  Response got;
  if (!sent.ParseFromString(request) || !got.ParseFromString(answer)) {
    return absl::DataLossError(
        absl::StrCat(rpc, ": the answer does not parse"));
  }
  return check(sent, got);
}

}  // namespace

absl::Status CheckAnswer(const std::string& rpc, const std::string& request,
                         const std::string& answer,
                         const v1::ResolveRopeResponse* preset_rope) {
  if (rpc == "ApplyRope") {
    return CheckAs<v1::ApplyRopeRequest, v1::ApplyRopeResponse>(
        rpc, request, answer,
        [&](const auto& sent, const auto& got) -> absl::Status {
          ASSIGN_OR_RETURN(const auto rotation,
                           RotationOf(preset_rope, sent.q().shape(3)));
          return CheckHeads(rpc, sent.q(), got.q(), rotation,
                            sent.positions().start(), 1);
        });
  }
  if (rpc == "Reposition") {
    return CheckAs<v1::RepositionRequest, v1::RepositionResponse>(
        rpc, request, answer,
        [&](const auto& sent, const auto& got) -> absl::Status {
          ASSIGN_OR_RETURN(auto rotation,
                           RotationOf(preset_rope, sent.k().shape(3)));
          rotation.attention_factor = 1;  // the rotated keys include it
          return CheckHeads(rpc, sent.k(), got.k(), rotation,
                            sent.movement().shift(), 0);
        });
  }
  if (rpc == "BuildTable") {
    return CheckAs<v1::BuildTableRequest, v1::BuildTableResponse>(
        rpc, request, answer,
        [&](const auto& sent, const auto& got) -> absl::Status {
          ASSIGN_OR_RETURN(
              const auto rotation,
              RotationOf(preset_rope, sent.rope().spec().rotary_dim()));
          return CheckTable(sent, got, rotation);
        });
  }
  if (rpc == "AddEncoding") {
    return CheckAs<v1::AddEncodingRequest, v1::AddEncodingResponse>(
        rpc, request, answer, CheckSum);
  }
  return CheckAs<v1::ResolveRopeRequest, v1::ResolveRopeResponse>(
      rpc, request, answer, CheckFrequencies);
}

}  // namespace posenc::load
