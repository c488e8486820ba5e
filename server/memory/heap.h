// Configures glibc's allocator for the process.
//
// By default, glibc returns large blocks to the kernel when they are freed.
// Then each large message would cause page faults again. These take several
// times as long as the rotation of the message.

#pragma once

#include <cstddef>

namespace posenc::server {

// Makes the allocator keep freed memory. Must be called before any thread
// starts.
void KeepFreedMemory();

// Returns freed memory to the kernel. This takes milliseconds for gigabytes.
void ReturnFreedMemory();

// FreedMemory() returns the size of the allocator's free memory, and
// UsedMemory() that of its used memory. Both take milliseconds if there are
// many free blocks.
std::size_t FreedMemory();
std::size_t UsedMemory();

// Returns the size of the process's resident memory without pages of files.
// Freed memory counts until it is returned to the kernel.
std::size_t ResidentMemory();

}  // namespace posenc::server
