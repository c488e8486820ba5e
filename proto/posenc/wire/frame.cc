#include "posenc/wire/frame.h"

#include "posenc/wire/varint.h"

namespace posenc::wire {
namespace {

constexpr std::uint64_t kVarint = 0;
constexpr std::uint64_t kLengthDelimited = 2;

constexpr absl::uint128 kHuge = absl::uint128(1) << 96;

std::uint64_t Tag(int field, std::uint64_t wire_type) {
  return static_cast<std::uint64_t>(field) << 3 | wire_type;
}

// Does the same as VarintBytes, also for lengths of more than 64 bits.
std::size_t LengthBytes(absl::uint128 length) {
  std::size_t bytes = 1;
  for (; length >= 0x80; length >>= 7) ++bytes;
  return bytes;
}

// Protobuf writes negative numbers as 64 bits, in ten bytes.
std::uint64_t Bits(std::int64_t value) {
  return static_cast<std::uint64_t>(value);
}

std::size_t PackedBytes(absl::Span<const std::int64_t> shape) {
  std::size_t bytes = 0;
  for (const std::int64_t extent : shape) bytes += VarintBytes(Bits(extent));
  return bytes;
}

// Size of a Tensor message, without the tag and length of its field.
absl::uint128 TensorBytes(v1::Dtype dtype, absl::Span<const std::int64_t> shape,
                          absl::uint128 data_bytes) {
  absl::uint128 bytes = 0;
  if (dtype != v1::DTYPE_UNSPECIFIED) bytes += 1 + VarintBytes(Bits(dtype));
  if (!shape.empty()) {
    bytes += FieldBytes(v1::Tensor::kShapeFieldNumber, PackedBytes(shape));
  }
  if (data_bytes > 0) {
    bytes += FieldBytes(v1::Tensor::kDataFieldNumber, data_bytes);
  }
  return bytes;
}

}  // namespace

std::size_t ElementBytes(v1::Dtype dtype) {
  switch (dtype) {
    case v1::DTYPE_FLOAT8_E4M3FN:
    case v1::DTYPE_FLOAT8_E5M2:
    case v1::DTYPE_INT8:
      return 1;
    case v1::DTYPE_FLOAT16:
    case v1::DTYPE_BFLOAT16:
      return 2;
    case v1::DTYPE_FLOAT32:
    case v1::DTYPE_INT32:
      return 4;
    case v1::DTYPE_FLOAT64:
    case v1::DTYPE_INT64:
      return 8;
    default:
      return 0;
  }
}

absl::uint128 DataBytes(std::size_t element_bytes,
                        absl::Span<const std::int64_t> shape) {
  absl::uint128 bytes = element_bytes;
  for (const std::int64_t extent : shape) {
    if (extent == 0) return 0;  // even if other extents are large
    const absl::uint128 factor = Bits(extent);
    bytes = bytes > kHuge / factor ? kHuge : bytes * factor;
  }
  return bytes;
}

absl::uint128 FieldBytes(int field, absl::uint128 length) {
  return VarintBytes(Tag(field, kLengthDelimited)) + LengthBytes(length) +
         length;
}

absl::uint128 TensorFieldBytes(int field, v1::Dtype dtype,
                               absl::Span<const std::int64_t> shape,
                               absl::uint128 data_bytes) {
  return FieldBytes(field, TensorBytes(dtype, shape, data_bytes));
}

void AppendFieldHeader(int field, std::uint64_t length, std::string* to) {
  AppendVarint(Tag(field, kLengthDelimited), to);
  AppendVarint(length, to);
}

void AppendTensorFieldHeader(int field, v1::Dtype dtype,
                             absl::Span<const std::int64_t> shape,
                             std::uint64_t data_bytes, std::string* to) {
  AppendFieldHeader(
      field, absl::Uint128Low64(TensorBytes(dtype, shape, data_bytes)), to);
  if (dtype != v1::DTYPE_UNSPECIFIED) {
    AppendVarint(Tag(v1::Tensor::kDtypeFieldNumber, kVarint), to);
    AppendVarint(Bits(dtype), to);
  }
  if (!shape.empty()) {
    AppendFieldHeader(v1::Tensor::kShapeFieldNumber, PackedBytes(shape), to);
    for (const std::int64_t extent : shape) AppendVarint(Bits(extent), to);
  }
  if (data_bytes > 0) {
    AppendFieldHeader(v1::Tensor::kDataFieldNumber, data_bytes, to);
  }
}

}  // namespace posenc::wire
