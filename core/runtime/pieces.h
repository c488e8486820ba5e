// Separate pieces of memory, used as one array. A message arrives in any number
// of slices, and a tensor that is read only once should not be copied to join
// its slices.
//
// The type says whether the bytes are writable, as with TensorView and
// ConstTensorView. The slices of a request can have other owners, so they are
// ConstPieces. Code that is the only owner of its bytes uses Pieces.

#pragma once

#include <cstddef>
#include <type_traits>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"

namespace posenc::core {

// Byte is char or const char. An array of up to two pieces is copied without an
// allocation.
template <typename Byte>
class PieceArray {
 public:
  using List = absl::InlinedVector<absl::Span<Byte>, 2>;
  using Data = std::conditional_t<std::is_const_v<Byte>, const void*, void*>;

  PieceArray() = default;
  PieceArray(Data data, std::size_t size);
  explicit PieceArray(List pieces);
  // The conversion is implicit, like the conversion from T* to const T*.
  // NOLINTNEXTLINE(google-explicit-constructor)
  operator PieceArray<const char>() const requires(!std::is_const_v<Byte>);

  std::size_t size() const { return ends_.empty() ? 0 : ends_.back(); }

  // Returns the bytes from `offset` to the end of the piece that contains this
  // offset; empty at the end of the array.
  absl::Span<Byte> From(std::size_t offset) const;
  // Returns a part of the array. The part must lie inside the array.
  PieceArray Part(std::size_t offset, std::size_t bytes) const;

  // Copies the `bytes` bytes that begin at `offset`, across pieces, to `to`.
  void Read(std::size_t offset, std::size_t bytes, void* to) const;
  // Copies `bytes` bytes from `from` to `offset`, across pieces.
  void Write(std::size_t offset, std::size_t bytes, const void* from) const
      requires(!std::is_const_v<Byte>);

 private:
  List pieces_;
  // The offset of each piece's end, so that From() can find a piece by
  // bisection.
  absl::InlinedVector<std::size_t, 2> ends_;
};

using Pieces = PieceArray<char>;
using ConstPieces = PieceArray<const char>;

}  // namespace posenc::core
