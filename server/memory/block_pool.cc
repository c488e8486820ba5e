#include "server/memory/block_pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "absl/base/config.h"

#ifdef ABSL_HAVE_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif

namespace posenc::server {
namespace {

// A kept block is reused only if at most 1/kMostWaste of it would be unused,
// because the unused part takes memory that no call has claimed.
constexpr std::size_t kMostWaste = 5;

// Makes the address sanitizer report any use of a block beyond its first
// `bytes`. Otherwise the sanitizer checks only the heap, not mappings.
void AllowUse([[maybe_unused]] const BlockPool::Block& block,
              [[maybe_unused]] std::size_t bytes) {
#ifdef ABSL_HAVE_ADDRESS_SANITIZER
  char* const data = static_cast<char*>(block.data);
  __asan_unpoison_memory_region(data, bytes);
  __asan_poison_memory_region(data + bytes, block.bytes - bytes);
#endif
}

void Unmap(const std::vector<BlockPool::Block>& blocks) {
  for (const BlockPool::Block& block : blocks) {
    AllowUse(block, block.bytes);  // the addresses may be mapped again
    munmap(block.data, block.bytes);
  }
}

}  // namespace

BlockPool::Block BlockPool::Allocate(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t size = (bytes + page - 1) / page * page;
  std::vector<Block> dropped;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto fit = free_.lower_bound(size);
    if (fit != free_.end() && fit->first - size <= fit->first / kMostWaste) {
      const Block block = {fit->second, fit->first, false};
      free_.erase(fit);
      kept_ -= block.bytes;
      used_ += block.bytes;
      NoteRoom();
      AllowUse(block, bytes);
      return block;
    }
    // No kept block fits, so a new block is mapped. The new block may raise the
    // peak of used bytes. Kept blocks are then unmapped until all blocks
    // together do not exceed the peak.
    used_ += size;
    most_used_ = std::max(most_used_, used_);
    NoteRoom();
    dropped = Drop(most_used_ - used_);
  }
  Unmap(dropped);
  void* const data = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data != MAP_FAILED) {
    const Block block = {data, size, true};
    AllowUse(block, bytes);
    return block;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  used_ -= size;
  NoteRoom();
  return {};
}

void BlockPool::Free(const Block& block) {
  AllowUse(block, 0);
  const std::lock_guard<std::mutex> lock(mutex_);
  used_ -= block.bytes;
  NoteRoom();
  kept_ += block.bytes;
  free_.emplace(block.bytes, block.data);
}

void BlockPool::KeepAtMost(std::size_t bytes) {
  if (bytes >= room_.load()) return;
  std::vector<Block> dropped;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    most_used_ = used_ + std::min(bytes, most_used_ - used_);
    NoteRoom();
    dropped = Drop(bytes);
  }
  Unmap(dropped);
}

std::vector<BlockPool::Block> BlockPool::Drop(std::size_t bytes) {
  std::vector<Block> dropped;
  while (kept_ > bytes) {
    const auto smallest = free_.begin();
    dropped.push_back({smallest->second, smallest->first, false});
    kept_ -= smallest->first;
    free_.erase(smallest);
  }
  return dropped;
}

std::size_t BlockPool::kept() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return kept_;
}

std::size_t BlockPool::used() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return used_;
}

std::size_t BlockPool::mapped() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return kept_ + used_;
}

}  // namespace posenc::server
