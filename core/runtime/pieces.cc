#include "core/runtime/pieces.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace posenc::core {

template <typename Byte>
PieceArray<Byte>::PieceArray(List pieces) : pieces_(std::move(pieces)) {
  std::size_t end = 0;
  for (const absl::Span<Byte> piece : pieces_) {
    ends_.push_back(end += piece.size());
  }
}

template <typename Byte>
absl::Span<Byte> PieceArray<Byte>::From(std::size_t offset) const {
  // Finds the first piece that ends after `offset`. This skips empty pieces.
  const auto end = std::upper_bound(ends_.begin(), ends_.end(), offset);
  if (end == ends_.end()) return {};
  const absl::Span<Byte> piece = pieces_[end - ends_.begin()];
  return piece.subspan(piece.size() - (*end - offset));
}

template <typename Byte>
void PieceArray<Byte>::Read(std::size_t offset, std::size_t bytes,
                            void* to) const {
  auto* out = static_cast<char*>(to);
  while (bytes > 0) {
    const absl::Span<Byte> piece = From(offset).subspan(0, bytes);
    std::memcpy(out, piece.data(), piece.size());
    out += piece.size();
    offset += piece.size();
    bytes -= piece.size();
  }
}

template class PieceArray<char>;
template class PieceArray<const char>;

Pieces::Pieces(void* data, std::size_t size)
    : Pieces(List{absl::MakeSpan(static_cast<char*>(data), size)}) {}

Pieces::Pieces(List pieces) : PieceArray(std::move(pieces)) {}

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

ConstPieces::ConstPieces(const void* data, std::size_t size)
    : ConstPieces(List{absl::MakeSpan(static_cast<const char*>(data), size)}) {}

ConstPieces::ConstPieces(List pieces) : PieceArray(std::move(pieces)) {}

ConstPieces::ConstPieces(const Pieces& pieces)
    : PieceArray(List(pieces.pieces().begin(), pieces.pieces().end())) {}

ConstPieces ConstPieces::Part(std::size_t offset, std::size_t bytes) const {
  List part;
  while (bytes > 0) {
    part.push_back(From(offset).subspan(0, bytes));
    offset += part.back().size();
    bytes -= part.back().size();
  }
  return ConstPieces(std::move(part));
}

}  // namespace posenc::core
