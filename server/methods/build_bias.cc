#include "server/calls/relative.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/error.h"

namespace posenc::server {
namespace {

// What is computed between two looks at the caller: about a millisecond where
// an element takes a few hundred operations (FIRE).
constexpr std::int64_t kBlockElements = 65536;
// Multiplications likewise.
constexpr std::int64_t kBlockProducts = std::int64_t{1} << 20;

// Parts of `length` no longer than `most`, about as long as each other.
std::int64_t Even(std::int64_t length, std::int64_t most) {
  const std::int64_t parts = (length + most - 1) / most;
  return (length + parts - 1) / parts;
}

absl::Status CheckTile(absl::string_view field, std::int64_t extent) {
  if (extent >= 0) return absl::OkStatus();
  return core::FieldInvalid(
      field, absl::StrCat(extent, "; must be positive, or unset"));
}

// What says how many heads there are.
const char* HeadsField(const v1::Bias& bias) {
  switch (bias.bias_case()) {
    case v1::Bias::kAlibi:
      return "bias.alibi.heads";
    case v1::Bias::kT5:
      return "bias.t5.weights";
    case v1::Bias::kKerple:
      return "bias.kerple.r1";
    case v1::Bias::kFire:
      return "bias.fire.w2";
    case v1::Bias::kSandwich:
      return "bias.sandwich.heads";
    case v1::Bias::kUntiedPositions:
      return "bias.untied_positions.position_queries";
    case v1::Bias::kRelativeIndex:
    case v1::Bias::BIAS_NOT_SET:
      break;
  }
  return "bias";
}

}  // namespace

// A rectangle of at most `elements`, about square: most biases depend on the
// distance i - j, of which a square has the fewest. Of one query or one key at
// least.
BiasPlan::Extents BiasPlan::ChooseTile(const Extents& whole,
                                       std::int64_t elements) {
  const auto side =
      static_cast<std::int64_t>(std::sqrt(static_cast<double>(elements)));
  Extents tile;
  tile.queries = std::min(whole.queries, side);
  tile.keys = std::min(whole.keys, elements / tile.queries);
  tile.queries = std::min(whole.queries, elements / tile.keys);
  return {Even(whole.queries, tile.queries), Even(whole.keys, tile.keys)};
}

// The tile that the request asks for, with what it leaves open chosen so that
// messages have about `bytes`.
BiasPlan::Extents BiasPlan::TileOf(const v1::BuildBiasRequest& request,
                                   const Extents& whole,
                                   std::int64_t bytes_per_element,
                                   std::int64_t bytes) {
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

absl::StatusOr<std::shared_ptr<const BiasPlan>> BiasPlan::Read(
    const v1::BuildBiasRequest& request, std::int64_t limit) {
  absl::Status status = CheckTile("query_tile", request.query_tile());
  if (status.ok()) status = CheckTile("key_tile", request.key_tile());
  if (!status.ok()) return status;
  absl::StatusOr<InputBias> input = ReadBias(request);
  if (!input.ok()) return input.status();
  absl::StatusOr<core::BiasTiles> bias = core::BiasTiles::Create(input->args);
  if (!bias.ok()) return bias.status();
  auto plan = std::make_shared<BiasPlan>(*std::move(input), *std::move(bias));
  status = plan->ReadExtents(request, limit);
  if (!status.ok()) return status;
  return plan;
}

absl::Status BiasPlan::ReadExtents(const v1::BuildBiasRequest& request,
                                   std::int64_t limit) {
  const core::BiasRange& range = input_.args.range;
  const std::int64_t heads = bias_.heads();
  if (heads == 0) return absl::OkStatus();
  extents_ = TileOf(request, {range.query_length, range.key_length},
                    heads * core::DtypeSize(bias_.dtype()),
                    std::min(kStreamChunkBytes, limit));
  const auto check = [&](const char* field, const Extents& extents,
                         absl::string_view remedy) {
    const core::Shape shape = {heads, extents.queries, extents.keys};
    // 22: two varints with their tags, where the tile starts.
    return CheckSize(
        field,
        absl::StrCat("tiles of ", core::ShapeToString(shape), " ",
                     core::DtypeName(bias_.dtype()), ", messages"),
        22 + TensorFieldBytes(bias_.dtype(), shape, TensorForm::kData), limit,
        remedy);
  };
  const absl::Status least =
      check(HeadsField(request.bias()), {1, 1},
            "ask for fewer heads, or raise --max-response-bytes");
  if (!least.ok()) return least;
  return check("query_tile", extents_,
               "ask for smaller tiles, or raise --max-response-bytes");
}

std::optional<core::BiasRange> BiasPlan::Next(Place* place) const {
  const core::BiasRange& range = input_.args.range;
  if (bias_.heads() == 0 || place->query >= range.query_length) {
    return std::nullopt;
  }
  const core::BiasRange tile = {
      range.query_start + place->query,
      std::min(extents_.queries, range.query_length - place->query),
      range.key_start + place->key,
      std::min(extents_.keys, range.key_length - place->key)};
  place->key += extents_.keys;
  if (place->key >= range.key_length) {
    place->key = 0;
    place->query += extents_.queries;
  }
  return tile;
}

TensorCall BiasPlan::Call(const core::BiasRange& tile) const {
  TensorCall call;
  call.outputs.push_back({v1::BuildBiasResponse::kTileFieldNumber,
                          bias_.dtype(),
                          {bias_.heads(), tile.query_length, tile.key_length}});
  // Block by block, so that a large tile can be abandoned.
  const Extents block =
      ChooseTile({tile.query_length, tile.key_length},
                 std::max<std::int64_t>(1, kBlockElements / bias_.heads()));
  const std::int64_t columns = (tile.key_length + block.keys - 1) / block.keys;
  call.parts =
      columns * ((tile.query_length + block.queries - 1) / block.queries);
  call.keep = shared_from_this();
  call.compute = [this, tile, block, columns](
                     std::int64_t part, absl::Span<const core::TensorView> out,
                     StopCheck) {
    const std::int64_t i = part / columns * block.queries;
    const std::int64_t j = part % columns * block.keys;
    Fill(tile,
         {tile.query_start + i, std::min(block.queries, tile.query_length - i),
          tile.key_start + j, std::min(block.keys, tile.key_length - j)},
         static_cast<char*>(out[0].data));
    return absl::OkStatus();
  };
  return call;
}

// out: the tile's.
void BiasPlan::Fill(const core::BiasRange& tile, const core::BiasRange& block,
                    char* out) const {
  if (block.query_length == tile.query_length &&
      block.key_length == tile.key_length) {
    bias_.Fill(block, out);
    return;
  }
  const std::size_t size = core::DtypeSize(bias_.dtype());
  std::vector<char> values(bias_.heads() * block.query_length *
                           block.key_length * size);
  bias_.Fill(block, values.data());
  const char* from = values.data();
  for (std::int64_t h = 0; h < bias_.heads(); ++h) {
    for (std::int64_t i = 0; i < block.query_length; ++i) {
      const std::int64_t row =
          h * tile.query_length + block.query_start - tile.query_start + i;
      std::memcpy(
          out +
              (row * tile.key_length + block.key_start - tile.key_start) * size,
          from, block.key_length * size);
      from += block.key_length * size;
    }
  }
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
