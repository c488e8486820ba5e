// The tensors of a request as the caller of the client library holds them.

#pragma once

#include <deque>
#include <string>

#include "absl/types/optional.h"
#include "posenc/messages.h"

namespace posenc::conformance {

// Views of the tensors of a message, with their bytes.
class SentTensors {
 public:
  // A view of a tensor. Elements that are written out as `values` are rounded
  // to the dtype. Nothing if no view can say what the tensor says: elements
  // that its dtype does not have, more or fewer `values` than the shape takes,
  // or `data` beside them.
  absl::optional<TensorView> View(const v1::Tensor& tensor);

 private:
  std::deque<std::string> bytes_;
};

}  // namespace posenc::conformance
