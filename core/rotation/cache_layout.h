// Where a paged cache holds the keys of its tokens: the order of its
// dimensions, and the slots of the tokens. A slot is a token's place in a
// block: block * block_size + token of the block.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/tensor.h"
#include "core/positions/positions.h"

namespace posenc::core {

// As posenc.v1.CacheLayout.
struct CacheLayout {
  // One letter each: B blocks, T tokens of a block, H heads, D channels, K keys
  // and values, L layers. Or an engine's name.
  std::string dimensions;
  std::optional<ConstTensorView> block_table;
  std::vector<std::int64_t> lengths;
  std::optional<ConstTensorView> slots;
  std::vector<std::int64_t> layers;  // empty: all
};

// A dimension of the cache. One that it lacks has extent 1.
struct CacheDimension {
  std::int64_t extent = 1;
  std::size_t step = 0;  // bytes from one index to the next
};

// Neighbouring tokens of a sequence in neighbouring slots.
struct SlotRun {
  std::int64_t slot, sequence, token, count;
};

struct CachePlaces {
  CacheDimension blocks, tokens, heads, parts, layers;
  std::int64_t head_dim = 0;
  std::int64_t slots = 0;
  // The dimensions before the blocks, which follow them: outermost first.
  std::string outer;
  std::vector<std::int64_t> moved_layers;  // sorted; empty: all
  std::int64_t sequences = 1;
  std::int64_t length = 0;    // of the longest sequence
  std::vector<SlotRun> runs;  // in the order of slots
};

// Finds the places of the tokens in k, without reading its data. `reserve`:
// claims the memory of the runs; may be empty. Errors name fields of `k` and
// `cache`: "k.shape", "cache.dimensions", "cache.block_table...".
absl::StatusOr<CachePlaces> FindPlaces(const CacheLayout& layout,
                                       const ConstTensorView& k,
                                       const ReserveFunction& reserve);

}  // namespace posenc::core
