// The elements of tensors in GGUF files.

#include "core/interpretation/formats/gguf_format.h"

namespace posenc::core::interpretation {
namespace {

constexpr std::uint64_t kMaxTensorElements = std::uint64_t{1} << 24;

}  // namespace

std::optional<Dtype> GgufDtype(std::uint32_t type) {
  switch (type) {
    case 0:
      return Dtype::kFloat32;
    case 1:
      return Dtype::kFloat16;
    case 28:
      return Dtype::kFloat64;
    case 30:
      return Dtype::kBfloat16;
    default:
      return std::nullopt;
  }
}

std::vector<double> DecodeFloats(Dtype dtype, const char* bytes,
                                 std::size_t n) {
  const auto size = static_cast<std::int64_t>(n);
  const ConstTensorView view = {dtype, {size}, bytes};
  std::vector<double> numbers(n);
  for (std::int64_t i = 0; i < size; ++i) {
    numbers[static_cast<std::size_t>(i)] = ElementAsDouble(view, i);
  }
  return numbers;
}

absl::StatusOr<std::vector<double>> ReadGgufTensor(const ByteSource& source,
                                                   const GgufTensor& tensor) {
  const std::optional<Dtype> dtype = GgufDtype(tensor.type);
  if (!dtype) {
    return Malformed("tensor ", Shown(tensor.name), " is of type ", tensor.type,
                     "; only F32, F16, BF16 and F64 are read");
  }
  std::uint64_t elements = 1;
  for (const std::uint64_t extent : tensor.shape) elements *= extent;
  if (elements > kMaxTensorElements) {
    return Malformed("tensor ", Shown(tensor.name), " has ", elements,
                     " elements; at most ", kMaxTensorElements, " are read");
  }
  const std::uint64_t bytes = elements * DtypeSize(*dtype);
  if (tensor.offset > source.size || bytes > source.size - tensor.offset) {
    return Malformed("ends at byte ", source.size, "; tensor ",
                     Shown(tensor.name), " of ", bytes,
                     " bytes begins at byte ", tensor.offset);
  }
  std::string data(bytes, '\0');
  const absl::Status status = source.read(tensor.offset, data.data(), bytes);
  if (!status.ok()) return status;
  return DecodeFloats(*dtype, data.data(), elements);
}

}  // namespace posenc::core::interpretation
