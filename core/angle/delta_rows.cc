#include "core/angle/delta_rows.h"

#include "core/angle/cos_sin_row.h"

namespace posenc::core {

std::size_t DeltaRows::Bytes(std::size_t pairs) {
  return kRows * 2 * Pitch(pairs) * sizeof(double);
}

DeltaRows::DeltaRows(const QuarterTurnArrays& frequencies, std::size_t step)
    : pitch_(Pitch(frequencies.size())), rows_(kRows * 2 * pitch_) {
  const double one = 1;
  for (std::size_t k = 0; k < kRows; ++k) {
    const auto position = static_cast<double>(k * step);
    double* const cosines = rows_.data() + 2 * k * pitch_;
    FillCosSinRow(frequencies.Row(&position, &one), cosines, cosines + pitch_);
  }
}

}  // namespace posenc::core
