// Large blocks of memory that are kept when they are freed, for whoever needs
// one next.
//
// The allocator's heap does not serve here: small blocks settle in the gap that
// a large one left, the next large one no longer fits, and the heap grows by a
// message each time (to four, as measured). Each block is a mapping of its own
// instead.

#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <vector>

namespace posenc::server {

// Safe for many threads.
class BlockPool {
 public:
  struct Block {
    void* data = nullptr;
    std::size_t bytes = 0;
    bool fresh = false;  // mapped just now: its pages are still to come
  };

  BlockPool() = default;
  // Every block has been freed.
  ~BlockPool() { KeepAtMost(0); }
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // A block of at least so many bytes, page aligned, not initialised. Null
  // where the machine has no more.
  Block Allocate(std::size_t bytes);

  // Keeps the block: with those in use no more than were in use at once.
  void Free(const Block& block);

  // Gives kept blocks back to the kernel, but for so many bytes.
  void KeepAtMost(std::size_t bytes);

  std::size_t kept() const;
  std::size_t mapped() const;  // in use, or kept

 private:
  // Takes kept blocks out until no more than `bytes` are left. Under the lock;
  // the caller unmaps them without it, which takes milliseconds.
  std::vector<Block> Drop(std::size_t bytes);

  mutable std::mutex mutex_;
  std::multimap<std::size_t, void*> free_;  // by size
  std::size_t kept_ = 0;
  std::size_t used_ = 0;
  std::size_t most_used_ = 0;
};

}  // namespace posenc::server
