#include "core/positions/positions.h"

#include <cmath>
#include <iterator>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace posenc::core {
namespace {

absl::Status OutOfRange(absl::string_view field, absl::string_view fact,
                        std::int64_t index) {
  return PositionOutOfRange(
      field, absl::StrCat(fact, "; positions are within +-2^31"), index);
}

// Checks that the positions start .. start + count - 1 are in range, without
// forming a sum that could overflow.
absl::Status CheckRun(absl::string_view field, std::int64_t start,
                      std::int64_t count, std::int64_t index) {
  if (start < -kMaxPosition || start > kMaxPosition) {
    return OutOfRange(field, absl::StrCat("is ", start), index);
  }
  if (count > 0 && count - 1 > kMaxPosition - start) {
    return OutOfRange(
        field,
        absl::StrCat(start, " + ", count - 1,
                     " is the position of the last of ", count, " tokens"),
        index);
  }
  return absl::OkStatus();
}

void AppendRun(std::int64_t start, std::int64_t count,
               std::vector<double>* values) {
  for (std::int64_t t = 0; t < count; ++t) {
    values->push_back(static_cast<double>(start + t));
  }
}

absl::Status Reserve(const TokenExtents& extents, std::int64_t values) {
  if (!extents.reserve) return absl::OkStatus();
  return extents.reserve(values * static_cast<std::int64_t>(sizeof(double)));
}

// Positions that are the same on every axis.
TokenPositions OnEveryAxis(std::vector<double> values, int axes,
                           std::int64_t batch, std::int64_t tokens) {
  const std::size_t size = values.size();
  values.resize(size * axes);
  for (std::size_t i = size; i < values.size(); ++i) {
    values[i] = values[i - size];
  }
  return TokenPositions(std::move(values), axes, batch, tokens);
}

absl::StatusOr<TokenPositions> Expand(std::monostate,
                                      const TokenExtents& extents, int axes) {
  if (extents.batch == 0 || extents.tokens == 0) {
    return TokenPositions({}, axes, 1, 0);
  }
  return FieldRequired(
      "", absl::StrCat("is missing, and there are ", extents.tokens,
                       " tokens; set start, starts, ids or packed"));
}

absl::StatusOr<TokenPositions> Expand(const StartPosition& positions,
                                      const TokenExtents& extents, int axes) {
  const std::int64_t tokens = extents.batch == 0 ? 0 : extents.tokens;
  RETURN_IF_ERROR(CheckRun("start", positions.start, tokens, 0));
  RETURN_IF_ERROR(Reserve(extents, tokens * axes));
  std::vector<double> values;
  values.reserve(tokens * axes);
  AppendRun(positions.start, tokens, &values);
  return OnEveryAxis(std::move(values), axes, 1, tokens);
}

absl::StatusOr<TokenPositions> Expand(const SequenceStarts& positions,
                                      const TokenExtents& extents, int axes) {
  if (extents.packed) {
    return FieldInvalid("starts",
                        "goes with a batch dimension, but layout THD has none; "
                        "use start or packed");
  }
  const auto count = static_cast<std::int64_t>(positions.values.size());
  if (count != extents.batch) {
    return WrongShape("starts.values", absl::StrCat("[", extents.batch, "]"),
                      absl::StrCat("[", count, "]"));
  }
  for (std::int64_t b = 0; b < count; ++b) {
    RETURN_IF_ERROR(CheckRun(absl::StrCat("starts.values[", b, "]"),
                             positions.values[b], extents.tokens, b));
  }
  RETURN_IF_ERROR(Reserve(extents, count * extents.tokens * axes));
  std::vector<double> values;
  values.reserve(count * extents.tokens * axes);
  for (const std::int64_t start : positions.values) {
    AppendRun(start, extents.tokens, &values);
  }
  return OnEveryAxis(std::move(values), axes, count, extents.tokens);
}

absl::StatusOr<TokenPositions> Expand(const PositionIds& positions,
                                      const TokenExtents& extents, int axes) {
  const ConstTensorView& ids = positions.ids;
  if (ids.dtype == Dtype::kFloat16 || ids.dtype == Dtype::kBfloat16 ||
      IsFloat8(ids.dtype) || ids.dtype == Dtype::kInt8) {
    return MustBe("ids.dtype", DtypeName(ids.dtype),
                  "int32, int64, float32 or float64");
  }
  Shape one = {extents.tokens};
  Shape each = {extents.batch, extents.tokens};
  if (axes > 1) {
    one.insert(one.begin(), axes);
    each.insert(each.begin(), axes);
  }
  const bool per_sequence = !extents.packed && ids.shape == each;
  if (!per_sequence && ids.shape != one) {
    return WrongShape("ids.shape",
                      extents.packed ? ShapeToString(one)
                                     : absl::StrCat(ShapeToString(one), " or ",
                                                    ShapeToString(each)),
                      ShapeToString(ids.shape));
  }
  const std::int64_t batch = per_sequence ? extents.batch : 1;
  RETURN_IF_ERROR(Reserve(extents, axes * batch * extents.tokens));
  std::vector<double> values(axes * batch * extents.tokens);
  LoadDoubles(ids, 0, static_cast<std::int64_t>(values.size()), values.data());
  for (std::size_t i = 0; i < values.size(); ++i) {
    // The condition is a negation, because NaN must fail, too.
    if (!(std::fabs(values[i]) <= kMaxPosition)) {
      return OutOfRange(
          "ids", absl::StrFormat("element %d is %.17g", i, values[i]), i);
    }
  }
  return TokenPositions(std::move(values), axes, batch, extents.tokens);
}

absl::StatusOr<TokenPositions> Expand(const PackedSequences& positions,
                                      const TokenExtents& extents, int axes) {
  if (!extents.packed) {
    return FieldInvalid("packed",
                        "goes with layout THD; use start, starts or ids");
  }
  const std::vector<std::int64_t>& ends = positions.cu_seqlens;
  if (ends.empty()) {
    return FieldRequired("packed.cu_seqlens", "is empty; must start with 0");
  }
  if (ends[0] != 0) {
    return FieldInvalid("packed.cu_seqlens[0]",
                        absl::StrCat(ends[0], "; must be 0"));
  }
  for (std::size_t i = 1; i < ends.size(); ++i) {
    if (ends[i] < ends[i - 1]) {
      return FieldInvalid(
          absl::StrCat("packed.cu_seqlens[", i, "]"),
          absl::StrCat(ends[i], " after ", ends[i - 1], "; must not decrease"));
    }
  }
  if (ends.back() != extents.tokens) {
    return FieldInvalid(
        absl::StrCat("packed.cu_seqlens[", ends.size() - 1, "]"),
        absl::StrCat(ends.back(), " is the last; must be the ", extents.tokens,
                     " tokens of the batch"));
  }
  const std::size_t sequences = ends.size() - 1;
  if (!positions.starts.empty() && positions.starts.size() != sequences) {
    return WrongShape("packed.starts", absl::StrCat("[", sequences, "]"),
                      absl::StrCat("[", positions.starts.size(), "]"));
  }
  const auto start = [&](std::size_t i) {
    return positions.starts.empty() ? 0 : positions.starts[i];
  };
  for (std::size_t i = 0; i < sequences; ++i) {
    RETURN_IF_ERROR(CheckRun(
        positions.starts.empty() ? std::string("packed.cu_seqlens")
                                 : absl::StrCat("packed.starts[", i, "]"),
        start(i), ends[i + 1] - ends[i], static_cast<std::int64_t>(i)));
  }
  RETURN_IF_ERROR(Reserve(extents, extents.tokens * axes));
  std::vector<double> values;
  values.reserve(extents.tokens * axes);
  for (std::size_t i = 0; i < sequences; ++i) {
    AppendRun(start(i), ends[i + 1] - ends[i], &values);
  }
  return OnEveryAxis(std::move(values), axes, 1, extents.tokens);
}

}  // namespace

absl::Status PositionOutOfRange(absl::string_view field, absl::string_view fact,
                                std::int64_t index) {
  return MakeError(absl::StatusCode::kOutOfRange,
                   ErrorReason::kPositionOutOfRange, field, fact,
                   {{"index", absl::StrCat(index)}});
}

std::int64_t RunLength(absl::Span<const double> positions) {
  // Compilers vectorize the loop over a strip, because it has no branch.
  constexpr int kStrip = 64;
  std::size_t n = 1;
  for (; n + kStrip <= positions.size(); n += kStrip) {
    const double first = positions[0] + static_cast<double>(n);
    bool follow = true;
    for (int i = 0; i < kStrip; ++i) {
      follow &= positions[n + i] == first + i;
    }
    if (!follow) break;
  }
  while (n < positions.size() &&
         positions[n] == positions[0] + static_cast<double>(n)) {
    ++n;
  }
  return static_cast<std::int64_t>(n);
}

std::string PositionText(double position) {
  // Whole numbers below kFull are written with all digits. Positions are far
  // smaller, but a rejected number may have any value.
  constexpr double kFull = 1e15;
  if (position != std::trunc(position) || std::fabs(position) >= kFull) {
    return NumberText(position);
  }
  return absl::StrCat(static_cast<std::int64_t>(position));
}

absl::StatusOr<TokenPositions> ExpandPositions(const Positions& positions,
                                               const TokenExtents& extents,
                                               int axes, bool needs_ids) {
  if (needs_ids && !std::holds_alternative<std::monostate>(positions) &&
      !std::holds_alternative<PositionIds>(positions)) {
    const absl::string_view kind = FieldOf(positions);
    return FieldInvalid(
        kind.substr(0, kind.find('.')),
        absl::StrCat("gives one position for the ", axes,
                     " axes of a grid; give each axis its own with ids"));
  }
  return std::visit(
      [&](const auto& given) { return Expand(given, extents, axes); },
      positions);
}

absl::string_view FieldOf(const Positions& positions) {
  // The names are in the order of the variant.
  static constexpr absl::string_view kFields[] = {"", "start", "starts.values",
                                                  "ids", "packed"};
  static_assert(std::size(kFields) == std::variant_size_v<Positions>);
  return kFields[positions.index()];
}

absl::Status CheckConsecutive(std::int64_t start, std::int64_t rows, int axes,
                              CheckReachFunction reach) {
  const auto check = [&](std::int64_t row) -> absl::Status {
    if (start > kMaxPosition - row) {
      return OutOfRange("positions.start", absl::StrCat(start, " + ", row),
                        row);
    }
    TokenExtents one;
    one.tokens = 1;
    const absl::StatusOr<TokenPositions> position =
        Expand(StartPosition{start + row}, one, axes);
    RETURN_IF_ERROR(Prefixed("positions", position.status()));
    return reach(*position, row);
  };
  RETURN_IF_ERROR(check(0));
  absl::Status status = check(rows - 1);
  if (status.ok()) return status;
  // Invariant: row `good` is valid, row `bad` is not, and `status` is the error
  // of row `bad`.
  std::int64_t good = 0, bad = rows - 1;
  while (bad - good > 1) {
    const std::int64_t middle = good + (bad - good) / 2;
    absl::Status there = check(middle);
    if (there.ok()) {
      good = middle;
    } else {
      bad = middle;
      status = std::move(there);
    }
  }
  return status;
}

}  // namespace posenc::core
