// Computations in which each row of a tensor depends only on the same row of
// another tensor. So the rows can be divided into tiles in any way, and any
// number of threads can compute the tiles. The memory of the tensors may be in
// pieces (pieces.h). The computation may stop between tiles. The bytes of a row
// do not depend on the division into tiles and pieces.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "core/runtime/pieces.h"

namespace posenc::core {

class RowMap {
 public:
  // A thread's state while it works on rows. Only one thread uses a worker.
  // Consecutive rows are cheapest, because they reuse the state.
  class Worker {
   public:
    virtual ~Worker() = default;
    // Maps rows [first, first + rows), which are within the rows given to
    // StartWorker(). `in` and `out` point to row `first`, with any alignment.
    // `in` and `out` do not overlap, but may be equal if in_place().
    virtual void Run(std::int64_t first, std::int64_t rows, const void* in,
                     void* out) = 0;
  };

  virtual ~RowMap() = default;

  std::int64_t rows() const { return rows_; }
  std::size_t in_bytes() const { return in_bytes_; }  // size of a row of `in`
  std::size_t out_bytes() const { return out_bytes_; }
  bool in_place() const { return in_place_; }
  // Size in bytes of the data that workers compute once and the map keeps.
  virtual std::size_t kept_bytes() const { return 0; }

  // Returns a worker for rows [first, first + rows). Many threads may call this
  // function at the same time.
  virtual std::unique_ptr<Worker> StartWorker(std::int64_t first,
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

// A map of rows [first, first + rows) of another map, for a tensor that has
// only these rows.
class RowRange final : public RowMap {
 public:
  RowRange(std::shared_ptr<const RowMap> map, std::int64_t first,
           std::int64_t rows)
      : RowMap(rows, map->in_bytes(), map->out_bytes(), map->in_place()),
        map_(std::move(map)),
        first_(first) {}

  std::unique_ptr<Worker> StartWorker(std::int64_t first,
                                      std::int64_t rows) const override;

 private:
  const std::shared_ptr<const RowMap> map_;
  const std::int64_t first_;
};

// Maps rows [first, first + rows). `in` and `out` have all rows of the map.
// `in` and `out` do not overlap, but may be the same pieces if in_place(). A
// row that lies in two pieces is joined in a buffer.
void MapRows(const RowMap& map, const ConstPieces& in, const Pieces& out,
             std::int64_t first, std::int64_t rows);

// Maps all rows of a tensor that is one piece of memory.
void MapAll(const RowMap& map, const void* in, void* out);

}  // namespace posenc::core
