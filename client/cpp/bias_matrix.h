// Puts the tiles of a bias where they belong in one tensor.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "posenc/messages.h"

namespace posenc {

class BiasMatrix {
 public:
  // Borrows the request.
  explicit BiasMatrix(const v1::BuildBiasRequest& request)
      : request_(request) {}

  // INTERNAL where the tile is not part of what was asked for.
  absl::Status Add(const BiasTile& tile);

  // INTERNAL where something is missing.
  absl::StatusOr<TensorResult> Take();

 private:
  const v1::BuildBiasRequest& request_;
  v1::Dtype dtype_ = v1::DTYPE_UNSPECIFIED;
  std::int64_t heads_ = 0;
  std::int64_t size_ = 0;  // of an element
  std::int64_t elements_ = 0;
  std::shared_ptr<std::string> data_;
};

}  // namespace posenc
