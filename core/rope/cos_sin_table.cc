#include "core/rope/cos_sin_table.h"

namespace posenc::core {
namespace {

constexpr std::size_t kCacheLine = 64;

}  // namespace

CosSinTable::CosSinTable(bool wide, std::size_t values, std::int64_t tokens,
                         bool scaled)
    : wide_(wide),
      token_bytes_(values * (wide ? sizeof(double) : sizeof(float))) {
  const std::size_t bytes = static_cast<std::size_t>(tokens) * token_bytes_;
  std::size_t space = bytes + kCacheLine;
  storage_ = std::make_unique_for_overwrite<std::byte[]>(space);
  void* aligned = storage_.get();
  data_ =
      static_cast<std::byte*>(std::align(kCacheLine, bytes, aligned, space));
  if (scaled) scales_.resize(tokens);
}

void CosSinTable::Fill(CosSinSource* source, std::int64_t b, std::int64_t first,
                       std::int64_t n, std::int64_t at) {
  std::byte* const rows = data_ + static_cast<std::size_t>(at) * token_bytes_;
  if (token_bytes_ > 0 && wide_) {
    for (std::int64_t t = 0; t < n; ++t) {
      source->Fill(b, first + t,
                   reinterpret_cast<double*>(
                       rows + static_cast<std::size_t>(t) * token_bytes_));
    }
  } else if (token_bytes_ > 0) {
    source->FillRun(b, first, n, reinterpret_cast<float*>(rows));
  }
  if (scales_.empty()) return;
  for (std::int64_t t = 0; t < n; ++t) {
    scales_[at + t] = source->HeadScale(b, first + t);
  }
}

}  // namespace posenc::core
