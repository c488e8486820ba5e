// Work of others that a rotation does between its slices. Part of kernels.inl.
//
// It takes less time than before or behind the rotation, because the memory
// goes on meanwhile. It must not read what was written just before by narrower
// stores, as a copy of a struct does: such a load waits for the store buffer,
// which is full of streamed bytes. Rows that were evaluated by calls with such
// copies: 0.88 of the best copy, without them 0.90, and by one call a part 0.95
// (64 MB of float32, Xeon).

#pragma once

#include <cstddef>
#include <utility>

#include "core/simd/kernels.h"

namespace posenc::simd {
namespace {

// Spreads the parts of such work over some turns. kWorks: all of it is done; if
// not, none.
template <bool kWorks>
class Spread {
 public:
  Spread(Meanwhile* meanwhile, std::size_t turns) : turns_(turns) {
    if (!kWorks || meanwhile == nullptr || turns_ == 0) return;
    part_ = meanwhile->part;
    work_ = meanwhile->work;
    left_ = parts_ = std::exchange(meanwhile->parts, 0);
  }

  [[gnu::always_inline]] void Turn() {
    if constexpr (kWorks) {
      due_ += parts_;
      while (due_ >= turns_) {
        due_ -= turns_;
        if (left_ == 0) break;
        --left_;
        part_(work_);
      }
    }
  }
  void End() {
    for (; left_ > 0; --left_) part_(work_);
  }

 private:
  void (*part_)(void* work) = nullptr;
  void* work_ = nullptr;
  std::size_t parts_ = 0, left_ = 0;
  const std::size_t turns_;
  std::size_t due_ = 0;
};

}  // namespace
}  // namespace posenc::simd
