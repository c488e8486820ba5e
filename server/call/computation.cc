#include "server/call/computation.h"

#include <algorithm>

namespace posenc::server {
namespace {

std::int64_t RowsPerTile(const core::RowMap& map, std::size_t tile_bytes) {
  const std::size_t row = map.in_bytes() + map.out_bytes();
  return std::max<std::int64_t>(1, tile_bytes / std::max<std::size_t>(row, 1));
}

std::int64_t Tiles(const core::RowMap& map, std::size_t tile_bytes) {
  const std::int64_t rows = RowsPerTile(map, tile_bytes);
  return (map.rows() + rows - 1) / rows;
}

}  // namespace

std::size_t ByteCount(const OutputTensor& output) {
  std::size_t bytes = core::DtypeSize(output.dtype);
  for (const std::int64_t extent : output.shape) bytes *= extent;
  return bytes;
}

RowMapComputation::RowMapComputation(absl::InlinedVector<Output, 2> outputs,
                                     std::size_t tile_bytes)
    : Computation(0, 0), tile_bytes_(tile_bytes), outputs_(std::move(outputs)) {
  for (const Output& output : outputs_) {
    tiles_ += Tiles(*output.map, tile_bytes);
    work_ += output.input.pieces.size();
  }
}

const core::ConstPieces* RowMapComputation::InputInPlace(std::size_t i) const {
  const core::ConstPieces& input = outputs_[i].input.pieces;
  return outputs_[i].map->in_place() && input.size() > 0 ? &input : nullptr;
}

// The tiles of the first output have the lowest numbers; the tiles of the next
// output follow.
absl::Status RowMapComputation::Compute(std::int64_t tile,
                                        absl::Span<const OutputBuffer> outputs,
                                        StopCheck /*stop*/) const {
  std::size_t i = 0;
  for (std::int64_t tiles;
       tile >= (tiles = Tiles(*outputs_[i].map, tile_bytes_)); ++i) {
    tile -= tiles;
  }
  const core::RowMap& map = *outputs_[i].map;
  const OutputBuffer& buffer = outputs[i];
  const std::int64_t rows = RowsPerTile(map, tile_bytes_);
  const std::int64_t first = tile * rows;
  const std::int64_t n = std::min(rows, map.rows() - first);
  if (buffer.holds_input) {
    core::MapRows(map, buffer.bytes, buffer.bytes, first, n);
  } else {
    core::MapRows(map, outputs_[i].input.pieces, buffer.bytes, first, n);
  }
  return absl::OkStatus();
}

}  // namespace posenc::server
