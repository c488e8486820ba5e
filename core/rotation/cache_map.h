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

  // Each element of `keys` is a rotation of the same tokens, made for a tensor
  // [sequences, length, heads, head_dim]. `keys_of_layer` has the index in
  // `keys` for each layer of the cache, or -1 if the layer does not rotate. If
  // `keys_of_layer` is empty, keys[0] rotates all moved layers.
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
