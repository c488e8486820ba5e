// Separate pieces of memory, seen as one array: a message arrives in any number
// of slices, and a tensor that is read once should not be copied to join its
// slices.
//
// The type tells whether the bytes may be written, as with TensorView and
// ConstTensorView. The slices of a request may be shared with others, so they
// are ConstPieces; code that is the only owner of the bytes makes Pieces of
// them.

#pragma once

#include <cstddef>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"

namespace posenc::core {

// The part that Pieces and ConstPieces share; Byte is char or const char.
// Copies of up to two pieces allocate nothing.
template <typename Byte>
class PieceArray {
 public:
  using List = absl::InlinedVector<absl::Span<Byte>, 2>;

  std::size_t size() const { return ends_.empty() ? 0 : ends_.back(); }

  // Returns the rest of a piece, from `offset` on; empty at the end of the
  // array.
  absl::Span<Byte> From(std::size_t offset) const;

  // Copies `bytes` from `offset` on, across pieces.
  void Read(std::size_t offset, std::size_t bytes, void* to) const;

 protected:
  PieceArray() = default;
  explicit PieceArray(List pieces);

  const List& pieces() const { return pieces_; }

 private:
  List pieces_;
  // Offset past each piece, so that From() finds its piece by bisection.
  absl::InlinedVector<std::size_t, 2> ends_;
};

class Pieces : public PieceArray<char> {
 public:
  Pieces() = default;
  // One piece.
  Pieces(void* data, std::size_t size);
  explicit Pieces(List pieces);

  // Copies `bytes` to `offset`, across pieces.
  void Write(std::size_t offset, std::size_t bytes, const void* from) const;

 private:
  friend class ConstPieces;
};

class ConstPieces : public PieceArray<const char> {
 public:
  ConstPieces() = default;
  // One piece.
  ConstPieces(const void* data, std::size_t size);
  explicit ConstPieces(List pieces);
  // Implicit, like the conversion from T* to const T*.
  ConstPieces(const Pieces& pieces);  // NOLINT(google-explicit-constructor)

  // Returns a part of these pieces. It must lie inside them.
  ConstPieces Part(std::size_t offset, std::size_t bytes) const;
};

}  // namespace posenc::core
