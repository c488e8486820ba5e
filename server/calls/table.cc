#include "server/calls/table.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "core/error.h"
#include "core/rope/table.h"
#include "server/calls/rope.h"
#include "server/convert/absolute.h"
#include "server/convert/positions.h"
#include "server/convert/rope.h"

namespace posenc::server {
namespace {

using Response = v1::BuildTableResponse;

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

absl::StatusOr<core::TokenPositions> TablePositions(
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

absl::StatusOr<TensorCall> PrepareRopeTable(
    const v1::BuildTableRequest& request, InputPositions positions,
    std::int64_t rows, v1::BuildTableResponse* response) {
  absl::StatusOr<core::ResolvedRope> rope = ResolveField(
      "rope", true, request.rope(), 0, core::MissingLength::kError);
  if (!rope.ok()) return rope.status();
  if (rope->spec.nope) {
    return core::FieldInvalid(
        "rope",
        "this layer has no positional encoding (nope); it has no table");
  }
  const core::Dtype dtype = ReadTableDtype(request.dtype());
  const core::TableLayout layout = ReadTableLayout(request.layout());
  const core::TensorRole role =
      request.for_keys() ? core::TensorRole::kKey : core::TensorRole::kQuery;
  const core::Shape shape = core::TableShape(*rope, rows, layout);
  response->set_amplitude(rope->amplitude);

  TensorCall call;
  if (layout == core::TableLayout::kComplex) {
    call.outputs = {{Response::kTableFieldNumber, dtype, shape}};
  } else {
    call.outputs = {{Response::kCosFieldNumber, dtype, shape},
                    {Response::kSinFieldNumber, dtype, shape}};
  }
  call.compute = [rope = *std::move(rope), positions = std::move(positions),
                  rows, layout, role](absl::Span<const core::TensorView> out,
                                      StopCheck) -> absl::Status {
    absl::StatusOr<core::TokenPositions> expanded = TablePositions(
        positions.positions, rows, rope.axes(), rope.needs_ids());
    if (!expanded.ok()) return expanded.status();
    return core::BuildRopeTable(rope, *expanded, layout, role, out[0],
                                out.size() > 1 ? out[1] : core::TensorView{});
  };
  return call;
}

absl::Status RotaryOnly(const v1::BuildTableRequest& request) {
  constexpr char kFact[] = "given for an absolute encoding; rotary tables only";
  if (request.layout() != v1::TABLE_LAYOUT_UNSPECIFIED) {
    return core::FieldInvalid("layout", kFact);
  }
  if (request.for_keys()) return core::FieldInvalid("for_keys", kFact);
  return absl::OkStatus();
}

absl::StatusOr<TensorCall> PrepareAbsoluteTable(
    const v1::BuildTableRequest& request, InputPositions positions) {
  const absl::Status rotary = RotaryOnly(request);
  if (!rotary.ok()) return rotary;
  absl::StatusOr<InputAbsolute> input = ReadAbsolute(request.absolute());
  if (!input.ok()) return core::Prefixed("absolute", input.status());
  absl::StatusOr<core::AbsoluteExtents> extents =
      core::ValidateAbsolute(input->encoding);
  if (!extents.ok()) return core::Prefixed("absolute", extents.status());

  std::int64_t rows = 0;
  if (extents->rows.has_value()) {
    if (!std::holds_alternative<std::monostate>(positions.positions)) {
      return core::FieldInvalid("positions",
                                "given for sincos_grid, whose rows are its "
                                "cells; leave them out");
    }
    rows = *extents->rows;
    if (request.rows() != 0 && request.rows() != rows) {
      return RowsMismatch(request.rows(), "the grid's cells are", rows);
    }
  } else {
    const absl::StatusOr<std::int64_t> told =
        TableRows(request.rows(), positions.positions);
    if (!told.ok()) return told.status();
    rows = *told;
  }

  TensorCall call;
  call.outputs = {{Response::kTableFieldNumber,
                   ReadTableDtype(request.dtype()),
                   {rows, extents->dim}}};
  call.compute = [input = *std::move(input), positions = std::move(positions),
                  rows,
                  extents = *extents](absl::Span<const core::TensorView> out,
                                      StopCheck) -> absl::Status {
    if (extents.rows.has_value()) {
      return core::BuildAbsolute(input.encoding, nullptr, out[0]);
    }
    absl::StatusOr<core::TokenPositions> expanded = TablePositions(
        positions.positions, rows, extents.axes, extents.axes > 1);
    if (!expanded.ok()) return expanded.status();
    return core::BuildAbsolute(input.encoding, &*expanded, out[0]);
  };
  return call;
}

}  // namespace

absl::StatusOr<TensorCall> PrepareBuildTable(
    const v1::BuildTableRequest& request, v1::BuildTableResponse* response) {
  if (request.encoding_case() == v1::BuildTableRequest::ENCODING_NOT_SET) {
    return core::FieldRequired("rope",
                               "neither rope nor absolute; give one of them");
  }
  const core::Dtype dtype = ReadTableDtype(request.dtype());
  if (!core::IsFloating(dtype)) {
    return core::FieldInvalid(
        "dtype",
        absl::StrCat(core::DtypeName(dtype),
                     "; a table is float32, float16, bfloat16 or float64"));
  }
  if (request.rows() < 0) {
    return core::FieldInvalid(
        "rows", absl::StrCat(request.rows(), "; must not be negative"));
  }
  absl::StatusOr<InputPositions> positions = ReadPositions(request.positions());
  if (!positions.ok()) return core::Prefixed("positions", positions.status());
  if (request.has_absolute()) {
    return PrepareAbsoluteTable(request, *std::move(positions));
  }
  const absl::StatusOr<std::int64_t> rows =
      TableRows(request.rows(), positions->positions);
  if (!rows.ok()) return rows.status();
  return PrepareRopeTable(request, *std::move(positions), *rows, response);
}

absl::StatusOr<TensorCall> PrepareAddEncoding(
    const v1::AddEncodingRequest& request) {
  if (!request.has_encoding()) {
    return core::FieldRequired("encoding", "not given; give one encoding");
  }
  absl::StatusOr<InputAbsolute> encoding = ReadAbsolute(request.encoding());
  if (!encoding.ok()) return core::Prefixed("encoding", encoding.status());
  absl::StatusOr<InputPositions> positions = ReadPositions(request.positions());
  if (!positions.ok()) return core::Prefixed("positions", positions.status());
  if (!request.has_x()) return core::FieldRequired("x", "not given");
  absl::StatusOr<InputTensor> x = ReadTensor(request.x());
  if (!x.ok()) return core::Prefixed("x", x.status());

  core::AddEncodingArgs args;
  args.encoding = encoding->encoding;
  args.positions = positions->positions;
  args.combination = ReadCombination(request.combination());
  if (request.has_x_scale()) args.x_scale = request.x_scale();
  absl::StatusOr<core::Shape> shape =
      core::AddEncodingShape(args, x->view.dtype, x->view.shape);
  if (!shape.ok()) return shape.status();

  TensorCall call;
  call.outputs = {{v1::AddEncodingResponse::kXFieldNumber, x->view.dtype,
                   *std::move(shape), x->form}};
  call.compute = [args = std::move(args), encoding = *std::move(encoding),
                  positions = *std::move(positions), x = *std::move(x)](
                     absl::Span<const core::TensorView> out, StopCheck) {
    return core::AddEncoding(args, x.view, out[0]);
  };
  return call;
}

}  // namespace posenc::server
