// `posenc check`: compares a rotated file, element by element, with a rotation
// in long double (client/tools/check). The error of each element must be within
// the bound of the contract.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/tools/arguments/connection.h"
#include "client/tools/arguments/transform.h"
#include "client/tools/check/element.h"
#include "client/tools/check/rotated_heads.h"
#include "client/tools/check/rounding.h"
#include "client/tools/cli/commands.h"
#include "client/tools/files/print.h"
#include "client/tools/files/safetensors.h"
#include "client/tools/files/status.h"
#include "client/tools/files/tensor_file.h"

namespace posenc::cli {
namespace {

struct CheckFlags {
  SourceFlags source;
  std::string before, after;  // files
  std::vector<std::string> tensors;
  v1::Layout layout = v1::LAYOUT_UNSPECIFIED;
  std::int64_t start = 0;
  int repositions = 0;
};

// Returns a view of the tensor of this name; the view points into `file`.
absl::StatusOr<check::HeadsView> HeadsOf(TensorFile* file,
                                         const std::string& name,
                                         v1::Layout layout) {
  const SafetensorsEntry* const entry = file->Find(name);
  if (entry == nullptr) {
    return FileError(file->path(),
                     absl::NotFoundError(absl::StrCat("lacks ", name)));
  }
  ASSIGN_OR_RETURN(const TensorView tensor,
                   InFile(file->path(), AsTensor(*entry)));
  if (check::SignificandBits(tensor.dtype) == 0) {
    return FileError(file->path(),
                     absl::StrCat(name, name.empty() ? "is " : ": is ",
                                  check::DtypeName(tensor.dtype),
                                  "; must be of a floating point dtype"));
  }
  absl::StatusOr<check::HeadsView> view = check::HeadsView::Of(tensor, layout);
  if (!view.ok()) {
    return FileError(file->path(),
                     absl::StrCat(name, ": ", view.status().message()));
  }
  return view;
}

struct RotationCheck {
  std::int64_t elements = 0;
  std::int64_t wrong = 0;  // elements beyond their bound
  std::int64_t first_wrong = -1;
  // Largest error in ulps of the dtype. A result is the sum of two products,
  // which may cancel. The ulp is therefore taken at the larger of the result
  // and 1/16 of the sum of the products' magnitudes. Repositions rotate errors
  // into the other channel of the pair, so with repositions the length of the
  // pair replaces 1/16 of the sum.
  double max_error_ulps = 0;
  double max_error_of_bound = 0;  // largest error divided by its bound

  void Wrong(std::int64_t index) {
    if (wrong++ == 0) first_wrong = index;
  }
};

void Judge(v1::Dtype dtype, double attention_factor, int repositions,
           const check::RoundingBound& rounding,
           const check::RotatedElement& element, RotationCheck* result) {
  ++result->elements;
  if (element.passes_through) {
    if (!element.same_bytes) result->Wrong(element.index);
    return;
  }
  const auto products = static_cast<double>(element.terms);
  if (!std::isfinite(products)) {
    // Inputs with infinities or NaN have no exact result. For such inputs the
    // actual result must not be finite.
    if (std::isfinite(element.actual)) result->Wrong(element.index);
    return;
  }
  const auto from_angle = static_cast<double>(element.from_angle);
  double arithmetic = rounding.Arithmetic(products, from_angle);
  double scale = products / 16;
  if (repositions > 0) {
    // Every earlier rotation also made an error in both channels of the pair.
    // Rotations do not change the length of the pair, so all these errors have
    // the same bound. The errors of the two channels form a vector. Later
    // rotations rotate this vector and keep its length, which is at most
    // sqrt(2) times the largest error of one channel. Each rotation also rounds
    // a channel by at most half an ulp. The ulp is taken at 1.01 times the
    // pair's length, which no channel exceeds, even with its error.
    const double length =
        static_cast<double>(std::hypot(element.x, element.y)) *
        attention_factor;
    scale = length;
    arithmetic += repositions * 1.4143 *
                  (rounding.Arithmetic(length, from_angle) +
                   0.5 * check::UlpAt(dtype, 1.01 * length));
  }
  const double magnitude = std::fabs(static_cast<double>(element.exact));
  const double bound = rounding.Rounded(magnitude, arithmetic);
  const double error =
      std::fabs(static_cast<double>(element.actual - element.exact));
  // float16 overflows from ordinary inputs. Results of 65520 or more round to
  // infinity, because 65520 is halfway from the largest number of float16 to
  // 2^16.
  if (dtype == v1::DTYPE_FLOAT16 && std::isinf(element.actual) &&
      magnitude + arithmetic >= 65520) {
    return;
  }
  // FP8 also overflows. The request's saturation determines whether the result
  // is the largest number, infinity or NaN.
  if (check::IsFloat8(dtype) &&
      magnitude + arithmetic >= check::LargestFinite(dtype) &&
      !(std::fabs(element.actual) < check::LargestFinite(dtype))) {
    return;
  }
  if (!(error <= bound)) result->Wrong(element.index);
  // NaN counts as worse than every number, so a NaN in *worst stays.
  const auto note = [](double now, double* worst) {
    if (!(now <= *worst) && !std::isnan(*worst)) *worst = now;
  };
  note(error / bound, &result->max_error_of_bound);
  note(error / check::UlpAt(dtype, std::max(magnitude, scale)),
       &result->max_error_ulps);
}

// Compares `after` with `before` after a forward rotation of each token t at
// position start + t. The bounds allow for `repositions` later repositions,
// each of which rounds again. Returns UNIMPLEMENTED for encodings that
// TokenRotation does not support.
absl::StatusOr<RotationCheck> CheckRotation(const v1::ResolveRopeResponse& rope,
                                            const check::HeadsView& before,
                                            const check::HeadsView& after,
                                            std::int64_t start,
                                            int repositions) {
  const TensorView& sent = before.tensor;
  const TensorView& got = after.tensor;
  ASSIGN_OR_RETURN(const check::TokenRotation rotation,
                   check::TokenRotation::Of(rope, before.index.head_dim));
  if (sent.shape != got.shape || sent.dtype != got.dtype) {
    return absl::InvalidArgumentError(
        absl::StrCat("before is ", check::DtypeName(sent.dtype),
                     check::ShapeText(sent.shape), ", after is ",
                     check::DtypeName(got.dtype), check::ShapeText(got.shape)));
  }
  if (before.index.head_dim < rope.spec().rotary_dim()) {
    return absl::InvalidArgumentError(
        absl::StrCat("head_dim ", before.index.head_dim,
                     " is less than rotary_dim ", rope.spec().rotary_dim()));
  }
  if (rope.head_dim() != 0 && before.index.head_dim > rope.head_dim()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "head_dim ", before.index.head_dim, " is more than the encoding's, ",
        rope.head_dim(), "; --head-dim allows wider heads"));
  }
  const check::RoundingBound rounding(sent.dtype);
  RotationCheck result;
  check::VisitRotatedHeads(
      rotation, before, after,
      [start](std::int64_t token) {
        return static_cast<long double>(start + token);
      },
      /*token_step=*/1,
      [&](const check::RotatedElement& element) {
        Judge(sent.dtype, rope.amplitude(), repositions, rounding, element,
              &result);
        return true;
      });
  return result;
}

// A tensor before and after the rotation.
struct Pair {
  std::string name;
  check::HeadsView before, after;
};

// Checks all tensors, prints the result, and returns DATA_LOSS (exit code 1) if
// an element is wrong.
absl::Status CheckTensors(const v1::ResolveRopeResponse& rope,
                          const CheckFlags& flags,
                          const std::vector<Pair>& pairs,
                          const GlobalFlags& globals,
                          nlohmann::ordered_json* json) {
  std::string failures;
  for (const auto& [entry, before, after] : pairs) {
    const std::string name = entry.empty() ? "tensor" : entry;
    ASSIGN_OR_RETURN(
        const RotationCheck verdict,
        CheckRotation(rope, before, after, flags.start, flags.repositions));
    (*json)["rotation"][name] = {
        {"elements", verdict.elements},
        {"wrong", verdict.wrong},
        {"max_error_ulps", verdict.max_error_ulps},
        {"max_error_of_bound", verdict.max_error_of_bound}};
    if (!globals.json) {
      absl::PrintF(
          "  %s: %d elements, %d wrong; largest error %.4f ulp of %s, "
          "%.4f of its bound\n",
          name, verdict.elements, verdict.wrong, verdict.max_error_ulps,
          check::DtypeName(before.tensor.dtype), verdict.max_error_of_bound);
    }
    if (verdict.wrong > 0) {
      absl::StrAppend(&failures, failures.empty() ? "" : "; ", name, ": ",
                      verdict.wrong, " of ", verdict.elements,
                      " elements differ from the rotation, the first at index ",
                      verdict.first_wrong);
    }
  }
  return failures.empty() ? absl::OkStatus() : absl::DataLossError(failures);
}

absl::Status RunCheck(const CheckFlags& flags, const GlobalFlags& globals) {
  v1::ResolveRopeRequest request;
  ASSIGN_OR_RETURN(*request.mutable_rope(), BuildSource(flags.source));
  ASSIGN_OR_RETURN(TensorFile before,
                   TensorFile::Read("--before", flags.before));
  ASSIGN_OR_RETURN(TensorFile after, TensorFile::Read("--after", flags.after));
  ASSIGN_OR_RETURN(const auto selected,
                   before.Select(flags.tensors, {"q", "k"}));
  std::vector<Pair> pairs;
  for (const SafetensorsEntry* const entry : selected) {
    ASSIGN_OR_RETURN(const check::HeadsView sent,
                     HeadsOf(&before, entry->name, flags.layout));
    ASSIGN_OR_RETURN(const check::HeadsView got,
                     HeadsOf(&after, entry->name, flags.layout));
    pairs.push_back({entry->name, sent, got});
  }
  ASSIGN_OR_RETURN(const Connection connection, Connection::Open(globals));
  // The server provides the frequencies and the attention factor; only the
  // server's rotation with these numbers is checked.
  if (request.rope().has_spec()) {
    request.set_head_dim(
        static_cast<std::int32_t>(pairs[0].before.index.head_dim));
  }
  ASSIGN_OR_RETURN(const auto rope, connection.client().ResolveRope(request));

  nlohmann::ordered_json json;
  RETURN_IF_ERROR(CheckTensors(rope, flags, pairs, globals, &json));
  if (globals.json) PrintJson(json);
  return absl::OkStatus();
}

}  // namespace

Command AddCheck(CLI::App* app, const GlobalFlags* globals) {
  const auto flags = std::make_shared<CheckFlags>();
  AddSourceFlags(app, "", "Encoding", &flags->source);
  AddFlag(app, "--before", &flags->before, "FILE",
          "A .safetensors or .npy file", {.required = true});
  AddFlag(app, "--after", &flags->after, "FILE",
          "A file with the same tensors, rotated forward", {.required = true});
  AddTensorFlag(app, "q, k", &flags->tensors);
  AddLayoutFlag(app, &flags->layout);
  AddFlag(app, "--start", &flags->start, "N", "Position of the first token",
          {.show_default = true});
  AddFlag(app, "--repositions", &flags->repositions, "N",
          "Number of times that --after was repositioned, the last time to "
          "--start; each time rounds",
          {.show_default = true, .range = {{0, 1000000}}});
  return [flags, globals] { return RunCheck(*flags, *globals); };
}

}  // namespace posenc::cli
