// The cosines and sines that the last calls with an encoding have used, kept
// for calls at the same positions. A model rotates at the same positions in
// each of its layers, keys as well as queries, and for keys of few heads
// evaluating a row takes as long as rotating by it.

#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>

#include "core/positions.h"
#include "core/rope/cos_sin_table.h"

namespace posenc::core {

// Safe for many threads. The least recently used rows go first.
class RecentRows {
 public:
  // All that the rows of an encoding depend on.
  struct Key {
    bool wide;      // float64
    int direction;  // a Direction
    bool for_keys;  // whether they are keys' rows, if those are others
    std::shared_ptr<const TokenPositions> positions;
  };

  // Of rows and their positions: two calls of kMaxCallBytes, with up to 8
  // position axes for 64 pairs.
  static constexpr std::size_t kMaxBytes = 144 * 1024;
  // Of the rows of one call. More are not worth it: tensors that large wait for
  // memory, and evaluating rows does not.
  static constexpr std::size_t kMaxCallBytes = 64 * 1024;
  // Fewer are evaluated sooner than they are found by several threads.
  static constexpr std::int64_t kFewestRows = 8;

  // Null if these rows are not here.
  std::shared_ptr<const CosSinTable> Find(const Key& key);
  // Does nothing if rows and positions take more than half of kMaxBytes.
  void Keep(Key key, std::shared_ptr<const CosSinTable> rows);

 private:
  struct Entry {
    Key key;
    std::shared_ptr<const CosSinTable> rows;

    std::size_t bytes() const;
  };

  // Entries may be small, and all are looked through.
  static constexpr std::size_t kMaxEntries = 16;

  std::mutex mutex_;
  std::list<Entry> entries_;  // the most recently used first
  std::size_t bytes_ = 0;
};

}  // namespace posenc::core
