// Handles files that are truncated while they are mapped.
//
// A thread gets SIGBUS if it accesses a page past the file's end, or a page for
// which a full tmpfs has no memory. The handler maps zeros from that page to
// the mapping's end, so that the computation continues. It also marks the
// mapping as cut. Calls that use the mapping fail after their computation.
// Other solutions would not work. A jump out of the handler would skip
// destructors, and a file could be truncated after a check of its size.
//
// A SIGBUS at any other address ends the process with a core dump, as it does
// by default.

#pragma once

#include <cstddef>

namespace posenc::server {

// Guards one mapping, which must be unmapped after the guard is destroyed.
class CutGuard {
 public:
  // Largest number of mappings that are guarded at the same time.
  static constexpr std::size_t kMost = 128;

  // The first guard of a process installs the handler. `begin` is the start of
  // the mapping, and `page_bytes` (a power of two) is its page size.
  CutGuard(void* begin, std::size_t bytes, std::size_t page_bytes);
  ~CutGuard();
  CutGuard(const CutGuard&) = delete;
  CutGuard& operator=(const CutGuard&) = delete;

  // Returns whether the guard has a slot. Without a slot, do not use the
  // mapping.
  bool guards() const { return slot_ < kMost; }
  // Returns whether zeros have replaced pages of the mapping.
  bool cut() const;

 private:
  std::size_t slot_ = kMost;
};

}  // namespace posenc::server
