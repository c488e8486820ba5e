#include "server/calls/relative.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/error.h"
#include "server/convert/relative.h"

namespace posenc::server {
namespace {

// What is computed between two looks at the caller: about a millisecond where
// an element takes a few hundred operations (FIRE).
constexpr std::int64_t kBlockElements = 65536;
// Multiplications likewise.
constexpr std::int64_t kBlockProducts = std::int64_t{1} << 20;

struct Extents {
  std::int64_t queries, keys;
};

// Parts of `length` no longer than `most`, about as long as each other.
std::int64_t Even(std::int64_t length, std::int64_t most) {
  const std::int64_t parts = (length + most - 1) / most;
  return (length + parts - 1) / parts;
}

// A rectangle of at most `elements`, about square: most biases depend on the
// distance i - j, of which a square has the fewest. Of one query or one key at
// least.
Extents ChooseTile(const Extents& whole, std::int64_t elements) {
  const auto side =
      static_cast<std::int64_t>(std::sqrt(static_cast<double>(elements)));
  Extents tile;
  tile.queries = std::min(whole.queries, side);
  tile.keys = std::min(whole.keys, elements / tile.queries);
  tile.queries = std::min(whole.queries, elements / tile.keys);
  return {Even(whole.queries, tile.queries), Even(whole.keys, tile.keys)};
}

absl::Status CheckTile(absl::string_view field, std::int64_t extent) {
  if (extent >= 0) return absl::OkStatus();
  return core::FieldInvalid(
      field, absl::StrCat(extent, "; must be positive, or unset"));
}

// The tile that the request asks for, with what it leaves open chosen so that
// messages have about `bytes`.
Extents TileOf(const v1::BuildBiasRequest& request, const Extents& whole,
               std::int64_t bytes_per_element, std::int64_t bytes) {
  const std::int64_t elements =
      std::max<std::int64_t>(1, bytes / bytes_per_element);
  if (request.query_tile() == 0 && request.key_tile() == 0) {
    return ChooseTile(whole, elements);
  }
  Extents tile = {std::min(whole.queries, request.query_tile()),
                  std::min(whole.keys, request.key_tile())};
  if (tile.queries == 0) {
    tile.queries =
        Even(whole.queries, std::max<std::int64_t>(1, elements / tile.keys));
  }
  if (tile.keys == 0) {
    tile.keys =
        Even(whole.keys, std::max<std::int64_t>(1, elements / tile.queries));
  }
  return tile;
}

// Calls visit(part) for the parts of `whole` of these extents, row by row.
template <typename Visit>
absl::Status ForEachPart(const core::BiasRange& whole, const Extents& extents,
                         Visit visit) {
  core::BiasRange part;
  for (std::int64_t i = 0; i < whole.query_length; i += extents.queries) {
    part.query_start = whole.query_start + i;
    part.query_length = std::min(extents.queries, whole.query_length - i);
    for (std::int64_t j = 0; j < whole.key_length; j += extents.keys) {
      part.key_start = whole.key_start + j;
      part.key_length = std::min(extents.keys, whole.key_length - j);
      const absl::Status status = visit(part);
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

// Fills a tile block by block, so that a large one can be abandoned.
absl::Status FillTile(const core::BiasTiles& bias, const core::BiasRange& tile,
                      StopCheck stop, char* out) {
  const std::size_t size = core::DtypeSize(bias.dtype());
  const Extents extents =
      ChooseTile({tile.query_length, tile.key_length},
                 std::max<std::int64_t>(1, kBlockElements / bias.heads()));
  if (extents.queries == tile.query_length && extents.keys == tile.key_length) {
    const absl::Status status = stop();
    if (status.ok()) bias.Fill(tile, out);
    return status;
  }
  std::vector<char> block(bias.heads() * extents.queries * extents.keys * size);
  return ForEachPart(tile, extents, [&](const core::BiasRange& part) {
    const absl::Status status = stop();
    if (!status.ok()) return status;
    bias.Fill(part, block.data());
    const char* from = block.data();
    for (std::int64_t h = 0; h < bias.heads(); ++h) {
      for (std::int64_t i = 0; i < part.query_length; ++i) {
        const std::int64_t row =
            h * tile.query_length + part.query_start - tile.query_start + i;
        std::memcpy(
            out + (row * tile.key_length + part.key_start - tile.key_start) *
                      size,
            from, part.key_length * size);
        from += part.key_length * size;
      }
    }
    return absl::OkStatus();
  });
}

}  // namespace

absl::Status AnswerBuildBias(
    const v1::BuildBiasRequest& request, std::int64_t limit, StopCheck stop,
    absl::FunctionRef<bool(const v1::BuildBiasResponse&)> write) {
  absl::Status status = CheckTile("query_tile", request.query_tile());
  if (status.ok()) status = CheckTile("key_tile", request.key_tile());
  if (!status.ok()) return status;
  absl::StatusOr<InputBias> input = ReadBias(request);
  if (!input.ok()) return input.status();
  absl::StatusOr<core::BiasTiles> bias = core::BiasTiles::Create(input->args);
  if (!bias.ok()) return bias.status();

  const core::BiasRange& range = input->args.range;
  if (range.query_length == 0 || range.key_length == 0 || bias->heads() == 0) {
    return absl::OkStatus();
  }
  const Extents extents =
      TileOf(request, {range.query_length, range.key_length},
             bias->heads() * core::DtypeSize(bias->dtype()),
             std::min(kStreamChunkBytes, limit));
  // 22: two varints with their tags, where the tile starts.
  const core::Shape largest = {bias->heads(), extents.queries, extents.keys};
  status = CheckSize(
      "query_tile",
      absl::StrCat("tiles of ", core::ShapeToString(largest), " ",
                   core::DtypeName(bias->dtype()), ", messages"),
      22 + TensorFieldBytes(bias->dtype(), largest, TensorForm::kData), limit,
      "ask for smaller tiles, or raise --max-response-bytes");
  if (!status.ok()) return status;

  v1::BuildBiasResponse response;
  return ForEachPart(range, extents, [&](const core::BiasRange& tile) {
    response.set_query_start(tile.query_start);
    response.set_key_start(tile.key_start);
    response.mutable_tile()->clear_shape();
    const core::TensorView room = AllocateTensor(
        bias->dtype(), {bias->heads(), tile.query_length, tile.key_length},
        response.mutable_tile());
    const absl::Status filled =
        FillTile(*bias, tile, stop, static_cast<char*>(room.data));
    if (!filled.ok()) return filled;
    return write(response) ? absl::OkStatus()
                           : absl::CancelledError("the caller is gone");
  });
}

absl::StatusOr<TensorCall> PrepareScoreRelative(
    const v1::ScoreRelativeRequest& request, const TakenTensors& taken) {
  absl::StatusOr<InputScore> score = ReadScore(request);
  if (!score.ok()) return score.status();
  if (!request.has_q()) return core::FieldRequired("q", "not given");
  if (!request.has_k()) return core::FieldRequired("k", "not given");
  absl::StatusOr<InputTensor> q = ReadTensor(
      request.q(), taken.Find(v1::ScoreRelativeRequest::kQFieldNumber));
  if (!q.ok()) return core::Prefixed("q", q.status());
  absl::StatusOr<InputTensor> k = ReadTensor(
      request.k(), taken.Find(v1::ScoreRelativeRequest::kKFieldNumber));
  if (!k.ok()) return core::Prefixed("k", k.status());
  absl::StatusOr<core::ScoreExtents> extents =
      core::ValidateScore(score->args, q->view, k->view);
  if (!extents.ok()) return extents.status();
  // Every query meets every key: both are walked many times.
  q->Gather();
  k->Gather();

  struct Kept {
    InputScore score;
    InputTensor q, k;
  };
  const auto kept = std::make_shared<const Kept>(
      Kept{*std::move(score), *std::move(q), *std::move(k)});
  const core::Shape shape = extents->shape;  // [B, H, Sq, Sk]
  const core::Dtype dtype = extents->dtype;
  const std::int64_t rows = shape[3] > 0 ? shape[0] * shape[1] * shape[2] : 0;
  const std::int64_t row_products =
      std::max<std::int64_t>(1, shape[3] * kept->q.view.shape[3]);
  const std::int64_t block =
      std::max<std::int64_t>(1, kBlockProducts / row_products);
  TensorCall call;
  call.outputs.push_back(
      {v1::ScoreRelativeResponse::kScoresFieldNumber, dtype, shape});
  call.parts = (rows + block - 1) / block;
  call.compute = [kept, dtype, rows, block,
                  row_bytes = shape[3] * core::DtypeSize(dtype)](
                     std::int64_t part, absl::Span<const core::TensorView> out,
                     StopCheck) {
    const std::int64_t first = part * block;
    core::FillScores(kept->score.args, kept->q.view, kept->k.view, first,
                     std::min(block, rows - first), dtype,
                     static_cast<char*>(out[0].data) + first * row_bytes);
    return absl::OkStatus();
  };
  return call;
}

}  // namespace posenc::server
