#include "core/rope/table.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace posenc::core {

namespace {

// How the cosines (or sines) c0 c1 c2 of one table row are laid out:
//   kHalf          c0 c1 c2
//   kDuplicated    c0 c1 c2 c0 c1 c2
//   kPairRepeated  c0 c0 c1 c1 c2 c2
//   kComplex       c0 s0 c1 s1 c2 s2
struct RowPattern {
  std::size_t width;  // elements of a table row
  std::size_t step;   // from one pair's value to the next pair's value
  std::size_t again;  // from a value to its copy; 0: no copy
};

RowPattern PatternOf(TableLayout layout, std::size_t pairs) {
  switch (layout) {
    case TableLayout::kDuplicated:
      return {2 * pairs, 1, pairs};
    case TableLayout::kPairRepeated:
      return {2 * pairs, 2, 1};
    case TableLayout::kComplex:
      return {2 * pairs, 2, 0};
    case TableLayout::kHalf:
      break;
  }
  return {pairs, 1, 0};
}

// Tables of at least this size are written with non-temporal stores (see
// rotation_map.cc).
constexpr std::size_t kStreamedBytes = 24 << 20;

// Writes rows directly to a kHalf table. Uses anchors if possible.
void FillHalfTable(const CosSinEvaluator& evaluator,
                   const TokenPositions& positions, const TensorView& cos,
                   const TensorView& sin) {
  const std::size_t pairs = evaluator.pairs();
  const auto whole_lines = [](std::uintptr_t bytes) { return bytes % 64 == 0; };
  const bool stream =
      2 * positions.values().size() * pairs * sizeof(float) >= kStreamedBytes &&
      whole_lines(pairs * sizeof(float)) &&
      whole_lines(reinterpret_cast<std::uintptr_t>(cos.data)) &&
      whole_lines(reinterpret_cast<std::uintptr_t>(sin.data));
  CosSinEvaluator::Anchor anchor(pairs);
  evaluator.Rows(positions.values(), static_cast<float*>(cos.data),
                 static_cast<float*>(sin.data),
                 static_cast<std::ptrdiff_t>(pairs), stream, &anchor);
}

// T is the type of the evaluation; each value is rounded once to the tensor's
// dtype.
template <typename T>
void FillTable(const CosSinEvaluator& evaluator,
               const TokenPositions& positions, TableLayout layout,
               const TensorView& cos, const TensorView& sin) {
  const std::int64_t tokens = positions.tokens();
  const std::size_t pairs = evaluator.pairs();
  const std::size_t values = evaluator.heads() * 2 * pairs;  // per row
  const RowPattern pattern = PatternOf(layout, pairs);
  const bool complex = layout == TableLayout::kComplex;
  const std::size_t row_bytes = pattern.width * DtypeSize(cos.dtype);
  std::vector<T> cos_row(pattern.width), sin_row(pattern.width);
  const auto store = [&](const std::vector<T>& row, const TensorView& out,
                         std::size_t index) {
    char* const to = static_cast<char*>(out.data) + index * row_bytes;
    if constexpr (std::is_same_v<T, float>) {
      std::copy(row.begin(), row.end(), reinterpret_cast<float*>(to));
    } else {
      StoreDoubles(row.data(), static_cast<std::int64_t>(row.size()), out.dtype,
                   to);
    }
  };
  const auto lay_out = [&](std::int64_t t, const T* row) {
    for (std::size_t h = 0; h < evaluator.heads(); ++h) {
      const T* const c = row + h * 2 * pairs;
      const T* const s = c + pairs;
      for (std::size_t i = 0; i < pairs; ++i) {
        const std::size_t first = i * pattern.step;
        cos_row[first] = c[i];
        (complex ? cos_row[first + 1] : sin_row[first]) = s[i];
        if (pattern.again != 0) {
          cos_row[first + pattern.again] = c[i];
          sin_row[first + pattern.again] = s[i];
        }
      }
      store(cos_row, cos, h * tokens + t);
      if (!complex) store(sin_row, sin, h * tokens + t);
    }
  };

  if constexpr (std::is_same_v<T, float>) {
    if (evaluator.HasSums() && positions.axes() == 1) {
      if (layout == TableLayout::kHalf) {
        return FillHalfTable(evaluator, positions, cos, sin);
      }
      CosSinEvaluator::Anchor anchor(pairs);
      constexpr std::size_t kDeltaRows = DeltaRows::kRows;
      std::vector<float> rows(kDeltaRows * values);
      const auto all = absl::MakeConstSpan(positions.values());
      for (std::size_t t = 0; t < all.size(); t += kDeltaRows) {
        const auto some = all.subspan(t, kDeltaRows);
        evaluator.Rows(some, rows.data(), rows.data() + pairs,
                       static_cast<std::ptrdiff_t>(values), false, &anchor);
        for (std::size_t i = 0; i < some.size(); ++i) {
          lay_out(static_cast<std::int64_t>(t + i), rows.data() + i * values);
        }
      }
      return;
    }
  }
  std::vector<T> row(values);
  std::vector<double> at(positions.axes());
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (int a = 0; a < positions.axes(); ++a) at[a] = positions.at(a, 0, t);
    evaluator.Row(at.data(), row.data());
    lay_out(t, row.data());
  }
}

}  // namespace

Shape TableShape(const ResolvedRope& rope, std::int64_t rows,
                 TableLayout layout) {
  const std::int64_t pairs = rope.spec.nope ? 0 : rope.pairs();
  Shape shape;
  if (rope.heads > 0) shape.push_back(rope.heads);
  shape.push_back(rows);
  if (layout == TableLayout::kComplex) {
    shape.push_back(pairs);
    shape.push_back(2);
  } else {
    const RowPattern pattern =
        PatternOf(layout, static_cast<std::size_t>(pairs));
    shape.push_back(static_cast<std::int64_t>(pattern.width));
  }
  return shape;
}

absl::Status BuildRopeTable(std::shared_ptr<const PreparedRope> prepared,
                            const TokenPositions& positions, TableLayout layout,
                            TensorRole role, const TensorView& cos,
                            const TensorView& sin) {
  RETURN_IF_ERROR(CheckFloating("dtype", cos.dtype));
  RETURN_IF_ERROR(
      Prefixed("positions", CheckXPosReach(prepared->rope, positions, "")));
  const CosSinEvaluator evaluator(std::move(prepared), Direction::kForward,
                                  role, nullptr);
  if (cos.dtype == Dtype::kFloat32) {
    FillTable<float>(evaluator, positions, layout, cos, sin);
  } else {
    FillTable<double>(evaluator, positions, layout, cos, sin);
  }
  return absl::OkStatus();
}

}  // namespace posenc::core
