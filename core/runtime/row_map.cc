#include "core/runtime/row_map.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

namespace posenc::core {

Pieces::Pieces(void* data, std::size_t size)
    : Pieces(List{absl::MakeSpan(static_cast<char*>(data), size)}) {}

Pieces::Pieces(List pieces) : pieces_(std::move(pieces)) {
  std::size_t end = 0;
  for (const absl::Span<char> piece : pieces_) {
    ends_.push_back(end += piece.size());
  }
}

absl::Span<char> Pieces::From(std::size_t offset) const {
  const auto end = std::upper_bound(ends_.begin(), ends_.end(), offset);
  if (end == ends_.end()) return {};
  const absl::Span<char> piece = pieces_[end - ends_.begin()];
  return piece.subspan(piece.size() - (*end - offset));
}

void Pieces::Read(std::size_t offset, std::size_t bytes, void* to) const {
  auto* out = static_cast<char*>(to);
  while (bytes > 0) {
    const absl::Span<char> piece = From(offset).subspan(0, bytes);
    std::memcpy(out, piece.data(), piece.size());
    out += piece.size();
    offset += piece.size();
    bytes -= piece.size();
  }
}

void Pieces::Write(std::size_t offset, std::size_t bytes,
                   const void* from) const {
  const auto* in = static_cast<const char*>(from);
  while (bytes > 0) {
    const absl::Span<char> piece = From(offset).subspan(0, bytes);
    std::memcpy(piece.data(), in, piece.size());
    in += piece.size();
    offset += piece.size();
    bytes -= piece.size();
  }
}

void MapRows(const RowMap& map, const Pieces& in, const Pieces& out,
             std::int64_t first, std::int64_t rows) {
  const std::size_t in_bytes = map.in_bytes();
  const std::size_t out_bytes = map.out_bytes();
  const std::unique_ptr<RowMap::Tile> tile = map.StartTile(first, rows);
  std::vector<char> row_in, row_out;
  for (const std::int64_t end = first + rows; first < end;) {
    const absl::Span<char> from = in.From(first * in_bytes);
    const absl::Span<char> to = out.From(first * out_bytes);
    const std::int64_t whole = std::min<std::int64_t>(
        {end - first, static_cast<std::int64_t>(from.size() / in_bytes),
         static_cast<std::int64_t>(to.size() / out_bytes)});
    if (whole > 0) {
      tile->Run(first, whole, from.data(), to.data());
      first += whole;
      continue;
    }
    row_in.resize(in_bytes);
    row_out.resize(out_bytes);
    in.Read(first * in_bytes, in_bytes, row_in.data());
    tile->Run(first, 1, row_in.data(), row_out.data());
    out.Write(first * out_bytes, out_bytes, row_out.data());
    ++first;
  }
}

void MapAll(const RowMap& map, const void* in, void* out) {
  if (map.rows() == 0) return;
  map.StartTile(0, map.rows())->Run(0, map.rows(), in, out);
}

}  // namespace posenc::core
