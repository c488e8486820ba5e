// What happens when a file is cut short while it is mapped.
//
// A page behind the file's end raises SIGBUS in whichever thread touches it, as
// does a page for which a full tmpfs has no memory. The handler puts pages of
// zeros from there to the mapping's end, so that the kernel under way goes on,
// and marks the mapping as cut; its calls fail when they have been computed.
// This costs nothing otherwise. Jumping out of the handler would skip
// destructors, and looking at the file's size before each use would be a race.
//
// A SIGBUS anywhere else ends the process, with a core, as by default.

#pragma once

#include <cstddef>

namespace posenc::server {

// One mapping that is guarded. It must be unmapped after the guard has gone.
class CutGuard {
 public:
  // Mappings that are guarded at a time, at most.
  static constexpr std::size_t kMost = 128;

  // The first guard of a process installs the handler. `begin` and `page_bytes`
  // (a power of two) are those of the mapping's pages.
  CutGuard(void* begin, std::size_t bytes, std::size_t page_bytes);
  ~CutGuard();
  CutGuard(const CutGuard&) = delete;
  CutGuard& operator=(const CutGuard&) = delete;

  // Whether there was a place for it. If not, the mapping must not be used.
  bool guards() const { return slot_ < kMost; }
  // Whether pages of the mapping have been replaced by zeros.
  bool cut() const;

 private:
  std::size_t slot_ = kMost;
};

}  // namespace posenc::server
