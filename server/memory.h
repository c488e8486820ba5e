// How the process uses glibc's allocator.
//
// glibc gives large blocks back to the kernel when they are freed; each large
// message then pays for its page faults anew, several times what rotating it
// costs. So memory is kept while calls come, and given back when they do not.

#pragma once

#include <cstddef>

namespace posenc::server {

// Once, before any thread starts.
void KeepFreedMemory();

// Gives freed memory back to the kernel. Takes milliseconds for gigabytes.
void ReturnFreedMemory();

// Bytes that it would look through.
std::size_t FreedMemory();

}  // namespace posenc::server
