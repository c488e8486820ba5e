// AddEncoding against its definition in add_encoding.h, element by element,
// with sinusoids from __float128.

#include "core/absolute/add_encoding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "tests/fixtures/core/absolute.h"
#include "tests/reference/float_formats.h"
#include "tests/reference/rope_reference.h"

namespace posenc::core {
namespace {

const std::vector<Dtype> kDtypes = {Dtype::kFloat32, Dtype::kFloat16,
                                    Dtype::kBfloat16, Dtype::kFloat64};
const std::vector<Combination> kCombinations = {
    Combination::kAdd, Combination::kMultiply, Combination::kConcatenate};

// A tensor whose bytes may start at an odd address.
class Buffer {
 public:
  Buffer(Dtype dtype, Shape shape) : dtype_(dtype), shape_(std::move(shape)) {
    bytes_.resize(size() * DtypeSize(dtype_) + 1, '\xee');
  }
  std::size_t size() const {
    std::size_t count = 1;
    for (const std::int64_t extent : shape_) count *= extent;
    return count;
  }
  TensorView view() { return {dtype_, shape_, bytes_.data() + 1}; }
  ConstTensorView input() const { return {dtype_, shape_, bytes_.data() + 1}; }
  const std::string& bytes() const { return bytes_; }

  double at(std::size_t i) const {
    const char* const p = bytes_.data() + 1 + i * DtypeSize(dtype_);
    if (dtype_ == Dtype::kFloat32) return Read<float>(p);
    if (dtype_ == Dtype::kFloat64) return Read<double>(p);
    return Decode16(format(), Read<std::uint16_t>(p));
  }
  // x rounded once to the dtype.
  double Rounded(double x) const {
    if (dtype_ == Dtype::kFloat64) return x;
    if (dtype_ == Dtype::kFloat32) return static_cast<float>(x);
    return Decode16(format(), Encode16(format(), x));
  }
  void set(std::size_t i, double value) {
    StoreDouble(value, view(), static_cast<std::int64_t>(i));
  }

 private:
  template <typename T>
  static T Read(const char* p) {
    T value;
    std::memcpy(&value, p, sizeof(T));
    return value;
  }
  const reference::Format16& format() const {
    return dtype_ == Dtype::kFloat16 ? reference::kFloat16
                                     : reference::kBfloat16;
  }

  Dtype dtype_;
  Shape shape_;
  std::string bytes_;
};

Buffer RandomBuffer(Dtype dtype, const Shape& shape) {
  std::mt19937_64 random(11);
  Buffer x(dtype, shape);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x.set(i, std::normal_distribution<double>()(random));
  }
  return x;
}

Sinusoidal Encoding(int dim) {
  Sinusoidal encoding;
  encoding.dim = dim;
  encoding.order = SinusoidalOrder::kSinCos;
  return encoding;
}

// Element c of the row at position p, as float32 or float64.
double Element(int dim, double p, int c, Dtype dtype) {
  const int n = dim / 2;
  const auto w = static_cast<double>(
      powl(10000, -2 * static_cast<long double>(c % n) / dim));
  const reference::Quad exact =
      c < n ? reference::Sin(p, w) : reference::Cos(p, w);
  if (dtype == Dtype::kFloat64) return static_cast<double>(exact);
  return static_cast<float>(exact);
}

template <typename T>
T Combined(Combination combination, T x, T e, T scale) {
  const volatile T scaled = x * scale;  // no fused product
  if (combination == Combination::kAdd) return scaled + e;
  if (combination == Combination::kMultiply) return scaled * (1 + e);
  return scaled;
}

// Returns the position of token t of sequence b.
using PositionOf = double (*)(int b, int t);

void Check(const AddEncodingArgs& args, Dtype dtype, int dim,
           const Shape& shape, PositionOf position) {
  const bool concatenate = args.combination == Combination::kConcatenate;
  const Buffer x = RandomBuffer(dtype, shape);
  const absl::StatusOr<AddedRows> added = PrepareAddEncoding(args, x.input());
  ASSERT_TRUE(added.ok()) << added.status();
  Buffer out(dtype, added->shape);
  const absl::Status status = AddEncoding(args, x.input(), out.view());
  ASSERT_TRUE(status.ok()) << status;
  const auto tokens = static_cast<int>(shape[shape.size() - 2]);
  const auto rows = static_cast<int>(x.size() / dim);
  // Sines in float64 are within 2 ulp; the sum rounds once more.
  const double slack = dtype == Dtype::kFloat64 ? 4 * 0x1p-52 : 0;
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < dim; ++c) {
      const double p = position(r / tokens, r % tokens);
      const double e = Element(dim, p, c, dtype);
      const double value = x.at(r * dim + c);
      const double scale = args.x_scale.value_or(1);
      const double expected = x.Rounded(
          dtype == Dtype::kFloat64
              ? Combined<double>(args.combination, value, e, scale)
              : Combined<float>(args.combination, static_cast<float>(value),
                                static_cast<float>(e),
                                static_cast<float>(scale)));
      const int width = concatenate ? 2 * dim : dim;
      ASSERT_LE(std::fabs(out.at(r * width + c) - expected),
                slack * (1 + std::fabs(expected) + std::fabs(value * scale)))
          << DtypeName(dtype) << ", row " << r << ", channel " << c;
      if (concatenate) {
        ASSERT_LE(std::fabs(out.at(r * width + dim + c) - x.Rounded(e)), slack);
      }
    }
  }
}

TEST(AddEncodingTest, EveryCombinationInEveryDtype) {
  for (const Dtype dtype : kDtypes) {
    for (const Combination combination : kCombinations) {
      for (const bool scaled : {false, true}) {
        AddEncodingArgs args;
        args.encoding = Encoding(34);
        args.positions = StartPosition{-2};
        args.combination = combination;
        if (scaled) args.x_scale = std::sqrt(34.0);
        Check(args, dtype, 34, {2, 5, 34}, [](int, int t) { return t - 2.; });
      }
    }
  }
}

TEST(AddEncodingTest, BlocksAndBatchesShareRows) {
  AddEncodingArgs args;
  args.encoding = Encoding(8);
  args.positions = StartPosition{3};
  // There are more tokens than a block has rows.
  Check(args, Dtype::kFloat32, 8, {3, 700, 8},
        [](int, int t) { return t + 3.; });
  args.encoding = Encoding(65'536);  // the widest encoding
  Check(args, Dtype::kBfloat16, 65'536, {2, 3, 65'536},
        [](int, int t) { return t + 3.; });
}

TEST(AddEncodingTest, SequencesMayStartApart) {
  AddEncodingArgs args;
  args.encoding = Encoding(8);
  args.positions = SequenceStarts{{10, -600}};
  Check(args, Dtype::kFloat32, 8, {2, 300, 8},
        [](int b, int t) { return t + (b == 0 ? 10. : -600.); });
}

TEST(AddEncodingTest, IdsMayBeFractional) {
  const std::vector<double> ids = {0.5, 2.25, -7, 1e6, 3, 3};
  AddEncodingArgs args;
  args.encoding = Encoding(6);
  args.positions = PositionIds{{Dtype::kFloat64, {2, 3}, ids.data()}};
  const PositionOf each = [](int b, int t) {
    const double values[] = {0.5, 2.25, -7, 1e6, 3, 3};
    return values[3 * b + t];
  };
  Check(args, Dtype::kFloat32, 6, {2, 3, 6}, each);
  args.positions = PositionIds{{Dtype::kFloat64, {3}, ids.data()}};
  Check(args, Dtype::kFloat16, 6, {3, 6}, each);
}

TEST(AddEncodingTest, PackedSequencesStartAgain) {
  AddEncodingArgs args;
  args.encoding = Encoding(6);
  args.positions = PackedSequences{{0, 3, 3, 8}, {}};
  Check(args, Dtype::kFloat32, 6, {8, 6},
        [](int, int t) { return t < 3 ? t : t - 3.; });
  args.positions = PackedSequences{{0, 3, 8}, {5, 100}};
  Check(args, Dtype::kBfloat16, 6, {8, 6},
        [](int, int t) { return t < 3 ? t + 5. : t + 97.; });
}

TEST(AddEncodingTest, InPlaceGivesTheSameBytes) {
  for (const Dtype dtype : kDtypes) {
    for (const Combination combination :
         {Combination::kAdd, Combination::kMultiply}) {
      AddEncodingArgs args;
      args.encoding = Encoding(34);
      args.positions = SequenceStarts{{0, 9}};
      args.combination = combination;
      args.x_scale = 0.75;
      Buffer x = RandomBuffer(dtype, {2, 300, 34});
      Buffer out(dtype, {2, 300, 34});
      ASSERT_TRUE(AddEncoding(args, x.input(), out.view()).ok());
      const TensorView in_place = x.view();
      ASSERT_TRUE(AddEncoding(args, x.input(), in_place).ok());
      EXPECT_EQ(x.bytes(), out.bytes());
    }
  }
}

TEST(AddEncodingTest, GridRowsMeetTheCells) {
  AddEncodingArgs args;
  args.encoding =
      SincosGrid{.dim = 8, .extents = {1, 3}, .leading_zero_rows = 1};
  Buffer x(Dtype::kFloat32, {2, 4, 8});
  for (std::size_t i = 0; i < x.size(); ++i) x.set(i, 0);
  const TensorView view = x.view();
  ASSERT_TRUE(AddEncoding(args, x.input(), view).ok());
  for (int b = 0; b < 2; ++b) {
    for (int r = 0; r < 4; ++r) {
      for (int c = 0; c < 8; ++c) {
        const double expected =
            r == 0 ? 0 : Element(4, c < 4 ? 0 : r - 1, c % 4, Dtype::kFloat32);
        EXPECT_EQ(x.at((b * 4 + r) * 8 + c), expected) << r << ", " << c;
      }
    }
  }
}

TEST(AddEncodingTest, FourierCoordinatesComePerAxis) {
  const std::vector<double> b = {0.25, 0, 0, 0.5};  // x/4 and y/2 turns
  const std::vector<double> ids = {1, 2, 0, 1};     // x: 1, 2; y: 0, 1
  FourierFeatures fourier;
  fourier.frequencies = {Dtype::kFloat64, {2, 2}, b.data()};
  AddEncodingArgs args;
  args.encoding = fourier;
  args.positions = PositionIds{{Dtype::kFloat64, {2, 2}, ids.data()}};
  Buffer x(Dtype::kFloat32, {2, 4});
  for (std::size_t i = 0; i < x.size(); ++i) x.set(i, 10);
  const TensorView view = x.view();
  ASSERT_TRUE(AddEncoding(args, x.input(), view).ok());
  std::vector<double> values;
  for (std::size_t i = 0; i < 8; ++i) values.push_back(x.at(i));
  EXPECT_THAT(values, testing::ElementsAre(11, 10, 10, 11, 10, 10, 9, 9));
  // A single position for both coordinates is an error.
  args.positions = StartPosition{0};
  const absl::Status status = AddEncoding(args, x.input(), view);
  EXPECT_EQ(GetErrorDetails(status)->field, "positions.start");
}

TEST(AddEncodingTest, PositionsPastALearnedTableLeaveXAsItWas) {
  const std::vector<float> rows = {1, 2, 3};
  LearnedTable learned;
  learned.table = {Dtype::kFloat32, {3, 1}, rows.data()};
  AddEncodingArgs args;
  args.encoding = learned;
  args.positions = SequenceStarts{{0, 2}};
  Buffer x = RandomBuffer(Dtype::kFloat32, {2, 2, 1});
  const std::string before = x.bytes();
  const TensorView view = x.view();
  const absl::Status status = AddEncoding(args, x.input(), view);
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(status.message(),
            "positions: element 3 is 3; a table of 3 rows has 0 to 2; see "
            "hierarchical_alpha");
  EXPECT_EQ(x.bytes(), before);
}

TEST(AddEncodingTest, EmptyTensorsNeedNoPositions) {
  AddEncodingArgs args;
  args.encoding = Encoding(8);
  for (const Shape& shape : std::vector<Shape>{{0, 8}, {2, 0, 8}, {0, 4, 8}}) {
    Buffer x(Dtype::kFloat32, shape);
    EXPECT_TRUE(AddEncoding(args, x.input(), x.view()).ok())
        << ShapeToString(shape);
  }
}

}  // namespace
}  // namespace posenc::core
