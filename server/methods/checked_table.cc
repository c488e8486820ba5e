#include "server/methods/checked_table.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/absolute/rows.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "server/base/errors.h"
#include "server/convert/fields.h"
#include "server/methods/rope_source.h"

namespace posenc::server {
namespace {

// Size of a tile. Its sines and cosines take about a millisecond.
constexpr std::int64_t kTileBytes = 256 << 10;

// Largest sizes of the response's fields that are not tensors, with tags: the
// attention factor, and in a stream the number of the first row.
constexpr int kAttentionFactorBytes = 9;
constexpr int kFirstRowBytes = 11;

absl::Status RowsMismatch(std::int64_t rows, absl::string_view what,
                          std::int64_t expected) {
  return core::MakeError(
      absl::StatusCode::kInvalidArgument, core::ErrorReason::kShapeMismatch,
      "rows",
      absl::StrCat(rows, ", but ", what, " ", expected, "; leave rows unset"),
      {{"expected", absl::StrCat(expected)}, {"actual", absl::StrCat(rows)}});
}

// Returns the number of rows of a table. This is the number of positions, or
// `rows` if only the start of the positions is given.
absl::StatusOr<std::int64_t> TableRows(std::int64_t rows,
                                       const core::Positions& positions) {
  if (std::holds_alternative<std::monostate>(positions)) {
    return core::FieldRequired(
        "positions",
        "not given; a table takes start (with rows), ids or "
        "packed");
  }
  if (std::holds_alternative<core::SequenceStarts>(positions)) {
    return core::FieldInvalid(
        "positions.starts",
        "a table has no batch; give start (with rows), ids or packed");
  }
  if (std::holds_alternative<core::StartPosition>(positions)) {
    if (rows > 0) return rows;
    return core::FieldRequired(
        "rows",
        "is 0; must be at least 1, because positions.start says only where the "
        "rows begin");
  }
  std::int64_t implied = 0;
  if (const auto* ids = std::get_if<core::PositionIds>(&positions)) {
    implied = ids->ids.shape.empty() ? 1 : ids->ids.shape.back();
  } else if (const auto* packed =
                 std::get_if<core::PackedSequences>(&positions)) {
    // A negative end counts as 0, because core refuses sequences that end
    // before they begin.
    implied = packed->cu_seqlens.empty()
                  ? 0
                  : std::max<std::int64_t>(packed->cu_seqlens.back(), 0);
  }
  if (rows != 0 && rows != implied) {
    return RowsMismatch(rows, "the positions are", implied);
  }
  return implied;
}

absl::Status RotaryOnly(const v1::BuildTableRequest& request) {
  constexpr char kFact[] = "given for an absolute encoding; rotary tables only";
  if (request.layout() != v1::TABLE_LAYOUT_UNSPECIFIED) {
    return core::FieldInvalid("layout", kFact);
  }
  if (request.for_keys()) return core::FieldInvalid("for_keys", kFact);
  return absl::OkStatus();
}

// Resolves the encoding without a head_dim, because the encoding of a table
// must have its own width.
absl::StatusOr<std::shared_ptr<const core::PreparedRope>> FindRope(
    const v1::BuildTableRequest& request, const MethodContext& context) {
  RETURN_IF_ERROR(CheckGiven("rope", request.rope()));
  absl::StatusOr<std::shared_ptr<const core::PreparedRope>> rope =
      CachedLookup(request.rope(), context)(0);
  if (!rope.ok()) return core::Prefixed("rope", rope.status());
  return rope;
}

}  // namespace

absl::Status CheckedTable::CheckRope(const v1::BuildTableRequest& request,
                                     const MethodContext& context) {
  core::Faults faults;
  absl::StatusOr<std::shared_ptr<const core::PreparedRope>> rope =
      FindRope(request, context);
  faults.Note(rope.status());
  if (rope.ok() && (*rope)->rope.spec.nope) {
    faults.Note(core::FieldInvalid(
        "rope",
        "this layer has no positional encoding (nope); it has no table"));
  }
  const absl::StatusOr<std::int64_t> rows =
      TableRows(request.rows(), positions_);
  faults.Note(rows.status());
  if (!faults.none()) return faults.status();
  rows_ = *rows;
  rope_ = *std::move(rope);
  layout_ = EnumOr(core::TableLayout::kHalf, request.layout());
  role_ =
      request.for_keys() ? core::TensorRole::kKey : core::TensorRole::kQuery;
  axes_ = rope_->rope.axes();
  needs_ids_ = rope_->rope.needs_ids();
  rows_first_ = rope_->rope.heads == 0;
  return absl::OkStatus();
}

absl::Status CheckedTable::CheckAbsolute(const v1::BuildTableRequest& request,
                                         OwnedElements* owned) {
  core::Faults faults;
  faults.Note(RotaryOnly(request));
  absl::StatusOr<core::AbsoluteEncoding> input =
      ReadAbsolute(request.absolute(), owned);
  if (!faults.Note(core::Prefixed("absolute", input.status()))) {
    return faults.status();
  }
  absl::StatusOr<core::AbsoluteExtents> extents =
      core::ValidateAbsolute(*input);
  faults.Note(core::Prefixed("absolute", extents.status()));
  if (!extents.ok() || !extents->rows.has_value()) {
    // All encodings except a grid take the rows from `rows` and the positions.
    // This code handles a grid only if it is invalid; its number of rows is
    // then 0.
    const bool grid = request.absolute().has_sincos_grid();
    const absl::StatusOr<std::int64_t> rows =
        grid ? 0 : TableRows(request.rows(), positions_);
    faults.Note(rows.status());
    if (rows.ok()) rows_ = *rows;
  }
  if (!faults.none()) return faults.status();
  absolute_ = *std::move(input);
  dim_ = extents->dim;
  axes_ = extents->axes;
  needs_ids_ = extents->axes > 1;
  has_own_rows_ = extents->rows.has_value();
  if (!has_own_rows_) return absl::OkStatus();
  if (!std::holds_alternative<std::monostate>(positions_)) {
    return core::FieldInvalid("positions",
                              "given for sincos_grid: each row is a cell of "
                              "the grid; leave them out");
  }
  rows_ = *extents->rows;
  if (request.rows() != 0 && request.rows() != rows_) {
    return RowsMismatch(request.rows(), "the grid's cells are", rows_);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const CheckedTable>> CheckedTable::Check(
    const v1::BuildTableRequest& request, const MethodContext& context,
    std::int64_t max_response_bytes, std::int64_t rows_in_message) {
  core::Faults faults;
  if (request.encoding_case() == v1::BuildTableRequest::ENCODING_NOT_SET) {
    faults.Note(core::FieldRequired(
        "rope", "rope and absolute are both missing; give one of them"));
  }
  auto table = std::make_shared<CheckedTable>();
  table->dtype_ = EnumOr(core::Dtype::kFloat32, request.dtype());
  if (!core::IsFloating(table->dtype_)) {
    faults.Note(core::FieldInvalid(
        "dtype", core::DtypeName(table->dtype_),
        "; a table is float32, float16, bfloat16 or float64"));
  }
  if (request.rows() < 0) {
    faults.Note(
        core::FieldInvalid("rows", request.rows(), "; must not be negative"));
  }
  absl::StatusOr<core::Positions> positions =
      ReadPositions(request.positions(), context.owned);
  if (faults.Note(core::Prefixed("positions", positions.status()))) {
    table->positions_ = *std::move(positions);
    faults.Note(request.has_absolute()
                    ? table->CheckAbsolute(request, context.owned)
                    : table->CheckRope(request, context));
  }
  if (!faults.none()) return faults.status();

  const std::int64_t largest = rows_in_message > 0
                                   ? std::min(rows_in_message, table->rows_)
                                   : table->rows_;
  RETURN_IF_ERROR(
      CheckResponse(table->FieldBytes(largest) +
                        (table->rotary() ? kAttentionFactorBytes : 0) +
                        (rows_in_message > 0 ? kFirstRowBytes : 0),
                    max_response_bytes));
  RETURN_IF_ERROR(table->CheckPositions(context.reserve));
  if (!table->rotary() && table->rows_ > 0) {
    table->absolute_rows_.emplace(*table->absolute_, table->dtype_);
  }
  return table;
}

absl::Status CheckedTable::CheckPositions(
    const core::ReserveFunction& reserve) {
  if (std::holds_alternative<std::monostate>(positions_)) {
    return absl::OkStatus();  // a grid has its own positions
  }
  const auto reach = [this](const core::TokenPositions& positions,
                            std::int64_t first) {
    return CheckReach(positions, first);
  };
  const auto* start = std::get_if<core::StartPosition>(&positions_);
  if (start != nullptr && !needs_ids_) {
    start_ = start->start;
    return core::CheckConsecutive(start_, rows_, axes_, reach);
  }
  core::TokenExtents extents;
  extents.tokens = rows_;
  extents.reserve = reserve;
  extents.packed = std::holds_alternative<core::PackedSequences>(positions_);
  absl::StatusOr<core::TokenPositions> expanded =
      core::ExpandPositions(positions_, extents, axes_, needs_ids_);
  if (!expanded.ok()) return core::Prefixed("positions", expanded.status());
  expanded_ = *std::move(expanded);
  return CheckReach(*expanded_, 0);
}

absl::Status CheckedTable::CheckReach(const core::TokenPositions& positions,
                                      std::int64_t first) const {
  if (rope_) {
    return core::Prefixed(
        "positions", core::CheckXPosReach(rope_->rope, positions,
                                          core::FieldOf(positions_), first));
  }
  return core::CheckReach(*absolute_, positions, first);
}

core::TokenPositions CheckedTable::PositionsOf(std::int64_t first,
                                               std::int64_t n) const {
  std::vector<double> values;
  values.reserve(axes_ * n);
  for (int a = 0; a < axes_; ++a) {
    for (std::int64_t t = first; t < first + n; ++t) {
      values.push_back(expanded_ ? expanded_->at(a, 0, t)
                                 : static_cast<double>(start_ + t));
    }
  }
  return core::TokenPositions(std::move(values), axes_, 1, n);
}

OutputTensors CheckedTable::Outputs(std::int64_t n) const {
  OutputTensors outputs;
  const core::Shape shape =
      rope_ ? core::TableShape(rope_->rope, n, layout_) : core::Shape{n, dim_};
  if (!rope_ || layout_ == core::TableLayout::kComplex) {
    outputs.push_back(
        {v1::BuildTableResponse::kTableFieldNumber, dtype_, shape});
  } else {
    outputs.push_back({v1::BuildTableResponse::kCosFieldNumber, dtype_, shape});
    outputs.push_back({v1::BuildTableResponse::kSinFieldNumber, dtype_, shape});
  }
  return outputs;
}

absl::uint128 CheckedTable::FieldBytes(std::int64_t n) const {
  absl::uint128 bytes = 0;
  for (const OutputTensor& output : Outputs(n)) {
    bytes +=
        TensorFieldBytes(output.field, output.dtype, output.shape, output.form);
  }
  return bytes;
}

absl::Status CheckedTable::Fill(std::int64_t first, std::int64_t n,
                                absl::Span<const core::TensorView> out) const {
  if (rope_) {
    return core::BuildRopeTable(rope_, PositionsOf(first, n), layout_, role_,
                                out[0],
                                out.size() > 1 ? out[1] : core::TensorView{});
  }
  if (has_own_rows_) {
    absolute_rows_->Fill(nullptr, first, out[0]);
  } else {
    const core::TokenPositions positions = PositionsOf(first, n);
    absolute_rows_->Fill(&positions, first, out[0]);
  }
  return absl::OkStatus();
}

TensorAnswer CheckedTable::Answer(std::int64_t first, std::int64_t n) const {
  TensorAnswer answer;
  answer.outputs = Outputs(n);
  // Size of one tensor; the two tensors of a rotary table have equal sizes.
  const std::size_t bytes = ByteCount(answer.outputs[0]);
  const std::size_t row_bytes = n > 0 ? bytes / n : 0;
  const std::int64_t tile_rows = std::max<std::int64_t>(
      1, kTileBytes / std::max<std::size_t>(1, row_bytes));
  answer.computation = std::make_unique<TileFunction>(
      (n + tile_rows - 1) / tile_rows,
      [self = shared_from_this(), tensors = answer.outputs, first, n, tile_rows,
       row_bytes](std::int64_t tile, absl::Span<const OutputBuffer> outputs,
                  StopCheck) {
        const std::int64_t begin = tile * tile_rows;
        const std::int64_t rows = std::min(tile_rows, n - begin);
        std::vector<core::TensorView> views;
        // If frequencies differ by head, the tile's rows of different heads are
        // not contiguous in the output. So these rows are first computed in
        // `apart`.
        std::vector<std::vector<char>> apart(
            self->rows_first_ ? 0 : tensors.size());
        for (std::size_t i = 0; i < tensors.size(); ++i) {
          core::Shape shape = tensors[i].shape;
          shape[self->rows_first_ ? 0 : 1] = rows;
          char* data = outputs[i].data() + begin * row_bytes;
          if (!self->rows_first_) {
            apart[i].resize(rows * row_bytes);
            data = apart[i].data();
          }
          views.push_back({tensors[i].dtype, std::move(shape), data});
        }
        const absl::Status filled = self->Fill(first + begin, rows, views);
        for (std::size_t i = 0; filled.ok() && i < apart.size(); ++i) {
          const std::int64_t heads = tensors[i].shape[0];
          const std::size_t head_row_bytes = row_bytes / heads;
          for (std::int64_t h = 0; h < heads; ++h) {
            std::memcpy(outputs[i].data() + (h * n + begin) * head_row_bytes,
                        apart[i].data() + h * rows * head_row_bytes,
                        rows * head_row_bytes);
          }
        }
        return filled;
      });
  return answer;
}

}  // namespace posenc::server
