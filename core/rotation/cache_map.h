// Repositions the keys of a paged cache without gathering them. A row is the
// adjacent memory of one slot, if the tokens are the outermost dimension of a
// block; otherwise a row is the adjacent memory of one block. Only the keys of
// the cache's tokens change.

#pragma once

#include <cstdint>
#include <memory>

#include "core/rotation/cache_layout.h"
#include "core/rotation/rotation_map.h"
#include "core/runtime/row_map.h"

namespace posenc::core {

class CacheMap final : public RowMap {
 public:
  // `keys` is the rotation of the same tokens in a tensor [sequences, length,
  // heads, head_dim].
  CacheMap(CachePlaces places, std::unique_ptr<const RotationMap> keys);

  std::unique_ptr<Worker> StartWorker(std::int64_t first,
                                      std::int64_t rows) const override;

 private:
  class CacheWorker;

  const CachePlaces places_;
  const std::unique_ptr<const RotationMap> keys_;
};

}  // namespace posenc::core
