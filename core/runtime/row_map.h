// Computations that make each row of a tensor from the same row of another:
// they run tile by tile, on any number of threads, over memory that lies in
// pieces, and may stop between tiles.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"

namespace posenc::core {

class RowMap {
 public:
  // What threads keep while they work on neighbouring rows. One thread each.
  class Tile {
   public:
    virtual ~Tile() = default;
    // Rows [first, first + rows) of those that the tile was started for. `in`
    // and `out` point to row `first`; any alignment. They are equal (only where
    // in_place()) or do not overlap.
    virtual void Run(std::int64_t first, std::int64_t rows, const void* in,
                     void* out) = 0;
  };

  virtual ~RowMap() = default;

  std::int64_t rows() const { return rows_; }
  std::size_t in_bytes() const { return in_bytes_; }  // of a row
  std::size_t out_bytes() const { return out_bytes_; }
  bool in_place() const { return in_place_; }

  // For rows [first, first + rows). Safe for many threads.
  virtual std::unique_ptr<Tile> StartTile(std::int64_t first,
                                          std::int64_t rows) const = 0;

 protected:
  RowMap(std::int64_t rows, std::size_t in_bytes, std::size_t out_bytes,
         bool in_place)
      : rows_(rows),
        in_bytes_(in_bytes),
        out_bytes_(out_bytes),
        in_place_(in_place) {}

 private:
  const std::int64_t rows_;
  const std::size_t in_bytes_;
  const std::size_t out_bytes_;
  const bool in_place_;
};

// Bytes that lie in pieces, as one array.
class Pieces {
 public:
  using List = absl::InlinedVector<absl::Span<char>, 2>;

  Pieces() = default;
  // One piece.
  Pieces(void* data, std::size_t size);
  explicit Pieces(List pieces);

  std::size_t size() const { return ends_.empty() ? 0 : ends_.back(); }

  // What lies in one piece from `offset` on; empty at the end.
  absl::Span<char> From(std::size_t offset) const;

  // Copies `bytes` from, or to, `offset`.
  void Read(std::size_t offset, std::size_t bytes, void* to) const;
  void Write(std::size_t offset, std::size_t bytes, const void* from) const;

 private:
  List pieces_;
  absl::InlinedVector<std::size_t, 2> ends_;  // offset past each piece
};

// Maps rows [first, first + rows). `in` and `out` hold all rows; they are the
// same pieces (only where in_place()) or do not overlap. A row that straddles
// two pieces is put together in memory of its own.
void MapRows(const RowMap& map, const Pieces& in, const Pieces& out,
             std::int64_t first, std::int64_t rows);

// All rows of a tensor that lies in one piece.
void MapAll(const RowMap& map, const void* in, void* out);

}  // namespace posenc::core
