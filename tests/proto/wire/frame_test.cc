// The framing of tensors, compared with the generated code's.

#include "posenc/wire/frame.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "posenc/v1/service.pb.h"
#include "posenc/wire/varint.h"

namespace posenc::wire {
namespace {

using Shape = std::vector<std::int64_t>;

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

v1::Tensor Tensor(v1::Dtype dtype, const Shape& shape,
                  const std::string& data) {
  v1::Tensor tensor;
  tensor.set_dtype(dtype);
  for (const std::int64_t extent : shape) tensor.add_shape(extent);
  tensor.set_data(data);
  return tensor;
}

// Sizes around the limits from which the length needs another byte.
TEST(FrameTest, HeadersAreWhatTheGeneratedCodeWrites) {
  const Shape shapes[] = {{},
                          {0},
                          {1, 127, 128},
                          {16383, 16384, std::int64_t{1} << 40},
                          Shape(64, 300),  // 128 bytes of extents
                          {-1, kMax}};
  const v1::Dtype dtypes[] = {v1::DTYPE_UNSPECIFIED, v1::DTYPE_FLOAT32,
                              v1::DTYPE_INT64, static_cast<v1::Dtype>(1000),
                              static_cast<v1::Dtype>(-1)};
  for (const Shape& shape : shapes) {
    for (const v1::Dtype dtype : dtypes) {
      for (const std::size_t size :
           {0, 1, 100, 120, 127, 128, 16379, 16383, 16384, 1 << 21}) {
        const std::string data(size, 'd');
        v1::ApplyRopeRequest message;
        *message.mutable_q() = Tensor(dtype, shape, data);

        std::string bytes;
        AppendTensorFieldHeader(v1::ApplyRopeRequest::kQFieldNumber, dtype,
                                shape, size, &bytes);
        bytes += data;

        EXPECT_TRUE(bytes == message.SerializeAsString())
            << "dtype " << dtype << ", " << shape.size() << " extents, " << size
            << " bytes";
        EXPECT_EQ(TensorFieldBytes(v1::ApplyRopeRequest::kQFieldNumber, dtype,
                                   shape, size),
                  bytes.size());
      }
    }
  }
}

TEST(FrameTest, FieldsMayBeNested) {
  const std::string data(200, 'd');
  const Shape shape = {50};
  v1::RepositionRequest message;
  *message.mutable_movement()->mutable_shifts() =
      Tensor(v1::DTYPE_FLOAT32, shape, data);

  std::string tensor;
  AppendTensorFieldHeader(v1::Movement::kShiftsFieldNumber, v1::DTYPE_FLOAT32,
                          shape, data.size(), &tensor);
  std::string bytes;
  AppendFieldHeader(v1::RepositionRequest::kMovementFieldNumber,
                    tensor.size() + data.size(), &bytes);
  bytes += tensor + data;

  EXPECT_EQ(bytes, message.SerializeAsString());
  EXPECT_EQ(FieldBytes(v1::RepositionRequest::kMovementFieldNumber,
                       tensor.size() + data.size()),
            bytes.size());
}

// Tags of fields take two bytes if the number is 16 or more, and three bytes if
// it is 2048 or more.
TEST(FrameTest, LargeFieldNumbersTakeLongerTags) {
  for (const int field : {1, 15, 16, 2047, 2048, 536870911}) {
    std::string bytes;
    AppendFieldHeader(field, 3, &bytes);
    std::string expected;
    AppendVarint(std::uint64_t{static_cast<unsigned>(field)} << 3 | 2,
                 &expected);
    AppendVarint(3, &expected);
    EXPECT_EQ(bytes, expected) << field;
    EXPECT_EQ(FieldBytes(field, 3), bytes.size() + 3) << field;
  }
}

TEST(FrameTest, WrittenOutValuesTakeAsManyBytesAsData) {
  v1::ApplyRopeRequest message;
  *message.mutable_q() = Tensor(v1::DTYPE_BFLOAT16, {20}, "");
  for (int i = 0; i < 20; ++i) message.mutable_q()->add_values(i);
  EXPECT_EQ(TensorFieldBytes(14, v1::DTYPE_BFLOAT16, {20}, DataBytes(8, {20})),
            message.ByteSizeLong());
}

TEST(FrameTest, EveryDtypeOfTheContractHasASize) {
  const google::protobuf::EnumDescriptor* const dtypes = v1::Dtype_descriptor();
  for (int i = 0; i < dtypes->value_count(); ++i) {
    const auto dtype = static_cast<v1::Dtype>(dtypes->value(i)->number());
    EXPECT_EQ(ElementBytes(dtype) > 0, dtype != v1::DTYPE_UNSPECIFIED)
        << dtypes->value(i)->name();
  }
  EXPECT_EQ(ElementBytes(v1::DTYPE_BFLOAT16), 2u);
  EXPECT_EQ(ElementBytes(v1::DTYPE_INT32), 4u);
  EXPECT_EQ(ElementBytes(v1::DTYPE_FLOAT64), 8u);
  EXPECT_EQ(ElementBytes(static_cast<v1::Dtype>(1000)), 0u);
}

TEST(FrameTest, SizesThatNoMachineHasDoNotWrapAround) {
  const absl::uint128 huge = absl::uint128(1) << 96;
  EXPECT_EQ(DataBytes(4, {}), 4);
  EXPECT_EQ(DataBytes(4, {2, 3}), 24);
  // 2^64 and more: 64 bits would hold 0.
  EXPECT_EQ(DataBytes(4, {std::int64_t{1} << 31, std::int64_t{1} << 31}),
            absl::uint128(1) << 64);
  EXPECT_EQ(DataBytes(8, {kMax}), absl::uint128(8) * kMax);
  EXPECT_EQ(DataBytes(8, {kMax, kMax}), huge);
  EXPECT_EQ(DataBytes(8, {kMax, kMax, kMax, kMax, kMax}), huge);
  EXPECT_EQ(DataBytes(8, {kMax, kMax, kMax, 0}), 0);
  EXPECT_GT(TensorFieldBytes(15, v1::DTYPE_FLOAT32, {kMax, kMax}, huge), huge);
  EXPECT_GT(TensorFieldBytes(15, v1::DTYPE_FLOAT32, {}, absl::uint128(1) << 64),
            absl::uint128(1) << 64);
}

}  // namespace
}  // namespace posenc::wire
