#include "server/memory/heap.h"

#include <malloc.h>
#include <unistd.h>

#include <fstream>

namespace posenc::server {

void KeepFreedMemory() {
  // Takes blocks up to 1 GiB from the heap. free() would unmap separate
  // mappings.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  // Prevents free() from returning the end of the heap to the kernel.
  mallopt(M_TRIM_THRESHOLD, 0x7fffffff);
  // Makes the heap grow by 64 MiB at a time, so that it grows rarely.
  mallopt(M_TOP_PAD, 64 << 20);
  // Uses one heap for all threads. With a heap for each thread, a heap would
  // have at most 64 MiB, and could not use the free memory of other heaps.
  mallopt(M_ARENA_MAX, 1);
}

void ReturnFreedMemory() { malloc_trim(0); }

std::size_t FreedMemory() { return mallinfo2().fordblks; }

std::size_t UsedMemory() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

std::size_t ResidentMemory() {
  // Numbers of pages: all pages, the resident pages, and the resident pages
  // that are shared (proc(5)).
  std::size_t size = 0, resident = 0, shared = 0;
  std::ifstream("/proc/self/statm") >> size >> resident >> shared;
  return (resident - shared) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace posenc::server
