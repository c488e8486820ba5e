#include "server/calls/table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/absolute/rows.h"
#include "core/error.h"
#include "core/rope/table.h"
#include "server/calls/rope.h"
#include "server/convert/absolute.h"
#include "server/convert/positions.h"
#include "server/convert/rope.h"

namespace posenc::server {
namespace {

using Response = v1::BuildTableResponse;

// What is computed between two looks at the caller: about a millisecond.
constexpr std::int64_t kPartBytes = 256 << 10;

absl::Status RowsMismatch(std::int64_t rows, absl::string_view what,
                          std::int64_t expected) {
  return core::MakeError(
      absl::StatusCode::kInvalidArgument, core::ErrorReason::kShapeMismatch,
      "rows",
      absl::StrCat(rows, ", but ", what, " ", expected,
                   "; leave rows unset where they tell"),
      {{"expected", absl::StrCat(expected)}, {"actual", absl::StrCat(rows)}});
}

// The number of rows of a table, from `rows` and the positions.
absl::StatusOr<std::int64_t> TableRows(std::int64_t rows,
                                       const core::Positions& positions) {
  std::optional<std::int64_t> implied;
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
  if (const auto* ids = std::get_if<core::PositionIds>(&positions)) {
    implied = ids->ids.shape.empty() ? 1 : ids->ids.shape.back();
  } else if (const auto* packed =
                 std::get_if<core::PackedSequences>(&positions)) {
    implied = packed->cu_seqlens.empty() ? 0 : packed->cu_seqlens.back();
    // What ends before it starts is for the core to say.
    if (*implied < 0) implied = 0;
  }
  if (!implied.has_value()) return rows;
  if (rows != 0 && rows != *implied) {
    return RowsMismatch(rows, "the positions are", *implied);
  }
  return *implied;
}

absl::StatusOr<core::TokenPositions> ExpandRows(
    const core::Positions& positions, std::int64_t rows, int axes,
    bool needs_ids) {
  core::TokenExtents extents;
  extents.tokens = rows;
  extents.packed = std::holds_alternative<core::PackedSequences>(positions);
  absl::StatusOr<core::TokenPositions> expanded =
      core::ExpandPositions(positions, extents, axes, needs_ids);
  if (!expanded.ok()) return core::Prefixed("positions", expanded.status());
  return expanded;
}

absl::Status RotaryOnly(const v1::BuildTableRequest& request) {
  constexpr char kFact[] = "given for an absolute encoding; rotary tables only";
  if (request.layout() != v1::TABLE_LAYOUT_UNSPECIFIED) {
    return core::FieldInvalid("layout", kFact);
  }
  if (request.for_keys()) return core::FieldInvalid("for_keys", kFact);
  return absl::OkStatus();
}

}  // namespace

absl::Status TablePlan::ReadRope(const v1::BuildTableRequest& request) {
  absl::StatusOr<core::ResolvedRope> rope = ResolveField(
      "rope", true, request.rope(), 0, core::MissingLength::kError);
  if (!rope.ok()) return rope.status();
  if (rope->spec.nope) {
    return core::FieldInvalid(
        "rope",
        "this layer has no positional encoding (nope); it has no table");
  }
  const absl::StatusOr<std::int64_t> rows =
      TableRows(request.rows(), positions_.positions);
  if (!rows.ok()) return rows.status();
  rows_ = *rows;
  rope_ = *std::move(rope);
  layout_ = ReadTableLayout(request.layout());
  role_ =
      request.for_keys() ? core::TensorRole::kKey : core::TensorRole::kQuery;
  axes_ = rope_->axes();
  needs_ids_ = rope_->needs_ids();
  divisible_ = rope_->heads == 0;
  return absl::OkStatus();
}

absl::Status TablePlan::ReadAbsolute(const v1::BuildTableRequest& request) {
  const absl::Status rotary = RotaryOnly(request);
  if (!rotary.ok()) return rotary;
  absl::StatusOr<InputAbsolute> input =
      server::ReadAbsolute(request.absolute());
  if (!input.ok()) return core::Prefixed("absolute", input.status());
  absl::StatusOr<core::AbsoluteExtents> extents =
      core::ValidateAbsolute(input->encoding);
  if (!extents.ok()) return core::Prefixed("absolute", extents.status());
  absolute_ = *std::move(input);
  dim_ = extents->dim;
  axes_ = extents->axes;
  needs_ids_ = extents->axes > 1;
  if (!extents->rows.has_value()) {
    const absl::StatusOr<std::int64_t> rows =
        TableRows(request.rows(), positions_.positions);
    if (!rows.ok()) return rows.status();
    rows_ = *rows;
    return absl::OkStatus();
  }
  if (!std::holds_alternative<std::monostate>(positions_.positions)) {
    return core::FieldInvalid("positions",
                              "given for sincos_grid, whose rows are its "
                              "cells; leave them out");
  }
  rows_ = *extents->rows;
  if (request.rows() != 0 && request.rows() != rows_) {
    return RowsMismatch(request.rows(), "the grid's cells are", rows_);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const TablePlan>> TablePlan::Read(
    const v1::BuildTableRequest& request, std::int64_t limit,
    std::int64_t rows_in_message) {
  if (request.encoding_case() == v1::BuildTableRequest::ENCODING_NOT_SET) {
    return core::FieldRequired("rope",
                               "neither rope nor absolute; give one of them");
  }
  auto plan = std::make_shared<TablePlan>();
  plan->dtype_ = ReadTableDtype(request.dtype());
  if (!core::IsFloating(plan->dtype_)) {
    return core::FieldInvalid(
        "dtype",
        absl::StrCat(core::DtypeName(plan->dtype_),
                     "; a table is float32, float16, bfloat16 or float64"));
  }
  if (request.rows() < 0) {
    return core::FieldInvalid(
        "rows", absl::StrCat(request.rows(), "; must not be negative"));
  }
  absl::StatusOr<InputPositions> positions = ReadPositions(request.positions());
  if (!positions.ok()) return core::Prefixed("positions", positions.status());
  plan->positions_ = *std::move(positions);
  absl::Status status = request.has_absolute() ? plan->ReadAbsolute(request)
                                               : plan->ReadRope(request);
  if (!status.ok()) return status;

  const std::int64_t largest = rows_in_message > 0
                                   ? std::min(rows_in_message, plan->rows_)
                                   : plan->rows_;
  // With their tags: the amplitude, and in a stream a first row of any size.
  absl::uint128 bytes =
      (plan->rotary() ? 9 : 0) + (rows_in_message > 0 ? 11 : 0);
  for (const OutputTensor& output : plan->Outputs(largest)) {
    bytes += TensorFieldBytes(output.dtype, output.shape, output.form);
  }
  status = CheckResponse(bytes, limit);
  if (!status.ok()) return status;
  status = plan->ReadRowPositions();
  if (!status.ok()) return status;
  return plan;
}

// All of them: rows are built later, some at a time.
absl::Status TablePlan::ReadRowPositions() {
  if (std::holds_alternative<std::monostate>(positions_.positions)) {
    return absl::OkStatus();  // a grid
  }
  if (const auto* start =
          std::get_if<core::StartPosition>(&positions_.positions);
      start != nullptr && !needs_ids_ && rows_ > 0) {
    start_ = start->start;
    // However many there are: what an encoding reaches has no gaps, so that
    // past a good first row a bad last one has the first bad one before it.
    absl::Status status = CheckRow(start_, 0);
    if (!status.ok()) return status;
    status = CheckRow(start_, rows_ - 1);
    if (status.ok()) return status;
    std::int64_t good = 0, bad = rows_ - 1;
    while (bad - good > 1) {
      const std::int64_t middle = good + (bad - good) / 2;
      absl::Status there = CheckRow(start_, middle);
      if (there.ok()) {
        good = middle;
      } else {
        bad = middle;
        status = std::move(there);
      }
    }
    return status;
  }
  absl::StatusOr<core::TokenPositions> expanded =
      ExpandRows(positions_.positions, rows_, axes_, needs_ids_);
  if (!expanded.ok()) return expanded.status();
  expanded_ = *std::move(expanded);
  return CheckReach(*expanded_, 0);
}

absl::Status TablePlan::CheckRow(std::int64_t start, std::int64_t row) const {
  if (start > core::kMaxPosition - row) {
    return core::MakeError(
        absl::StatusCode::kInvalidArgument,
        core::ErrorReason::kPositionOutOfRange, "positions.start",
        absl::StrCat(start, " + ", row, "; positions are within +-2^31"),
        {{"index", absl::StrCat(row)}});
  }
  const auto position =
      ExpandRows(core::StartPosition{start + row}, 1, axes_, needs_ids_);
  return position.ok() ? CheckReach(*position, row) : position.status();
}

absl::Status TablePlan::CheckReach(const core::TokenPositions& positions,
                                   std::int64_t first) const {
  if (rope_) {
    return core::Prefixed("positions",
                          core::CheckXPosReach(*rope_, positions, first));
  }
  return core::CheckReach(absolute_->encoding, positions, first);
}

core::TokenPositions TablePlan::PositionsOf(std::int64_t first,
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

OutputTensors TablePlan::Outputs(std::int64_t n) const {
  OutputTensors outputs;
  const core::Shape shape =
      rope_ ? core::TableShape(*rope_, n, layout_) : core::Shape{n, dim_};
  if (!rope_ || layout_ == core::TableLayout::kComplex) {
    outputs.push_back({Response::kTableFieldNumber, dtype_, shape});
  } else {
    outputs.push_back({Response::kCosFieldNumber, dtype_, shape});
    outputs.push_back({Response::kSinFieldNumber, dtype_, shape});
  }
  return outputs;
}

absl::Status TablePlan::Fill(std::int64_t first, std::int64_t n,
                             absl::Span<const core::TensorView> out) const {
  if (rope_) {
    return core::BuildRopeTable(*rope_, PositionsOf(first, n), layout_, role_,
                                out[0],
                                out.size() > 1 ? out[1] : core::TensorView{});
  }
  const core::AbsoluteEncoding& encoding = absolute_->encoding;
  if (const auto* grid = std::get_if<core::SincosGrid>(&encoding)) {
    return core::BuildGridRows(*grid, first, out[0]);
  }
  const core::TokenPositions positions = PositionsOf(first, n);
  return core::BuildAbsolute(encoding, &positions, out[0]);
}

TensorCall TablePlan::Call(std::int64_t first, std::int64_t n) const {
  TensorCall call;
  call.outputs = Outputs(n);
  std::vector<std::size_t> row_bytes;
  for (const OutputTensor& output : call.outputs) {
    std::size_t bytes = core::DtypeSize(output.dtype);
    for (std::size_t i = 1; i < output.shape.size(); ++i) {
      bytes *= output.shape[i];
    }
    row_bytes.push_back(bytes);
  }
  const std::int64_t part_rows =
      divisible_ ? std::max<std::int64_t>(
                       1, kPartBytes / std::max<std::size_t>(1, row_bytes[0]))
                 : std::max<std::int64_t>(1, n);
  call.parts = (n + part_rows - 1) / part_rows;
  call.keep = shared_from_this();
  call.compute = [this, first, n, part_rows, row_bytes](
                     std::int64_t part, absl::Span<const core::TensorView> out,
                     StopCheck) {
    const std::int64_t begin = part * part_rows;
    const std::int64_t rows = std::min(part_rows, n - begin);
    std::vector<core::TensorView> views(out.begin(), out.end());
    for (std::size_t i = 0; divisible_ && i < views.size(); ++i) {
      views[i].shape[0] = rows;
      views[i].data = static_cast<char*>(views[i].data) + begin * row_bytes[i];
    }
    return Fill(first + begin, rows, views);
  };
  return call;
}

absl::StatusOr<TensorCall> PrepareBuildTable(
    const v1::BuildTableRequest& request, std::int64_t limit,
    v1::BuildTableResponse* response) {
  const auto plan = TablePlan::Read(request, limit, 0);
  if (!plan.ok()) return plan.status();
  if ((*plan)->rotary()) response->set_amplitude((*plan)->amplitude());
  return (*plan)->Call(0, (*plan)->rows());
}

absl::StatusOr<TensorCall> PrepareAddEncoding(
    const v1::AddEncodingRequest& request, const TakenTensors& taken) {
  if (!request.has_encoding()) {
    return core::FieldRequired("encoding", "not given; give one encoding");
  }
  absl::StatusOr<InputAbsolute> encoding =
      server::ReadAbsolute(request.encoding());
  if (!encoding.ok()) return core::Prefixed("encoding", encoding.status());
  absl::StatusOr<InputPositions> positions = ReadPositions(request.positions());
  if (!positions.ok()) return core::Prefixed("positions", positions.status());
  if (!request.has_x()) return core::FieldRequired("x", "not given");
  absl::StatusOr<InputTensor> x = ReadTensor(
      request.x(), taken.Find(v1::AddEncodingRequest::kXFieldNumber));
  if (!x.ok()) return core::Prefixed("x", x.status());

  core::AddEncodingArgs args;
  args.encoding = encoding->encoding;
  args.positions = positions->positions;
  args.combination = ReadCombination(request.combination());
  if (request.has_x_scale()) args.x_scale = request.x_scale();
  absl::StatusOr<core::AddedRows> added =
      core::PrepareAddEncoding(args, x->view);
  if (!added.ok()) return added.status();

  TensorCall call;
  call.outputs.push_back({v1::AddEncodingResponse::kXFieldNumber, x->view.dtype,
                          std::move(added->shape), x->form,
                          std::move(added->map), x->pieces});
  struct Kept {
    InputAbsolute encoding;
    InputTensor x;
  };
  call.keep = std::make_shared<Kept>(Kept{*std::move(encoding), *std::move(x)});
  return call;
}

}  // namespace posenc::server
