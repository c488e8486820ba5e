// The tensors of a request in memory, as in a caller of the client library.

#pragma once

#include <deque>
#include <string>

#include "absl/types/optional.h"
#include "posenc/messages.h"

namespace posenc::conformance {

// Views of the tensors of a message, with their bytes.
class SentTensors {
 public:
  // Returns a view of a tensor, with `values` rounded to the dtype. Nothing if
  // no view can express the tensor: elements that its dtype does not have, a
  // wrong number of `values` for the shape, or `data` beside them.
  absl::optional<TensorView> View(const v1::Tensor& tensor);

 private:
  std::deque<std::string> bytes_;
};

}  // namespace posenc::conformance
