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

absl::Status Reserve(const TokenExtents& extents, std::int64_t values) {
  if (!extents.reserve) return absl::OkStatus();
  return extents.reserve(values * static_cast<std::int64_t>(sizeof(double)));
}

// The consecutive positions of some tokens.
struct Run {
  std::int64_t start, count;
};

// Expands consecutive runs to positions of the shape [axes, batch, tokens]. The
// positions are the same on every axis. run_of(i) returns run i, and
// field_of(i) the name of its field.
template <typename RunOf, typename FieldOf>
absl::StatusOr<TokenPositions> ExpandRuns(std::int64_t runs,
                                          const RunOf& run_of,
                                          const FieldOf& field_of,
                                          const TokenExtents& extents, int axes,
                                          std::int64_t batch,
                                          std::int64_t tokens) {
  for (std::int64_t i = 0; i < runs; ++i) {
    const Run run = run_of(i);
    RETURN_IF_ERROR(CheckRun(field_of(i), run.start, run.count, i, i));
  }
  RETURN_IF_ERROR(Reserve(extents, batch * tokens * axes));
  std::vector<double> values;
  values.reserve(batch * tokens * axes);
  for (std::int64_t i = 0; i < runs; ++i) {
    const Run run = run_of(i);
    for (std::int64_t t = 0; t < run.count; ++t) {
      values.push_back(static_cast<double>(run.start + t));
    }
  }
  const std::size_t size = values.size();
  for (std::size_t i = size; i < size * axes; ++i) {
    values.push_back(values[i - size]);
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
  return ExpandRuns(
      1,
      [&](std::int64_t) {
        return Run{positions.start, tokens};
      },
      [](std::int64_t) { return "start"; }, extents, axes, 1, tokens);
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
  return ExpandRuns(
      count,
      [&](std::int64_t b) {
        return Run{positions.values[b], extents.tokens};
      },
      [](std::int64_t b) { return absl::StrCat("starts.values[", b, "]"); },
      extents, axes, count, extents.tokens);
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
    // The condition is negated so that it also rejects NaN.
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
    return MustBe("packed.cu_seqlens[0]", ends[0], "0");
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
  return ExpandRuns(
      static_cast<std::int64_t>(sequences),
      [&](std::int64_t i) {
        return Run{positions.starts.empty() ? 0 : positions.starts[i],
                   ends[i + 1] - ends[i]};
      },
      [&](std::int64_t i) {
        return positions.starts.empty()
                   ? std::string("packed.cu_seqlens")
                   : absl::StrCat("packed.starts[", i, "]");
      },
      extents, axes, 1, extents.tokens);
}

}  // namespace

absl::Status PositionOutOfRange(absl::string_view field, absl::string_view fact,
                                std::int64_t index) {
  return MakeError(absl::StatusCode::kOutOfRange,
                   ErrorReason::kPositionOutOfRange, field, fact,
                   {{"index", absl::StrCat(index)}});
}

absl::Status CheckRun(absl::string_view field, std::int64_t start,
                      std::int64_t count, std::int64_t first_index,
                      std::int64_t last_index) {
  if (start < -kMaxPosition || start > kMaxPosition) {
    return OutOfRange(field, absl::StrCat("is ", start), first_index);
  }
  // The sum start + count - 1 could overflow, so it is not computed.
  if (count > 0 && count - 1 > kMaxPosition - start) {
    return OutOfRange(
        field,
        absl::StrCat(start, " + ", count - 1,
                     " is the position of the last of ", count, " tokens"),
        last_index);
  }
  return absl::OkStatus();
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
  // The names are in the order of the types in Positions.
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
  // Invariant: row `good` is valid, and row `bad` is not.
  std::int64_t good = 0, bad = rows - 1;
  if (check(bad).ok()) return absl::OkStatus();
  while (bad - good > 1) {
    const std::int64_t middle = good + (bad - good) / 2;
    (check(middle).ok() ? good : bad) = middle;
  }
  return check(bad);
}

}  // namespace posenc::core
