#include "server/memory.h"

#include <malloc.h>

namespace posenc::server {

void KeepFreedMemory() {
  // Blocks up to this come from the heap, not from mappings of their own.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  // The heap's end is never cut off...
  mallopt(M_TRIM_THRESHOLD, 0x7fffffff);
  // ...and grows by this much.
  mallopt(M_TOP_PAD, 64 << 20);
  // Heaps of other threads could not hold large blocks.
  mallopt(M_ARENA_MAX, 1);
}

void ReturnFreedMemory() { malloc_trim(0); }

std::size_t FreedMemory() { return mallinfo2().fordblks; }

}  // namespace posenc::server
