// Rotates a few tokens and compares every bit with results from arithmetic with
// 60 digits. A CPU or a build that computes anything else must not serve.

#pragma once

#include "absl/status/status.h"

namespace posenc::server {

// Tests float32, bfloat16 and float16 in both pairings, with the kernels in
// use. INTERNAL if a result differs. Takes less than a millisecond.
absl::Status SelfTest();

}  // namespace posenc::server
