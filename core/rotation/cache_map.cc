#include "core/rotation/cache_map.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "core/simd/dispatch.h"

namespace posenc::core {
namespace {

// Returns the number of tokens of a row.
std::int64_t RowTokens(const CachePlaces& places) {
  const bool adjacent =
      places.blocks.step ==
      places.tokens.step * static_cast<std::size_t>(places.tokens.extent);
  return adjacent ? 1 : places.tokens.extent;
}

std::size_t RowBytes(const CachePlaces& places) {
  return RowTokens(places) == places.tokens.extent ? places.blocks.step
                                                   : places.tokens.step;
}

std::int64_t Rows(const CachePlaces& places) {
  if (places.slots == 0) return 0;
  std::int64_t rows = places.slots / RowTokens(places);
  for (const char letter : places.outer) {
    rows *= (places.*DimensionOf(letter)).extent;
  }
  return rows;
}

}  // namespace

CacheMap::CacheMap(CachePlaces places, Keys keys,
                   std::vector<std::int32_t> keys_of_layer)
    : RowMap(Rows(places), RowBytes(places), RowBytes(places),
             std::all_of(keys.begin(), keys.end(),
                         [](const auto& one) { return one->in_place(); })),
      places_(std::move(places)),
      keys_(std::move(keys)),
      keys_of_layer_(std::move(keys_of_layer)) {}

class CacheMap::CacheWorker final : public RowMap::Worker {
 public:
  explicit CacheWorker(const CacheMap& map)
      : map_(map),
        places_(map.places_),
        row_tokens_(RowTokens(map.places_)),
        rows_(places_.slots / row_tokens_),
        keys_(map.keys_.size()) {}

  void Run(std::int64_t first, std::int64_t rows, const void* in,
           void* out) override {
    const auto* src = static_cast<const std::byte*>(in);
    auto* dst = static_cast<std::byte*>(out);
    if (in != out) {
      std::memcpy(out, in, static_cast<std::size_t>(rows) * map_.in_bytes());
    }
    while (rows > 0) {
      const std::int64_t row = first % rows_;
      const std::int64_t n = row_tokens_ == 1 ? std::min(rows, rows_ - row) : 1;
      RunSlots(Fixed(first / rows_), row * row_tokens_, n * row_tokens_, src,
               dst);
      first += n;
      rows -= n;
      src += static_cast<std::size_t>(n) * map_.in_bytes();
      dst += static_cast<std::size_t>(n) * map_.in_bytes();
    }
    // Other threads may read these rows as soon as Run() returns.
    if (in != out) simd::ActiveKernels().end_streams();
  }

 private:
  // A row's index in each dimension before the blocks; -1 for a dimension that
  // is not before the blocks.
  struct Indexes {
    std::int64_t head = -1, part = -1, layer = -1;
  };

  // Splits `outer`, the row-major index over all dimensions before the blocks,
  // into an index for each dimension.
  Indexes Fixed(std::int64_t outer) const {
    Indexes fixed;
    for (std::size_t i = places_.outer.size(); i-- > 0;) {
      const char letter = places_.outer[i];
      const std::int64_t extent = (places_.*DimensionOf(letter)).extent;
      std::int64_t& index = letter == 'H'   ? fixed.head
                            : letter == 'K' ? fixed.part
                                            : fixed.layer;
      index = outer % extent;
      outer /= extent;
    }
    return fixed;
  }

  // Returns the rotation of a layer's keys; null if they do not rotate.
  RotationMap::TokenWorker* KeysOf(std::int64_t layer) {
    const auto& by_layer = map_.keys_of_layer_;
    const std::int32_t at = by_layer.empty()
                                ? (places_.Moves(layer) ? 0 : -1)
                                : by_layer[static_cast<std::size_t>(layer)];
    if (at < 0) return nullptr;
    auto& keys = keys_[static_cast<std::size_t>(at)];
    if (keys == nullptr) {
      keys = map_.keys_[static_cast<std::size_t>(at)]->StartTokens();
    }
    return keys.get();
  }

  // Rotates the keys of n slots from `first` on. src and dst point to slot
  // `first`.
  void RunSlots(const Indexes& fixed, std::int64_t first, std::int64_t n,
                const std::byte* src, std::byte* dst) {
    // Part 1 has the values, which do not rotate.
    if (fixed.part == 1) return;
    const std::size_t token =
        row_tokens_ == 1 ? map_.in_bytes() : places_.tokens.step;
    RotationMap::Heads heads = {0, places_.heads.extent, places_.heads.step,
                                token};
    if (fixed.head >= 0) heads = {fixed.head, 1, 0, token};
    auto run = std::partition_point(
        places_.runs.begin(), places_.runs.end(),
        [first](const SlotRun& r) { return r.slot + r.count <= first; });
    for (; run != places_.runs.end() && run->slot < first + n; ++run) {
      const std::int64_t from = std::max(run->slot, first);
      const std::int64_t to = std::min(run->slot + run->count, first + n);
      const std::size_t at = static_cast<std::size_t>(from - first) * token;
      const std::int64_t layers = fixed.layer >= 0 ? 1 : places_.layers.extent;
      for (std::int64_t layer = 0; layer < layers; ++layer) {
        auto* const keys = KeysOf(fixed.layer >= 0 ? fixed.layer : layer);
        if (keys == nullptr) continue;
        const std::size_t offset =
            at + static_cast<std::size_t>(layer) * places_.layers.step;
        keys->Run(run->sequence, run->token + from - run->slot, to - from,
                  heads, src + offset, dst + offset);
      }
    }
  }

  const CacheMap& map_;
  const CachePlaces& places_;
  const std::int64_t row_tokens_;
  // Number of rows for each index over the dimensions before the blocks.
  const std::int64_t rows_;
  // A worker for each element of Keys, made at its first use.
  std::vector<std::unique_ptr<RotationMap::TokenWorker>> keys_;
};

std::unique_ptr<RowMap::Worker> CacheMap::StartWorker(
    std::int64_t /*first*/, std::int64_t /*rows*/) const {
  return std::make_unique<CacheWorker>(*this);
}

}  // namespace posenc::core
