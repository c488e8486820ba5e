// ScoreRelative returns attention scores of Shaw, Transformer-XL and DeBERTa.

#include <algorithm>
#include <memory>
#include <utility>

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/relative/score.h"
#include "posenc/v1/service.pb.h"
#include "server/convert/relative.h"
#include "server/methods/methods.h"

namespace posenc::server {
namespace {

// Number of multiplications of a tile. They take less than a millisecond.
constexpr std::int64_t kTileProducts = std::int64_t{1} << 20;

struct Inputs {
  core::ScoreArgs args;
  InputTensor q, k;
};

absl::StatusOr<Inputs> ReadInputs(const v1::ScoreRelativeRequest& request,
                                  const MethodContext& context) {
  core::Faults faults;
  absl::StatusOr<core::ScoreArgs> score = ReadScore(request, context.owned);
  faults.Note(score.status());
  absl::StatusOr<InputTensor> q = ReadRequiredTensor(
      "q", request.has_q(), request.q(),
      context.borrowed.Find(v1::ScoreRelativeRequest::kQFieldNumber));
  faults.Note(q.status());
  absl::StatusOr<InputTensor> k = ReadRequiredTensor(
      "k", request.has_k(), request.k(),
      context.borrowed.Find(v1::ScoreRelativeRequest::kKFieldNumber));
  faults.Note(k.status());
  if (faults.none()) {
    return Inputs{*std::move(score), *std::move(q), *std::move(k)};
  }
  if (!request.has_score()) {
    faults.Note(core::FieldRequired("score", "not given"));
  }
  return faults.status();
}

// Joins the pieces of q and k. Both tensors are read many times, because every
// query is multiplied by every key.
absl::Status JoinPieces(const core::ReserveFunction& reserve, Inputs* inputs) {
  std::int64_t copied = 0;
  for (const InputTensor* tensor : {&inputs->q, &inputs->k}) {
    if (tensor->view.data == nullptr) {
      copied += static_cast<std::int64_t>(tensor->pieces.size());
    }
  }
  if (copied > 0 && reserve) {
    RETURN_IF_ERROR(reserve(copied));
  }
  inputs->q.Gather();
  inputs->k.Gather();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TensorAnswer> AnswerScoreRelative(
    const v1::ScoreRelativeRequest& request, const MethodContext& context) {
  absl::StatusOr<Inputs> read = ReadInputs(request, context);
  if (!read.ok()) return read.status();
  ASSIGN_OR_RETURN(const core::ScoreExtents extents,
                   core::ValidateScore(read->args, read->q.view, read->k.view));
  RETURN_IF_ERROR(JoinPieces(context.reserve, &*read));
  const auto inputs = std::make_shared<const Inputs>(*std::move(read));
  const core::Shape shape = extents.shape;  // [B, H, Sq, Sk]
  const core::Dtype dtype = extents.dtype;
  const std::int64_t rows = shape[3] > 0 ? shape[0] * shape[1] * shape[2] : 0;
  const std::int64_t row_products =
      std::max<std::int64_t>(1, shape[3] * inputs->q.view.shape[3]);
  const std::int64_t tile_rows =
      std::max<std::int64_t>(1, kTileProducts / row_products);
  TensorAnswer answer;
  answer.outputs.push_back(
      {v1::ScoreRelativeResponse::kScoresFieldNumber, dtype, shape});
  answer.computation = std::make_unique<TileFunction>(
      (rows + tile_rows - 1) / tile_rows,
      [inputs, dtype, rows, tile_rows,
       row_bytes = shape[3] * core::DtypeSize(dtype)](
          std::int64_t tile, absl::Span<const OutputBuffer> outputs,
          StopCheck stop) {
        const std::int64_t first = tile * tile_rows;
        return core::FillScores(inputs->args, inputs->q.view, inputs->k.view,
                                first, std::min(tile_rows, rows - first), dtype,
                                outputs[0].data() + first * row_bytes, stop);
      },
      // Assumes a quarter of a nanosecond for each multiplication.
      rows * row_products / 4);
  return answer;
}

}  // namespace posenc::server
