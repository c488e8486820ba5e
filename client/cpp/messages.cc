#include "posenc/messages.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace posenc {
namespace {

template <typename T>
TensorView ViewOfElements(v1::Dtype dtype, absl::Span<const T> elements,
                          std::vector<std::int64_t> shape) {
  return {dtype, std::move(shape),
          absl::MakeConstSpan(reinterpret_cast<const char*>(elements.data()),
                              elements.size() * sizeof(T))};
}

}  // namespace

TensorView ViewOf(absl::Span<const float> elements,
                  std::vector<std::int64_t> shape) {
  return ViewOfElements(v1::DTYPE_FLOAT32, elements, std::move(shape));
}

TensorView ViewOf(absl::Span<const double> elements,
                  std::vector<std::int64_t> shape) {
  return ViewOfElements(v1::DTYPE_FLOAT64, elements, std::move(shape));
}

TensorView ViewOf(absl::Span<const std::int32_t> elements,
                  std::vector<std::int64_t> shape) {
  return ViewOfElements(v1::DTYPE_INT32, elements, std::move(shape));
}

TensorView ViewOf(absl::Span<const std::int64_t> elements,
                  std::vector<std::int64_t> shape) {
  return ViewOfElements(v1::DTYPE_INT64, elements, std::move(shape));
}

TensorView ViewOf(absl::Span<const std::int8_t> elements,
                  std::vector<std::int64_t> shape) {
  return ViewOfElements(v1::DTYPE_INT8, elements, std::move(shape));
}

TensorView ViewOf(v1::Dtype dtype, absl::Span<const std::uint16_t> elements,
                  std::vector<std::int64_t> shape) {
  return ViewOfElements(dtype, elements, std::move(shape));
}

TensorView ViewOf(v1::Dtype dtype, absl::Span<const std::uint8_t> elements,
                  std::vector<std::int64_t> shape) {
  return ViewOfElements(dtype, elements, std::move(shape));
}

TensorView ViewOf(const v1::Tensor& tensor) {
  return {tensor.dtype(),
          {tensor.shape().begin(), tensor.shape().end()},
          absl::MakeConstSpan(tensor.data().data(), tensor.data().size())};
}

v1::Tensor ToTensor(const TensorView& view) {
  v1::Tensor tensor;
  tensor.set_dtype(view.dtype);
  tensor.mutable_shape()->Add(view.shape.begin(), view.shape.end());
  tensor.set_data(view.bytes.data(), view.bytes.size());
  return tensor;
}

v1::Positions StartAt(std::int64_t start) {
  v1::Positions positions;
  positions.set_start(start);
  return positions;
}

v1::RopeSource FromPreset(absl::string_view name) {
  v1::RopeSource source;
  source.set_preset(name.data(), name.size());
  return source;
}

v1::RopeSource FromConfigJson(absl::string_view config_json) {
  v1::RopeSource source;
  source.set_config_json(config_json.data(), config_json.size());
  return source;
}

absl::StatusOr<v1::RopeSource> FromConfigFile(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text;
  char part[1 << 16];
  while (file.read(part, sizeof(part)), file.gcount() > 0) {
    text.append(part, static_cast<std::size_t>(file.gcount()));
  }
  if (!file.is_open() || file.bad()) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": ", errno != 0 ? std::strerror(errno) : "cannot be read"));
  }
  return FromConfigJson(text);
}

}  // namespace posenc
