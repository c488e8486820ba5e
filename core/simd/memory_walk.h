// How rotations walk memory on this CPU. It was measured on a Xeon with
// AVX-512, and on Zen 3, 4 and 5 (memory_walk.cc); others do as Zen 5 does. It
// decides about the order of the work, never about a byte.

#pragma once

#include <cstddef>

namespace posenc::simd {

// Pages that are walked at once (RotateJob::pages): 4 on Intel's, 1 on others.
std::size_t PagesAtOnce();

// Whether rotations are faster if they fetch ahead what comes from memory
// (RotateJob::fetch). element: its bytes.
bool FetchesAhead(bool in_place, std::size_t element);

// Of a tensor that comes from memory, how many bytes of tokens have their
// cosines and sines evaluated at once. The memory has nothing to do while they
// are evaluated, so these should be few; but a run of many rows takes less time
// for each.
std::size_t ColdBlockBytes();

// Of a tensor BHSD, how many bytes of cosines and sines all heads pass by
// before those of the next tokens come.
std::size_t HeadBlockBytes();

// Heads of BHSD that one call of the kernel rotates, so that they share what is
// read of the table, which is as much as a head itself: 2, 4, or all there are.
std::size_t HeadsAtOnce();

// Whether large tables are written past the caches.
bool StreamsTables();

}  // namespace posenc::simd
