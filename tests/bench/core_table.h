// The measured table, of the plain encoding of base 10000.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "core/rope/prepared_rope.h"

namespace posenc::bench {

constexpr std::int64_t kTableRows = 131072, kTablePairs = 64;
// Bytes of its cosines, or of its sines: [rows, pairs] of float32.
constexpr std::int64_t kTableBytes = kTableRows * kTablePairs * 4;

struct TableWork {
  std::shared_ptr<const core::PreparedRope> rope;
  std::function<void()> build;  // the whole call
};

TableWork TableOf(void* cos, void* sin);

}  // namespace posenc::bench
