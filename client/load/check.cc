#include "client/load/check.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/element.h"

namespace posenc::load {
namespace {

struct Rotation {
  std::vector<double> frequencies;
  double amplitude = 1;
  bool interleaved = false;
};

// Of larger tensors so many elements are checked, in whole tokens (rows) spread
// evenly: a second's work rather than minutes.
constexpr std::int64_t kCheckedElements = std::int64_t{1} << 21;

std::int64_t Stride(std::int64_t elements) {
  return (elements + kCheckedElements - 1) / kCheckedElements;
}

double Frequency(std::int64_t i, std::int64_t dim) {
  return static_cast<double>(std::pow(
      10000.0L,
      -2.0L * static_cast<long double>(i) / static_cast<long double>(dim)));
}

absl::StatusOr<Rotation> RotationOf(const v1::ResolveRopeResponse* rope,
                                    std::int64_t head_dim) {
  Rotation rotation;
  if (rope == nullptr) {
    for (std::int64_t i = 0; i < head_dim / 2; ++i) {
      rotation.frequencies.push_back(Frequency(i, head_dim));
    }
    return rotation;
  }
  const v1::RopeSpec& spec = rope->spec();
  if (spec.nope() || spec.has_axes() || spec.has_xpos() || spec.reverse() ||
      spec.slice() == v1::ROTARY_SLICE_TRAILING ||
      spec.angle_precision() == v1::ANGLE_PRECISION_FLOAT32 ||
      (spec.output_pairing() != v1::PAIRING_UNSPECIFIED &&
       spec.output_pairing() != spec.pairing()) ||
      rope->inv_freq_size() * 2 != spec.rotary_dim()) {
    return absl::UnimplementedError(
        "--verify: only encodings of one axis that turn a head's leading "
        "channels exactly are checked; leave out --preset");
  }
  rotation.frequencies.assign(rope->inv_freq().begin(), rope->inv_freq().end());
  rotation.amplitude = rope->amplitude();
  rotation.interleaved = spec.pairing() == v1::PAIRING_INTERLEAVED;
  return rotation;
}

// Whether `actual` is `exact`, a sum whose terms' magnitudes add up to `terms`,
// computed in float32 (float64 for float64) and rounded once to dtype.
bool IsRounded(v1::Dtype dtype, double actual, long double exact, double terms,
               double angle_error) {
  const v1::Dtype arithmetic =
      dtype == v1::DTYPE_FLOAT64 ? v1::DTYPE_FLOAT64 : v1::DTYPE_FLOAT32;
  // Relative errors of a cosine (float64's is within 2 ulp, 4 units), of its
  // product and of the sum, and 2 units of second order terms; half a step of
  // subnormal numbers in each operation; then one rounding.
  const double unit = std::ldexp(1.0, -cli::SignificandBits(arithmetic));
  const double error =
      terms * 8 * unit + 2 * cli::UlpAt(arithmetic, 0) + angle_error;
  const double magnitude = std::fabs(static_cast<double>(exact));
  const double bound = error + 0.5 * cli::UlpAt(dtype, magnitude + error);
  return std::fabs(static_cast<double>(actual - exact)) <= bound;
}

// The angle's frequency is one rounding away from the server's: at most two
// units.
double AngleError(long double angle) {
  return static_cast<double>(std::fabs(angle)) * 0x1p-52;
}

TensorView ViewOf(const v1::Tensor& tensor) {
  TensorView view;
  view.dtype = tensor.dtype();
  view.shape.assign(tensor.shape().begin(), tensor.shape().end());
  view.bytes = absl::MakeConstSpan(tensor.data().data(), tensor.data().size());
  return view;
}

absl::Status Wrong(const std::string& rpc, std::int64_t index, double actual,
                   long double expected) {
  return absl::DataLossError(
      absl::StrCat(rpc, ": element ", index, " of the answer is ", actual,
                   "; must be ", static_cast<double>(expected)));
}

absl::Status CheckForm(const std::string& rpc, const v1::Tensor& got,
                       v1::Dtype dtype,
                       const std::vector<std::int64_t>& shape) {
  const std::vector<std::int64_t> actual(got.shape().begin(),
                                         got.shape().end());
  if (got.dtype() == dtype && actual == shape &&
      got.data().size() == static_cast<std::size_t>(cli::ElementCount(shape)) *
                               cli::DtypeSize(dtype)) {
    return absl::OkStatus();
  }
  return absl::DataLossError(
      absl::StrCat(rpc, ": the answer is ", cli::ShapeText(actual), " of ",
                   cli::DtypeName(got.dtype()), "; must be ",
                   cli::ShapeText(shape), " of ", cli::DtypeName(dtype)));
}

// [B, S, H, D] with the token at s turned by start + s * step.
absl::Status CheckHeads(const std::string& rpc, const v1::Tensor& sent,
                        const v1::Tensor& got, const Rotation& rotation,
                        std::int64_t start, std::int64_t step) {
  const TensorView before = ViewOf(sent);
  const TensorView after = ViewOf(got);
  const absl::Status form = CheckForm(rpc, got, before.dtype, before.shape);
  if (!form.ok()) return form;
  const std::int64_t tokens = before.shape[1];
  const std::int64_t heads = before.shape[2];
  const std::int64_t dim = before.shape[3];
  const auto pairs = static_cast<std::int64_t>(rotation.frequencies.size());
  const long double amplitude = rotation.amplitude;
  const std::int64_t stride = Stride(cli::ElementCount(before.shape));
  for (std::int64_t s = 0; s < tokens; s += stride) {
    for (std::int64_t i = 0; i < dim - pairs; ++i) {
      // Channels past the pairs pass through.
      const bool turns = i < pairs;
      const std::int64_t x = !turns                 ? i + pairs
                             : rotation.interleaved ? 2 * i
                                                    : i;
      const std::int64_t y = rotation.interleaved ? 2 * i + 1 : i + pairs;
      const long double angle =
          turns ? static_cast<long double>(start + s * step) *
                      rotation.frequencies[i]
                : 0;
      const long double c = amplitude * std::cos(angle);
      const long double sn = amplitude * std::sin(angle);
      for (std::int64_t b = 0; b < before.shape[0]; ++b) {
        for (std::int64_t h = 0; h < heads; ++h) {
          const std::int64_t row = ((b * tokens + s) * heads + h) * dim;
          const long double u = cli::ElementAt(before, row + x);
          const double got_x = cli::ElementAt(after, row + x);
          if (!turns) {
            if (got_x != u) return Wrong(rpc, row + x, got_x, u);
            continue;
          }
          const long double v = cli::ElementAt(before, row + y);
          const double got_y = cli::ElementAt(after, row + y);
          const double angle_error =
              AngleError(angle) * rotation.amplitude *
              static_cast<double>(std::fabs(u) + std::fabs(v));
          if (!IsRounded(
                  before.dtype, got_x, u * c - v * sn,
                  static_cast<double>(std::fabs(u * c) + std::fabs(v * sn)),
                  angle_error)) {
            return Wrong(rpc, row + x, got_x, u * c - v * sn);
          }
          if (!IsRounded(
                  before.dtype, got_y, u * sn + v * c,
                  static_cast<double>(std::fabs(u * sn) + std::fabs(v * c)),
                  angle_error)) {
            return Wrong(rpc, row + y, got_y, u * sn + v * c);
          }
        }
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CheckTable(const v1::BuildTableRequest& request,
                        const v1::BuildTableResponse& response,
                        const Rotation& rotation) {
  const auto pairs = static_cast<std::int64_t>(rotation.frequencies.size());
  for (const bool is_cos : {true, false}) {
    const v1::Tensor& got = is_cos ? response.cos() : response.sin();
    const absl::Status form =
        CheckForm("BuildTable", got, request.dtype(), {request.rows(), pairs});
    if (!form.ok()) return form;
    const TensorView table = ViewOf(got);
    const std::int64_t stride = Stride(request.rows() * pairs);
    for (std::int64_t row = 0; row < request.rows(); row += stride) {
      for (std::int64_t i = 0; i < pairs; ++i) {
        const long double angle =
            static_cast<long double>(request.positions().start() + row) *
            rotation.frequencies[i];
        const long double exact =
            rotation.amplitude * (is_cos ? std::cos(angle) : std::sin(angle));
        const double actual = cli::ElementAt(table, row * pairs + i);
        if (!IsRounded(request.dtype(), actual, exact,
                       static_cast<double>(std::fabs(exact)),
                       AngleError(angle) * rotation.amplitude)) {
          return Wrong("BuildTable", row * pairs + i, actual, exact);
        }
      }
    }
  }
  return absl::OkStatus();
}

// Sinusoidal, interleaved.
absl::Status CheckSum(const v1::AddEncodingRequest& request,
                      const v1::AddEncodingResponse& response) {
  const TensorView x = ViewOf(request.x());
  const TensorView y = ViewOf(response.x());
  const absl::Status form =
      CheckForm("AddEncoding", response.x(), x.dtype, x.shape);
  if (!form.ok()) return form;
  const std::int64_t tokens = x.shape[1];
  const std::int64_t dim = x.shape[2];
  const std::int64_t stride = Stride(cli::ElementCount(x.shape));
  for (std::int64_t s = 0; s < tokens; s += stride) {
    for (std::int64_t i = 0; i < dim; ++i) {
      const long double angle =
          static_cast<long double>(request.positions().start() + s) *
          Frequency(i / 2, dim);
      const long double encoding = i % 2 ? std::cos(angle) : std::sin(angle);
      for (std::int64_t b = 0; b < x.shape[0]; ++b) {
        const std::int64_t index = (b * tokens + s) * dim + i;
        const long double sent = cli::ElementAt(x, index);
        const double actual = cli::ElementAt(y, index);
        if (!IsRounded(
                x.dtype, actual, sent + encoding,
                static_cast<double>(std::fabs(sent) + std::fabs(encoding)),
                AngleError(angle))) {
          return Wrong("AddEncoding", index, actual, sent + encoding);
        }
      }
    }
  }
  return absl::OkStatus();
}

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
    // A preset's are what is asked for; they have nothing to be held to.
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

}  // namespace

absl::Status CheckAnswer(const std::string& rpc, const std::string& request,
                         const std::string& answer,
                         const v1::ResolveRopeResponse* preset_rope) {
  const absl::Status unparsed =
      absl::DataLossError(absl::StrCat(rpc, ": the answer does not parse"));
  if (rpc == "ApplyRope") {
    v1::ApplyRopeRequest sent;
    v1::ApplyRopeResponse got;
    if (!sent.ParseFromString(request) || !got.ParseFromString(answer)) {
      return unparsed;
    }
    const auto rotation = RotationOf(preset_rope, sent.q().shape(3));
    if (!rotation.ok()) return rotation.status();
    return CheckHeads(rpc, sent.q(), got.q(), *rotation,
                      sent.positions().start(), 1);
  }
  if (rpc == "Reposition") {
    v1::RepositionRequest sent;
    v1::RepositionResponse got;
    if (!sent.ParseFromString(request) || !got.ParseFromString(answer)) {
      return unparsed;
    }
    auto rotation = RotationOf(preset_rope, sent.k().shape(3));
    if (!rotation.ok()) return rotation.status();
    rotation->amplitude = 1;  // the keys have it already
    return CheckHeads(rpc, sent.k(), got.k(), *rotation,
                      sent.movement().shift(), 0);
  }
  if (rpc == "BuildTable") {
    v1::BuildTableRequest sent;
    v1::BuildTableResponse got;
    if (!sent.ParseFromString(request) || !got.ParseFromString(answer)) {
      return unparsed;
    }
    const auto rotation =
        RotationOf(preset_rope, sent.rope().spec().rotary_dim());
    if (!rotation.ok()) return rotation.status();
    return CheckTable(sent, got, *rotation);
  }
  if (rpc == "AddEncoding") {
    v1::AddEncodingRequest sent;
    v1::AddEncodingResponse got;
    if (!sent.ParseFromString(request) || !got.ParseFromString(answer)) {
      return unparsed;
    }
    return CheckSum(sent, got);
  }
  v1::ResolveRopeRequest sent;
  v1::ResolveRopeResponse got;
  if (!sent.ParseFromString(request) || !got.ParseFromString(answer)) {
    return unparsed;
  }
  return CheckFrequencies(sent, got);
}

}  // namespace posenc::load
