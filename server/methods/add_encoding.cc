// AddEncoding combines x with an absolute encoding by addition, multiplication
// or concatenation.

#include "core/absolute/add_encoding.h"

#include <memory>
#include <utility>

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "posenc/v1/service.pb.h"
#include "server/convert/absolute.h"
#include "server/convert/fields.h"
#include "server/convert/positions.h"
#include "server/methods/methods.h"

namespace posenc::server {

absl::StatusOr<TensorAnswer> AnswerAddEncoding(
    const v1::AddEncodingRequest& request, const MethodContext& context) {
  core::Faults faults;
  if (!request.has_encoding()) {
    faults.Note(
        core::FieldRequired("encoding", "not given; give one encoding"));
  }
  absl::StatusOr<core::AbsoluteEncoding> encoding =
      ReadAbsolute(request.encoding(), context.owned);
  faults.Note(core::Prefixed("encoding", encoding.status()));
  absl::StatusOr<core::Positions> positions =
      ReadPositions(request.positions(), context.owned);
  faults.Note(core::Prefixed("positions", positions.status()));
  absl::StatusOr<InputTensor> x = ReadRequiredTensor(
      "x", request.has_x(), request.x(),
      context.borrowed.Find(v1::AddEncodingRequest::kXFieldNumber));
  faults.Note(x.status());
  if (!faults.none()) {
    // All encodings except a grid need positions.
    if (encoding.ok()) {
      faults.Note(core::Prefixed("encoding",
                                 core::ValidateAbsolute(*encoding).status()));
    }
    if (request.positions().kind_case() == v1::Positions::KIND_NOT_SET &&
        !request.encoding().has_sincos_grid()) {
      faults.Note(core::FieldRequired(
          "positions", "is missing; set start, starts, ids or packed"));
    }
    return faults.status();
  }

  core::AddEncodingArgs args;
  args.encoding = *std::move(encoding);
  args.positions = *std::move(positions);
  args.reserve = context.reserve;
  args.combination = EnumOr(core::Combination::kAdd, request.combination());
  if (request.has_x_scale()) args.x_scale = request.x_scale();
  ASSIGN_OR_RETURN(core::AddedRows added,
                   core::PrepareAddEncoding(args, x->view));

  TensorAnswer answer;
  answer.outputs.push_back({v1::AddEncodingResponse::kXFieldNumber,
                            x->view.dtype, std::move(added.shape), x->form});
  absl::InlinedVector<RowMapComputation::Output, 2> maps;
  maps.push_back({std::move(added.map), *std::move(x)});
  answer.computation = std::make_unique<RowMapComputation>(
      std::move(maps), context.borrowed.tile_bytes());
  return answer;
}

}  // namespace posenc::server
