#include "server/memory/heap.h"

#include <malloc.h>
#include <unistd.h>

#include <fstream>

namespace posenc::server {

void KeepFreedMemory() {
  // Blocks up to 1 GiB come from the heap, not from mappings of their own,
  // which free() would unmap.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  // free() never returns the end of the heap to the kernel.
  mallopt(M_TRIM_THRESHOLD, 0x7fffffff);
  // The heap grows by 64 MiB at a time, so that it rarely has to.
  mallopt(M_TOP_PAD, 64 << 20);
  // One heap serves all threads: a heap of a thread's own is at most 64 MiB
  // large, and what one heap has free, another cannot use.
  mallopt(M_ARENA_MAX, 1);
}

void ReturnFreedMemory() { malloc_trim(0); }

std::size_t FreedMemory() { return mallinfo2().fordblks; }

std::size_t UsedMemory() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

std::size_t ResidentMemory() {
  // Pages: of the address space, resident, and of these shared (proc(5)).
  std::size_t size = 0, resident = 0, shared = 0;
  std::ifstream("/proc/self/statm") >> size >> resident >> shared;
  return (resident - shared) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace posenc::server
