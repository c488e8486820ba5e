// Converted projections: the scores of rotated queries and keys stay the same.

#include "core/rotation/convert_pairing.h"

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace posenc::core {
namespace {

constexpr int kHeads = 3, kHeadDim = 20, kInputs = 11;
constexpr int kRows = kHeads * kHeadDim;

absl::Status ConvertPairing(const ConvertPairingArgs& args,
                            const ConstTensorView& weight,
                            const TensorView& out) {
  const absl::StatusOr<PairingRows> rows =
      PairingRows::Create(args, weight.dtype, weight.shape);
  if (!rows.ok()) return rows.status();
  const std::size_t bytes = rows->row_bytes();
  for (std::int64_t row = 0; row < rows->rows(); ++row) {
    std::memcpy(
        static_cast<char*>(out.data) + row * bytes,
        static_cast<const char*>(weight.data) + rows->Source(row) * bytes,
        bytes);
  }
  return absl::OkStatus();
}

std::vector<double> Convert(const ConvertPairingArgs& args, const Shape& shape,
                            const std::vector<double>& in) {
  std::vector<double> out(in.size(), -1);
  const absl::Status status =
      ConvertPairing(args, {Dtype::kFloat64, shape, in.data()},
                     {Dtype::kFloat64, shape, out.data()});
  EXPECT_TRUE(status.ok()) << status;
  return out;
}

// The formula: weight x + bias, rotated at position p by the pairing.
std::vector<double> Project(const std::vector<double>& weight,
                            const std::vector<double>& bias,
                            const std::vector<double>& x, double p,
                            Pairing pairing, int width, bool trailing) {
  std::vector<double> y = bias;
  for (int r = 0; r < kRows; ++r)
    for (int c = 0; c < kInputs; ++c) y[r] += weight[r * kInputs + c] * x[c];
  for (int h = 0; h < kHeads; ++h) {
    double* const slice =
        y.data() + h * kHeadDim + (trailing ? kHeadDim - width : 0);
    for (int i = 0; i < width / 2; ++i) {
      const bool halves = pairing == Pairing::kHalfSplit;
      double& a = slice[halves ? i : 2 * i];
      double& b = slice[halves ? i + width / 2 : 2 * i + 1];
      const double angle = p * std::pow(10000.0, -2.0 * i / width);
      const double c = std::cos(angle), s = std::sin(angle);
      const double rotated = a * c - b * s;
      b = a * s + b * c;
      a = rotated;
    }
  }
  return y;
}

struct Slice {
  int rotary_dim;  // 0: the whole head
  bool trailing;
};

class EachSlice : public testing::TestWithParam<Slice> {};
INSTANTIATE_TEST_SUITE_P(Core, EachSlice,
                         testing::Values(Slice{0, false}, Slice{20, true},
                                         Slice{12, false}, Slice{12, true},
                                         Slice{2, false}, Slice{14, true}),
                         [](const testing::TestParamInfo<Slice>& info) {
                           return std::to_string(info.param.rotary_dim) +
                                  (info.param.trailing ? "Trailing"
                                                       : "Leading");
                         });

TEST_P(EachSlice, ScoresStayTheSameWithTheOtherPairing) {
  const int width =
      GetParam().rotary_dim == 0 ? kHeadDim : GetParam().rotary_dim;
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  const auto draw = [&](int n) {
    std::vector<double> values(n);
    for (double& value : values) value = normal(random);
    return values;
  };
  for (const bool to_halves : {false, true}) {
    ConvertPairingArgs args;
    args.old_pairing = to_halves ? Pairing::kInterleaved : Pairing::kHalfSplit;
    args.new_pairing = to_halves ? Pairing::kHalfSplit : Pairing::kInterleaved;
    args.heads = kHeads;
    args.rotary_dim = GetParam().rotary_dim;
    if (GetParam().trailing) args.slice = RotarySlice::kTrailing;
    const auto wq = draw(kRows * kInputs), wk = draw(kRows * kInputs);
    const auto bq = draw(kRows), bk = draw(kRows);
    const auto xq = draw(kInputs), xk = draw(kInputs);
    const auto project = [&](const auto& w, const auto& b, const auto& x,
                             double p, Pairing pairing) {
      return Project(w, b, x, p, pairing, width, GetParam().trailing);
    };
    const Shape matrix = {kRows, kInputs}, row = {kRows};
    const auto q = project(wq, bq, xq, 3, args.old_pairing);
    const auto k = project(wk, bk, xk, 11, args.old_pairing);
    const auto new_q = project(Convert(args, matrix, wq),
                               Convert(args, row, bq), xq, 3, args.new_pairing);
    const auto new_k =
        project(Convert(args, matrix, wk), Convert(args, row, bk), xk, 11,
                args.new_pairing);
    // Without the conversion, results are far off.
    const auto wrong_k = project(wk, bk, xk, 11, args.new_pairing);
    double worst = 0;
    for (int h = 0; h < kHeads; ++h) {
      double score = 0, converted = 0, wrong = 0, scale = 0;
      for (int d = h * kHeadDim; d < (h + 1) * kHeadDim; ++d) {
        score += q[d] * k[d];
        converted += new_q[d] * new_k[d];
        wrong += new_q[d] * wrong_k[d];
        scale += std::abs(q[d] * k[d]);
      }
      // The same products in another order: each of kHeadDim sums is rounded.
      EXPECT_NEAR(converted, score, 2 * kHeadDim * 0x1p-53 * scale);
      worst = std::max(worst, std::abs(wrong - score) / scale);
    }
    // A single pair is the same in both pairings.
    if (width > 2) {
      EXPECT_GT(worst, 0.01);
    }
  }
}

TEST_P(EachSlice, BackAndForthIsTheIdentity) {
  std::vector<double> rows(kRows * 2);
  std::iota(rows.begin(), rows.end(), 0);
  ConvertPairingArgs args;
  args.old_pairing = Pairing::kInterleaved;
  args.new_pairing = Pairing::kHalfSplit;
  args.heads = kHeads;
  args.rotary_dim = GetParam().rotary_dim;
  if (GetParam().trailing) args.slice = RotarySlice::kTrailing;
  const std::vector<double> there = Convert(args, {kRows, 2, 1}, rows);
  EXPECT_EQ(there == rows, GetParam().rotary_dim == 2);
  std::swap(args.old_pairing, args.new_pairing);
  EXPECT_EQ(Convert(args, {kRows, 2, 1}, there), rows);
  args.new_pairing = args.old_pairing;
  EXPECT_EQ(Convert(args, {kRows, 2, 1}, rows), rows);
}

// Every pattern of bits, also NaNs, in every dtype.
TEST(ConvertPairingTest, KeepsEveryBit) {
  for (const Dtype dtype :
       {Dtype::kFloat32, Dtype::kFloat16, Dtype::kBfloat16, Dtype::kFloat64,
        Dtype::kFloat8E4m3fn, Dtype::kFloat8E5m2}) {
    std::mt19937_64 random(2);
    const std::size_t row = 8192 * DtypeSize(dtype);
    std::vector<std::byte> in(8 * row), out(8 * row);
    for (std::byte& byte : in) byte = static_cast<std::byte>(random());
    ConvertPairingArgs args;
    args.old_pairing = Pairing::kHalfSplit;
    args.new_pairing = Pairing::kInterleaved;
    args.heads = 2;
    ASSERT_TRUE(ConvertPairing(args, {dtype, {8, 8192}, in.data()},
                               {dtype, {8, 8192}, out.data()})
                    .ok());
    const int source[8] = {0, 2, 1, 3, 4, 6, 5, 7};
    for (int r = 0; r < 8; ++r) {
      EXPECT_EQ(
          std::memcmp(out.data() + r * row, in.data() + source[r] * row, row),
          0);
    }
  }
}

}  // namespace
}  // namespace posenc::core
