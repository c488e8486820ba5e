// Keeps freed large blocks of memory for the next users.
//
// The allocator's heap is not suited for large blocks. Small blocks fill a part
// of the gap that a freed large block leaves. The next large block no longer
// fits into the gap, so the heap grows each time. In a test, it grew to the
// size of four messages. So each block of the pool is a separate mapping.
//
//   mapped = used + kept        size of the memory from the kernel
//   used                        size of the blocks in use
//   kept                        size of the free blocks
//   most_used                   peak of `used`, until KeepAtMost() lowers it
//
// Invariant after each call: mapped <= most_used. So the pool never holds more
// memory than its users have needed at the same time.

#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <mutex>
#include <vector>

namespace posenc::server {

// Thread-safe.
class BlockPool {
 public:
  struct Block {
    void* data = nullptr;
    std::size_t bytes = 0;
    bool fresh = false;  // new mapping: its first use causes page faults
  };

  BlockPool() = default;
  // Every block must have been freed before.
  ~BlockPool() { KeepAtMost(0); }
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // Returns a page-aligned, uninitialised block of at least `bytes`.
  // Block::data is null if the machine has no memory left.
  Block Allocate(std::size_t bytes);

  // Takes a block back and keeps it for reuse.
  void Free(const Block& block);

  // Returns kept blocks to the kernel until at most `bytes` are kept.
  void KeepAtMost(std::size_t bytes);

  std::size_t kept() const;
  std::size_t used() const;
  std::size_t mapped() const;

 private:
  // Updates the number of bytes that may be kept. Expects the lock.
  void NoteRoom() { room_.store(most_used_ - used_); }

  // Removes kept blocks, the smallest first, until at most `bytes` are kept.
  // Expects the lock. The caller unmaps the blocks after it has released the
  // lock, because unmapping takes milliseconds.
  std::vector<Block> Drop(std::size_t bytes);

  mutable std::mutex mutex_;
  std::multimap<std::size_t, void*> free_;  // by size
  std::size_t kept_ = 0;
  std::size_t used_ = 0;
  std::size_t most_used_ = 0;
  // A copy of most_used_ - used_ that is read without the lock. Every small
  // call runs KeepAtMost(), which returns immediately if at least this many
  // bytes may be kept.
  std::atomic<std::size_t> room_{0};
};

}  // namespace posenc::server
