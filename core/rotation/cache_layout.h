// The layout of a paged cache: the order of its dimensions, and the slots that
// hold its tokens. A slot holds one token; the slot's number is block *
// block_size + the token's index in the block.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/tensor.h"
#include "core/positions/positions.h"

namespace posenc::core {

// The most layers that may have their own encodings. No model has more than
// half this number of layers.
inline constexpr std::int64_t kMaxModelLayers = 256;

// posenc.v1.CacheLayout describes these fields.
struct CacheLayout {
  // One letter for each dimension. B means blocks, T tokens of a block, H
  // heads, D channels, K keys and values, L layers. The name of an engine's
  // layout, such as "vllm_split", is also valid.
  std::string dimensions;
  std::optional<ConstTensorView> block_table;
  std::vector<std::int64_t> lengths;
  std::optional<ConstTensorView> slots;
  std::vector<std::int64_t> layers;        // empty: all layers
  std::vector<std::int64_t> model_layers;  // empty: all have one encoding
};

// A dimension of the cache. A dimension that the cache lacks has extent 1.
struct CacheDimension {
  std::int64_t extent = 1;
  std::size_t step = 0;  // bytes from one index to the next
};

// Consecutive tokens of a sequence that are in consecutive slots.
struct SlotRun {
  std::int64_t slot, sequence, token, count;
};

struct CachePlaces {
  // `channels` counts elements, or bytes if heads consist of blocks.
  CacheDimension blocks, tokens, heads, channels, parts, layers;
  std::int64_t slots = 0;
  // The letters of the dimensions before the blocks, outermost first.
  std::string outer;
  std::vector<std::int64_t> moved_layers;  // sorted; empty: all layers
  bool Moves(std::int64_t layer) const;
  std::int64_t sequences = 1;
  std::int64_t length = 0;    // number of tokens of the longest sequence
  std::vector<SlotRun> runs;  // in the order of slots
};

// Returns the member for a letter of CacheLayout::dimensions: `parts` for K.
CacheDimension CachePlaces::*DimensionOf(char letter);

// Finds where k holds the tokens, without reading k's data. `reserve` reserves
// the memory of the runs; it may be empty. Errors name the field "k.shape",
// "cache.dimensions", "cache.block_table...", "cache.slots...",
// "cache.lengths", "cache.layers[0]" or "cache.model_layers".
absl::StatusOr<CachePlaces> FindPlaces(const CacheLayout& layout,
                                       const ConstTensorView& k,
                                       const ReserveFunction& reserve);

}  // namespace posenc::core
