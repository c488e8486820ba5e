// Repositions the keys of a paged cache without gathering them. If the tokens
// are the outermost dimension of a block, a row is the memory of one slot;
// otherwise a row is the memory of one block. This memory is contiguous. Only
// the keys of the cache's tokens change.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/rotation/cache_layout.h"
#include "core/rotation/rotation_map.h"
#include "core/runtime/row_map.h"

namespace posenc::core {

class CacheMap final : public RowMap {
 public:
  using Keys = std::vector<std::unique_ptr<const RotationMap>>;

  // Each element of `keys` rotates the same tokens in a tensor [sequences,
  // length, heads, head_dim]. keys_of_layer: the index in `keys` of each layer
  // of the cache; -1 for a layer that does not rotate. If it is empty, keys[0]
  // rotates all moved layers.
  CacheMap(CachePlaces places, Keys keys,
           std::vector<std::int32_t> keys_of_layer);

  std::unique_ptr<Worker> StartWorker(std::int64_t first,
                                      std::int64_t rows) const override;

 private:
  class CacheWorker;

  const CachePlaces places_;
  const Keys keys_;
  const std::vector<std::int32_t> keys_of_layer_;
};

}  // namespace posenc::core
