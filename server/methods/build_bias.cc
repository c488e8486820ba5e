// BuildBias streams an attention bias matrix as bias tiles.
//
// A bias tile is the part of the matrix in one message; the contract calls its
// extents query_tile and key_tile. A tile is a unit of work, as in the rest of
// the server. A bias tile is divided into tiles so that its computation can be
// stopped, and so that several threads can work on it.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/relative/bias.h"
#include "posenc/v1/service.pb.h"
#include "server/base/errors.h"
#include "server/convert/fields.h"
#include "server/convert/relative.h"
#include "server/methods/methods.h"
#include "server/methods/stream.h"

namespace posenc::server {
namespace {

// A tile takes about a millisecond. kBiasTileElements limits a tile whose time
// is mostly spent on storing elements.
constexpr std::int64_t kBiasTileElements = 65536;
constexpr std::int64_t kBiasTileNanoseconds = 1000000;

// Size of a response without the bias tile: two varints with tags for the
// tile's start, and the shape of the whole matrix with three varints.
constexpr std::size_t kStartBytes = 22 + 32;

struct Extents {
  std::int64_t queries = 0, keys = 0;
};

// Returns the length of a part if `length` is divided into about equal parts of
// at most `most`.
std::int64_t Even(std::int64_t length, std::int64_t most) {
  const std::int64_t parts = (length + most - 1) / most;
  return (length + parts - 1) / parts;
}

// Divides `whole` into rectangles that are about square and have at most
// `elements` elements each. Most biases depend on the distance i - j, and a
// square has the fewest distances. Returns the extents of a rectangle, at least
// one query and one key.
Extents AboutSquare(const Extents& whole, std::int64_t elements) {
  const auto side =
      static_cast<std::int64_t>(std::sqrt(static_cast<double>(elements)));
  Extents part;
  part.queries = std::min(whole.queries, side);
  part.keys = std::min(whole.keys, elements / part.queries);
  part.queries = std::min(whole.queries, elements / part.keys);
  return {Even(whole.queries, part.queries), Even(whole.keys, part.keys)};
}

// Returns the extents of the requested bias tile. If the request does not set
// an extent, chooses it so that a message has about `bytes`.
Extents BiasTileExtents(const v1::BuildBiasRequest& request,
                        const Extents& whole, std::int64_t bytes_per_element,
                        std::int64_t bytes) {
  const std::int64_t elements =
      std::max<std::int64_t>(1, bytes / bytes_per_element);
  if (request.query_tile() == 0 && request.key_tile() == 0) {
    return AboutSquare(whole, elements);
  }
  Extents bias_tile = {std::min(whole.queries, request.query_tile()),
                       std::min(whole.keys, request.key_tile())};
  if (bias_tile.queries == 0) {
    bias_tile.queries = Even(
        whole.queries, std::max<std::int64_t>(1, elements / bias_tile.keys));
  }
  if (bias_tile.keys == 0) {
    bias_tile.keys = Even(
        whole.keys, std::max<std::int64_t>(1, elements / bias_tile.queries));
  }
  return bias_tile;
}

absl::Status CheckBiasTile(absl::string_view field, std::int64_t extent) {
  if (extent >= 0) return absl::OkStatus();
  return core::FieldInvalid(field, extent, "; must be positive, or unset");
}

// The bias tiles of a validated request, in row-major order. Each bias tile is
// computed on demand. Borrows the request.
class CheckedBias : public std::enable_shared_from_this<CheckedBias> {
 public:
  // The start of the next bias tile, relative to the matrix' first query and
  // key.
  struct Cursor {
    std::int64_t query = 0, key = 0;
  };

  // If `whole` is true, the matrix is one bias tile, and the tile sizes of the
  // request have no effect.
  static absl::StatusOr<std::shared_ptr<const CheckedBias>> Check(
      const v1::BuildBiasRequest& request, const MethodContext& context,
      bool whole) {
    core::Faults faults;
    faults.Note(CheckBiasTile("query_tile", request.query_tile()));
    faults.Note(CheckBiasTile("key_tile", request.key_tile()));
    absl::StatusOr<core::BiasArgs> args = ReadBias(request, context.owned);
    if (!faults.Note(args.status())) return faults.status();
    absl::StatusOr<core::BiasTiles> bias = core::BiasTiles::Create(*args);
    faults.Note(bias.status());
    if (!faults.none()) return faults.status();
    auto checked = std::make_shared<CheckedBias>(args->range, *std::move(bias));
    RETURN_IF_ERROR(checked->ChooseBiasTile(
        request, context.limits->max_response_bytes, whole));
    return checked;
  }

  CheckedBias(const core::BiasRange& range, core::BiasTiles bias)
      : range_(range), bias_(std::move(bias)) {}

  // Returns whether the cursor is after the last bias tile.
  bool AtEnd(const Cursor& cursor) const {
    return bias_.heads() == 0 || cursor.query >= range().query_length;
  }

  // Returns the bias tile at `cursor`, and advances `cursor`.
  core::BiasRange Next(Cursor* cursor) const {
    const core::BiasRange bias_tile = {
        range().query_start + cursor->query,
        std::min(bias_tile_.queries, range().query_length - cursor->query),
        range().key_start + cursor->key,
        std::min(bias_tile_.keys, range().key_length - cursor->key)};
    cursor->key += bias_tile_.keys;
    if (cursor->key >= range().key_length) {
      cursor->key = 0;
      cursor->query += bias_tile_.queries;
    }
    return bias_tile;
  }

  // Returns the range of the whole matrix.
  const core::BiasRange& range() const { return range_; }
  core::Shape WholeShape() const {
    return {bias_.heads(), range().query_length, range().key_length};
  }

  // Returns an answer that computes one bias tile.
  TensorAnswer Answer(const core::BiasRange& whole) const {
    TensorAnswer answer;
    answer.outputs.push_back(
        {v1::BuildBiasResponse::kTileFieldNumber,
         bias_.dtype(),
         {bias_.heads(), whole.query_length, whole.key_length}});
    const Extents tile = TileExtents(whole);
    const std::int64_t columns = (whole.key_length + tile.keys - 1) / tile.keys;
    const std::int64_t rows =
        (whole.query_length + tile.queries - 1) / tile.queries;
    answer.computation = std::make_unique<TileFunction>(
        bias_.heads() == 0 ? 0 : rows * columns,
        [self = shared_from_this(), whole, tile, columns](
            std::int64_t i, absl::Span<const OutputBuffer> outputs, StopCheck) {
          self->Fill(whole,
                     {i / columns * tile.queries, i % columns * tile.keys},
                     tile, outputs[0].data());
          return absl::OkStatus();
        },
        bias_.Nanoseconds(whole.query_length, whole.key_length));
    return answer;
  }

 private:
  Extents TileExtents(const core::BiasRange& whole) const {
    std::int64_t pairs =
        kBiasTileElements / std::max<std::int64_t>(1, bias_.heads());
    Extents tile;
    do {
      pairs = std::max<std::int64_t>(1, pairs);
      tile = AboutSquare({whole.query_length, whole.key_length}, pairs);
      pairs /= 2;
    } while (pairs > 0 &&
             bias_.Nanoseconds(tile.queries, tile.keys) > kBiasTileNanoseconds);
    return tile;
  }

  absl::Status ChooseBiasTile(const v1::BuildBiasRequest& request,
                              std::int64_t limit, bool whole) {
    const core::BiasRange& range = range_;
    const std::int64_t heads = bias_.heads();
    if (heads == 0) return absl::OkStatus();
    const Extents matrix = {range.query_length, range.key_length};
    bias_tile_ =
        whole ? matrix
              : BiasTileExtents(request, matrix,
                                heads * static_cast<std::int64_t>(
                                            core::DtypeSize(bias_.dtype())),
                                std::min(kStreamChunkBytes, limit));
    const core::Shape shape = {heads, bias_tile_.queries, bias_tile_.keys};
    return CheckSize(
        whole ? "query_length" : "query_tile",
        absl::StrCat("tiles of ", core::ShapeToString(shape), " ",
                     core::DtypeName(bias_.dtype()), ", messages"),
        kStartBytes + TensorFieldBytes(v1::BuildBiasResponse::kTileFieldNumber,
                                       bias_.dtype(), shape, TensorForm::kData),
        limit,
        whole ? "ask for fewer queries, keys or heads at a time, or raise "
                "--max-response-bytes"
              : "ask for smaller tiles or fewer heads, or raise "
                "--max-response-bytes");
  }

  // Computes the tile that starts at `start` within the bias tile `whole`;
  // `out` points to the first byte of the bias tile.
  void Fill(const core::BiasRange& whole, const Extents& start,
            const Extents& tile, char* out) const {
    const core::BiasRange range = {
        whole.query_start + start.queries,
        std::min(tile.queries, whole.query_length - start.queries),
        whole.key_start + start.keys,
        std::min(tile.keys, whole.key_length - start.keys)};
    const std::int64_t first = start.queries * whole.key_length + start.keys;
    bias_.Fill(
        range,
        out + first * static_cast<std::int64_t>(core::DtypeSize(bias_.dtype())),
        whole.key_length, whole.query_length * whole.key_length);
  }

  const core::BiasRange range_;
  const core::BiasTiles bias_;
  Extents bias_tile_;
};

absl::StatusOr<NextPart> BeginBias(const v1::BuildBiasRequest& request,
                                   const MethodContext& context) {
  ASSIGN_OR_RETURN(std::shared_ptr<const CheckedBias> bias,
                   CheckedBias::Check(request, context, false));
  CheckedBias::Cursor cursor;
  if (bias->AtEnd(cursor)) return nullptr;
  return [bias = std::move(bias), cursor]() mutable {
    v1::BuildBiasResponse response;
    if (cursor.query == 0 && cursor.key == 0) {
      Append(bias->WholeShape(), response.mutable_whole_shape());
    }
    const core::BiasRange bias_tile = bias->Next(&cursor);
    response.set_query_start(bias_tile.query_start);
    response.set_key_start(bias_tile.key_start);
    return ResultPart{bias->Answer(bias_tile), response.SerializeAsString(),
                      bias->AtEnd(cursor)};
  };
}

}  // namespace

absl::StatusOr<TensorAnswer> AnswerWholeBias(
    const v1::BuildBiasRequest& request, const MethodContext& context) {
  for (const auto& [field, extent] :
       {std::pair("query_tile", request.query_tile()),
        std::pair("key_tile", request.key_tile())}) {
    if (extent != 0) {
      return core::FieldInvalid(field, extent,
                                "; the matrix comes as one tile here");
    }
  }
  ASSIGN_OR_RETURN(const auto bias, CheckedBias::Check(request, context, true));
  auto response = std::make_shared<v1::BuildBiasResponse>();
  response->set_query_start(bias->range().query_start);
  response->set_key_start(bias->range().key_start);
  TensorAnswer answer = bias->Answer(bias->range());
  answer.response = std::move(response);
  return answer;
}

std::unique_ptr<CallHandler> StartBuildBias(const MethodContext& context) {
  return std::make_unique<PartsStream<v1::BuildBiasRequest, BeginBias>>(context,
                                                                        "bias");
}

}  // namespace posenc::server
