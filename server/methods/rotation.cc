#include "server/methods/rotation.h"

#include <utility>

namespace posenc::server {

TensorAnswer AnswerRotation(Rotation rotation, std::size_t tile_bytes) {
  TensorAnswer answer;
  absl::InlinedVector<RowMapComputation::Output, 2> maps;
  auto inputs = std::make_shared<absl::InlinedVector<InputTensor, 2>>();
  for (auto& [field, tensor, map] : rotation) {
    answer.outputs.push_back(
        {field, tensor.view.dtype, tensor.view.shape, tensor.form});
    maps.push_back({std::move(map), tensor.pieces});
    inputs->push_back(std::move(tensor));
  }
  answer.computation = std::make_unique<RowMapComputation>(
      std::move(maps), std::move(inputs), tile_bytes);
  return answer;
}

}  // namespace posenc::server
