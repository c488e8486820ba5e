#include "core/angle/delta_rows.h"

#include "core/angle/cos_sin_row.h"

namespace posenc::core {
namespace {

// Kernels read whole vectors.
std::size_t PitchOf(std::size_t pairs) { return (pairs + 15) / 16 * 16; }

}  // namespace

std::size_t DeltaRows::Bytes(std::size_t pairs) {
  return kRows * 2 * PitchOf(pairs) * sizeof(double);
}

DeltaRows::DeltaRows(const QuarterTurnArrays& frequencies)
    : pitch_(PitchOf(frequencies.size())), rows_(kRows * 2 * pitch_) {
  const double one = 1;
  for (std::size_t k = 0; k < kRows; ++k) {
    const auto position = static_cast<double>(k);
    simd::TrigRow row = {};
    row.position = &position;
    frequencies.Point(0, &row);
    row.axes = 1;
    row.n = frequencies.size();
    row.factor = &one;
    double* const cosines = rows_.data() + 2 * k * pitch_;
    FillCosSinRow(row, cosines, cosines + pitch_);
  }
}

}  // namespace posenc::core
