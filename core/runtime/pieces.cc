#include "core/runtime/pieces.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace posenc::core {

template <typename Byte>
PieceArray<Byte>::PieceArray(Data data, std::size_t size)
    : PieceArray(List{absl::MakeSpan(static_cast<Byte*>(data), size)}) {}

template <typename Byte>
PieceArray<Byte>::PieceArray(List pieces) : pieces_(std::move(pieces)) {
  std::size_t end = 0;
  for (const absl::Span<Byte> piece : pieces_) {
    ends_.push_back(end += piece.size());
  }
}

template <typename Byte>
PieceArray<Byte>::operator PieceArray<const char>() const
    requires(!std::is_const_v<Byte>) {
  return PieceArray<const char>(
      PieceArray<const char>::List(pieces_.begin(), pieces_.end()));
}

template <typename Byte>
absl::Span<Byte> PieceArray<Byte>::From(std::size_t offset) const {
  // Finds the first piece that ends after `offset`. The search skips empty
  // pieces.
  const auto end = std::upper_bound(ends_.begin(), ends_.end(), offset);
  if (end == ends_.end()) return {};
  const absl::Span<Byte> piece = pieces_[end - ends_.begin()];
  return piece.subspan(piece.size() - (*end - offset));
}

template <typename Byte>
PieceArray<Byte> PieceArray<Byte>::Part(std::size_t offset,
                                        std::size_t bytes) const {
  List part;
  while (bytes > 0) {
    part.push_back(From(offset).subspan(0, bytes));
    offset += part.back().size();
    bytes -= part.back().size();
  }
  return PieceArray(std::move(part));
}

template <typename Byte>
void PieceArray<Byte>::Read(std::size_t offset, std::size_t bytes,
                            void* to) const {
  auto* out = static_cast<char*>(to);
  for (const absl::Span<Byte> piece : Part(offset, bytes).pieces_) {
    std::memcpy(out, piece.data(), piece.size());
    out += piece.size();
  }
}

template <typename Byte>
void PieceArray<Byte>::Write(std::size_t offset, std::size_t bytes,
                             const void* from) const
    requires(!std::is_const_v<Byte>) {
  const auto* in = static_cast<const char*>(from);
  for (const absl::Span<Byte> piece : Part(offset, bytes).pieces_) {
    std::memcpy(piece.data(), in, piece.size());
    in += piece.size();
  }
}

template class PieceArray<char>;
template class PieceArray<const char>;

}  // namespace posenc::core
