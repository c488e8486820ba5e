// How the process uses glibc's allocator.
//
// glibc returns large blocks to the kernel when they are freed. Each large
// message would then pay for its page faults anew, which cost several times
// what rotating it costs. So the process keeps freed memory while calls come,
// and returns it when they stop.

#pragma once

#include <cstddef>

namespace posenc::server {

// Makes the allocator keep what is freed. To be called once, before any thread
// starts.
void KeepFreedMemory();

// Returns freed memory to the kernel. Takes milliseconds for gigabytes.
void ReturnFreedMemory();

// Bytes that the allocator keeps, free, and bytes that it has given out. Both
// walk lists of free blocks: milliseconds if there are many.
std::size_t FreedMemory();
std::size_t UsedMemory();

// Bytes of memory that the process has from the kernel, files' pages left out:
// what was freed counts until it is returned, and again once it is reused.
std::size_t ResidentMemory();

}  // namespace posenc::server
