// Rotates a few tokens, and compares every bit with results that were computed
// with 60 digits. If the CPU or the build computes other bits, the server must
// not start.

#pragma once

#include "absl/status/status.h"

namespace posenc::server {

// Tests float32, bfloat16 and float16 in both pairings, with the kernels in
// use. Returns INTERNAL if a result differs. Takes less than a millisecond.
absl::Status SelfTest();

}  // namespace posenc::server
