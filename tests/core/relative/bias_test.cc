// Values of every relative bias and index against the formulas of
// relative.proto in __float128, and tiles against the whole bias.

#include "core/relative/bias.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <quadmath.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/fixtures/core/bias.h"
#include "tests/fixtures/core/relative.h"

namespace posenc::core {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t kMaxPosition = std::int64_t{1} << 31;

OwnedTensor Fill(const BiasTiles& tiles, const BiasRange& tile) {
  OwnedTensor out(tiles.dtype(),
                  {tiles.heads(), tile.query_length, tile.key_length});
  tiles.Fill(tile, out.data(), tile.key_length,
             tile.query_length * tile.key_length);
  return out;
}

OwnedTensor Build(const BiasArgs& args) {
  absl::StatusOr<BiasTiles> tiles = BiasTiles::Create(args);
  if (!tiles.ok()) ADD_FAILURE() << tiles.status();
  return Fill(*tiles, args.range);
}

// The formula's value, and the error bound of float64 arithmetic.
struct Exact {
  Quad value;
  Quad slack;
};
using Formula =
    std::function<Exact(std::int64_t head, std::int64_t i, std::int64_t j)>;

const std::vector<BiasRange>& Ranges() {
  static const auto& ranges = *new std::vector<BiasRange>{
      {0, 9, 0, 9},
      {500, 1, 0, 501},                         // a decode step
      {-7, 12, -20, 31},                        // positions may be negative
      {3, 150, 40, 140},                        // beyond a block of columns
      {kMaxPosition - 2, 3, -kMaxPosition, 3},  // the greatest distances
      {-kMaxPosition, 3, kMaxPosition - 2, 3}};
  return ranges;
}

void CheckFormula(const Bias& bias, std::int64_t heads, const Formula& formula,
                  const std::vector<BiasRange>& ranges = Ranges()) {
  for (const BiasRange& range : ranges) {
    for (const Dtype dtype : kFloatingDtypes) {
      for (const bool causal : {false, true}) {
        BiasArgs args = Args(bias, range);
        args.dtype = dtype;
        args.causal = causal;
        const OwnedTensor actual = Build(args);
        ASSERT_EQ(actual.shape(),
                  (Shape{heads, range.query_length, range.key_length}));
        std::int64_t at = 0;
        for (std::int64_t h = 0; h < heads; ++h) {
          for (std::int64_t q = 0; q < range.query_length; ++q) {
            for (std::int64_t k = 0; k < range.key_length; ++k, ++at) {
              const std::int64_t i = range.query_start + q;
              const std::int64_t j = range.key_start + k;
              const auto where = [&] {
                return absl::StrCat(DtypeName(dtype), " head ", h, ", ", i,
                                    ", ", j);
              };
              if (causal && j > i) {
                ASSERT_EQ(actual[at], -kInfinity) << where();
                continue;
              }
              const Exact exact = formula(h, i, j);
              // 65520 is half a unit above float16's greatest number, 65504.
              if (dtype == Dtype::kFloat16 && fabsq(exact.value) >= 65520) {
                ASSERT_TRUE(std::isinf(actual[at])) << where();
                continue;
              }
              ExpectRounded(actual[at], exact.value, exact.slack, dtype, where);
              if (testing::Test::HasFailure()) return;
            }
          }
        }
      }
    }
  }
}

// A value with the relative error of n roundings to float64.
Exact Rounded(Quad value, int n) { return {value, fabsq(value) * n * 0x1p-53}; }

void CheckIndices(
    const Bias& bias,
    const std::function<std::int64_t(std::int64_t, std::int64_t)>& formula,
    const std::vector<BiasRange>& ranges = Ranges()) {
  for (const BiasRange& range : ranges) {
    const OwnedTensor actual = Build(Args(bias, range));
    ASSERT_EQ(actual.view().dtype, Dtype::kInt32);
    ASSERT_EQ(actual.shape(), (Shape{1, range.query_length, range.key_length}));
    std::int64_t at = 0;
    for (std::int64_t q = 0; q < range.query_length; ++q) {
      for (std::int64_t k = 0; k < range.key_length; ++k, ++at) {
        const std::int64_t i = range.query_start + q;
        const std::int64_t j = range.key_start + k;
        ASSERT_EQ(actual[at], static_cast<double>(formula(i, j)))
            << i << ", " << j;
      }
    }
  }
}

// Any tiling gives the bytes of the whole.
void CheckTiles(const Bias& bias, const BiasRange& range) {
  BiasArgs args = Args(bias, range);
  args.causal = bias.index() != 6;  // indices are not masked
  for (const Dtype dtype : kFloatingDtypes) {
    if (args.causal) args.dtype = dtype;
    absl::StatusOr<BiasTiles> tiles = BiasTiles::Create(args);
    ASSERT_TRUE(tiles.ok()) << tiles.status();
    const OwnedTensor whole = Fill(*tiles, range);
    const std::size_t size = DtypeSize(tiles->dtype());
    for (const auto& [rows, columns] :
         std::vector<std::pair<std::int64_t, std::int64_t>>{
             {1, 1}, {1, 150}, {150, 1}, {7, 5}, {64, 129}}) {
      OwnedTensor joined(tiles->dtype(), whole.shape());
      for (std::int64_t q = 0; q < range.query_length; q += rows) {
        for (std::int64_t k = 0; k < range.key_length; k += columns) {
          const BiasRange tile = {
              range.query_start + q, std::min(rows, range.query_length - q),
              range.key_start + k, std::min(columns, range.key_length - k)};
          OwnedTensor part = Fill(*tiles, tile);
          // With strides, the tile is written to its place in the whole.
          tiles->Fill(tile,
                      static_cast<char*>(joined.data()) +
                          (q * range.key_length + k) * size,
                      range.key_length, range.query_length * range.key_length);
          for (std::int64_t h = 0; h < tiles->heads(); ++h) {
            for (std::int64_t r = 0; r < tile.query_length; ++r) {
              const std::int64_t in_part =
                  (h * tile.query_length + r) * tile.key_length;
              const std::int64_t in_whole =
                  (h * range.query_length + q + r) * range.key_length + k;
              ASSERT_EQ(std::memcmp(part.bytes().data() + 1 + in_part * size,
                                    whole.bytes().data() + 1 + in_whole * size,
                                    tile.key_length * size),
                        0)
                  << rows << " x " << columns << " at " << q << ", " << k;
            }
          }
        }
      }
      ASSERT_EQ(joined.bytes(), whole.bytes()) << rows << " x " << columns;
    }
  }
}

// ALiBi's slopes as the paper states them: 2^(-max_bias h / c).
Quad PaperSlope(int heads, Quad max_bias, int head) {
  int c = 1;
  while (2 * c <= heads) c *= 2;
  if (head < c) return exp2q(-max_bias * (head + 1) / c);
  return exp2q(-max_bias * (2 * (head - c) + 1) / (2 * c));
}

TEST(AlibiTest, IsTheFormulaForAnyNumberOfHeads) {
  for (const int heads : {1, 2, 3, 8, 12, 20}) {
    for (const double max_bias : {0., 8., 5.25}) {
      Alibi alibi;
      alibi.heads = heads;
      if (max_bias != 0) alibi.max_bias = max_bias;
      CheckFormula(alibi, heads,
                   [&](std::int64_t h, std::int64_t i, std::int64_t j) {
                     return Rounded(
                         -PaperSlope(heads, max_bias == 0 ? 8 : max_bias, h) *
                             std::llabs(i - j),
                         3);
                   },
                   {{500, 2, 490, 16},
                    {kMaxPosition - 2, 3, -kMaxPosition, 3},
                    {-3, 2, -1, 4}});
    }
  }
}

TEST(AlibiTest, TakesGivenSlopes) {
  Alibi alibi;
  alibi.heads = 3;
  alibi.slopes = {0.1, 0, -2};
  CheckFormula(alibi, 3, [&](std::int64_t h, std::int64_t i, std::int64_t j) {
    return Rounded(-Quad(alibi.slopes[h]) * std::llabs(i - j), 1);
  });
}

TEST(AlibiTest, Disagreement17SlopesWhereHeadsAreNoPowerOfTwo) {
  // The paper's code: the slopes of 8 heads, then every second slope of 16
  // heads. One geometric sequence, 2^(-8 h / 12), would give other slopes.
  const std::vector<double> slopes = AlibiSlopes(12, 8);
  const std::vector<double> eight = AlibiSlopes(8, 8);
  const std::vector<double> sixteen = AlibiSlopes(16, 8);
  ASSERT_EQ(slopes.size(), 12u);
  for (int h = 0; h < 8; ++h) {
    EXPECT_EQ(slopes[h], eight[h]);
    EXPECT_EQ(slopes[h], std::ldexp(1, -(h + 1)));
  }
  for (int h = 8; h < 12; ++h) {
    EXPECT_EQ(slopes[h], sixteen[2 * (h - 8)]);
    EXPECT_EQ(slopes[h],
              static_cast<double>(exp2q(-Quad(2 * (h - 8) + 1) / 2)));
  }
  EXPECT_NE(slopes[0], std::exp2(-8. / 12));
}

TEST(AlibiTest, DistanceZeroIsPositiveZero) {
  Alibi alibi;
  alibi.heads = 1;
  EXPECT_FALSE(std::signbit(Build(Args(alibi))[0]));
}

TEST(T5BiasTest, IsTheWeightOfTheBucket) {
  for (const Dtype weights_dtype : kFloatingDtypes) {
    for (const bool bidirectional : {false, true}) {
      const OwnedTensor weights =
          OwnedTensor::Random(weights_dtype, {32, 3}, 1);
      T5Bias t5;
      t5.buckets.bidirectional = bidirectional;
      t5.weights = weights.view();
      const T5BucketIndex index(t5.buckets);  // buckets_test checks it
      CheckFormula(t5, 3, [&](std::int64_t h, std::int64_t i, std::int64_t j) {
        return Exact{weights[index(i - j) * 3 + h], 0};
      });
    }
  }
}

TEST(T5BiasTest, WithoutWeightsTilesHoldBucketNumbers) {
  T5Bias t5;
  t5.buckets = {16, 64, true};
  const T5BucketIndex index(t5.buckets);
  CheckIndices(t5,
               [&](std::int64_t i, std::int64_t j) { return index(i - j); });
}

TEST(KerpleTest, IsTheFormula) {
  Kerple kerple;
  kerple.r1 = {0.01, 1, 3.7};
  kerple.r2 = {2, 1e-3, 0.5};
  for (const KerpleKernel kernel :
       {KerpleKernel::kLogarithmic, KerpleKernel::kPower}) {
    kerple.kernel = kernel;
    CheckFormula(kerple, 3,
                 [&](std::int64_t h, std::int64_t i, std::int64_t j) {
                   const Quad d = std::llabs(i - j);
                   const Quad r1 = kerple.r1[h], r2 = kerple.r2[h];
                   return Rounded(kernel == KerpleKernel::kPower
                                      ? -r1 * powq(d, r2)
                                      : -r1 * logq(1 + r2 * d),
                                  2);
                 });
  }
}

TEST(KerpleTest, TheLogarithmicKernelHasNoGreatestR2) {
  Kerple kerple;
  kerple.kernel = KerpleKernel::kLogarithmic;
  kerple.r1 = {1};
  kerple.r2 = {100};
  EXPECT_TRUE(BiasTiles::Create(Args(kerple)).ok());
}

Exact FireFormula(const Fire& fire, const FireTensors& t, std::int64_t h,
                  std::int64_t i, std::int64_t j) {
  const auto psi = [&](Quad x) { return logq(fabsq(Quad(fire.c) * x) + 1); };
  const Quad x = psi(i - j) / (psi(fmaxq(i, fire.threshold)) + fire.epsilon);
  Quad sum = t.b2[h], terms = fabsq(Quad(t.b2[h]));
  for (int k = 0; k < 5; ++k) {
    const Quad unit = t.w1[k] * x + t.b1[k];
    sum += t.w2[h * 5 + k] * fmaxq(unit, 0);
    terms += fabsq(t.w2[h * 5 + k] * (fabsq(t.w1[k] * x) + fabsq(t.b1[k])));
  }
  // Roundings: x once, each unit twice, 5 products and sums, and b2.
  return {sum, terms * 10 * 0x1p-53};
}

TEST(FireTest, IsTheFormula) {
  for (const Dtype dtype : kFloatingDtypes) {
    const FireTensors tensors(dtype);
    for (const double epsilon : {0., 1e-6}) {
      for (const double threshold : {0.5, 512.}) {
        const Fire fire = tensors.Make(0.1, threshold, epsilon);
        CheckFormula(fire, 3,
                     [&](std::int64_t h, std::int64_t i, std::int64_t j) {
                       return FireFormula(fire, tensors, h, i, j);
                     },
                     {{0, 9, 0, 9},
                      {510, 4, 0, 140},
                      {-7, 5, -20, 9},
                      {kMaxPosition - 2, 3, -kMaxPosition, 3}});
      }
    }
  }
}

TEST(FireTest, TinyParametersDoNotDivideByZero) {
  const FireTensors tensors(Dtype::kFloat64);
  const Fire fire = tensors.Make(1e-300, 1e-300, 0);
  CheckFormula(fire, 3,
               [&](std::int64_t h, std::int64_t i, std::int64_t j) {
                 // psi(x) is c x here: log(1 + c x) would be 0 even in
                 // __float128, which has no 1 + 1e-600.
                 const Quad x = Quad(std::llabs(i - j)) / fmaxq(i, 1e-300);
                 Quad sum = tensors.b2[h], terms = fabsq(Quad(tensors.b2[h]));
                 for (int k = 0; k < 5; ++k) {
                   const Quad unit = tensors.w1[k] * x + tensors.b1[k];
                   sum += tensors.w2[h * 5 + k] * fmaxq(unit, 0);
                   terms += fabsq(tensors.w2[h * 5 + k] * unit) + fabsq(unit);
                 }
                 return Exact{sum, terms * 16 * 0x1p-53};
               },
               {{1, 3, 0, 3}});
}

TEST(SandwichTest, IsTheFormula) {
  for (const int dim : {2, 128}) {
    for (const int heads : {1, 3}) {
      CheckFormula(Sandwich{heads, dim}, heads,
                   [&](std::int64_t h, std::int64_t i, std::int64_t j) {
                     const Quad d = i - j;
                     Quad sum = 0, angles = 0;
                     for (int n = 1; n <= dim / 2; ++n) {
                       const Quad angle = d / powq(10000, Quad(2 * n) / dim);
                       sum += cosq(angle);
                       angles += fabsq(angle);
                     }
                     const Quad compression = Quad(8 * (h + 1)) / heads;
                     const Quad value = (sum - dim / 2) / compression;
                     // Errors: 2^-52 for each cosine, 2^-53 of the sum for each
                     // partial sum, 2^-62 of each angle for its frequency, and
                     // the quotient.
                     const Quad slack =
                         (dim / 2 * (0x1p-52 + fabsq(sum - dim / 2) * 0x1p-53) +
                          angles * 0x1p-62) /
                             compression +
                         fabsq(value) * 0x1p-52;
                     return Exact{value, slack};
                   },
                   {{0, 4, 0, 4},
                    {500, 1, 0, 101},
                    {1000000, 2, -5, 6},
                    {kMaxPosition - 2, 3, -kMaxPosition, 3}});
    }
  }
}

TEST(RelativeIndexTest, ClipIsKeyMinusQuery) {
  CheckIndices(
      RelativeIndex{ClippedDistance{4, 2}}, [](std::int64_t i, std::int64_t j) {
        return std::min<std::int64_t>(std::max<std::int64_t>(j - i, -4), 2) + 4;
      });
}

TEST(RelativeIndexTest, DebertaIsQueryMinusKey) {
  const DebertaBuckets buckets = {32, 128};
  const DebertaIndex index(buckets);
  CheckIndices(RelativeIndex{buckets},
               [&](std::int64_t i, std::int64_t j) { return index(i - j); });
}

TEST(RelativeIndexTest, GridIsSwinsTable) {
  for (const std::vector<std::int32_t>& extents :
       std::vector<std::vector<std::int32_t>>{
           {7, 7}, {2, 3, 4}, {5}, {1, 6, 1}, {20, 30}}) {
    std::int64_t cells = 1;
    for (const std::int32_t extent : extents) cells *= extent;
    CheckIndices(
        RelativeIndex{GridIndex{extents}},
        [&](std::int64_t i, std::int64_t j) {
          std::int64_t index = 0, block = cells;
          for (const std::int32_t extent : extents) {
            block /= extent;
            index = index * (2 * extent - 1) + i / block % extent -
                    j / block % extent + extent - 1;
          }
          return index;
        },
        {{0, cells, 0, cells}, {cells - 1, 1, 0, cells}, {1, 2, 2, 3}});
  }
}

TEST(UntiedPositionsTest, IsTheScaledProduct) {
  for (const Dtype dtype : kFloatingDtypes) {
    const OwnedTensor queries = OwnedTensor::Random(dtype, {3, 150, 7}, 1);
    const OwnedTensor keys = OwnedTensor::Random(dtype, {3, 150, 7}, 2);
    UntiedPositions untied;
    untied.position_queries = queries.view();
    untied.position_keys = keys.view();
    for (const double scale : {0., 1 / std::sqrt(14.)}) {
      if (scale != 0) untied.scale = scale;
      CheckFormula(untied, 3,
                   [&](std::int64_t h, std::int64_t i, std::int64_t j) {
                     Quad sum = 0, terms = 0;
                     for (int c = 0; c < 7; ++c) {
                       const Quad term = Quad(queries[(h * 150 + i) * 7 + c]) *
                                         keys[(h * 150 + j) * 7 + c];
                       sum += term;
                       terms += fabsq(term);
                     }
                     const Quad factor = scale == 0 ? 1 : scale;
                     return Exact{sum * factor, terms * factor * 8 * 0x1p-53};
                   },
                   {{0, 9, 0, 150}, {149, 1, 3, 20}});
    }
  }
}

TEST(BiasTilesTest, AnyTilingGivesTheSameBytes) {
  const OwnedTensor weights = OwnedTensor::Random(Dtype::kFloat32, {32, 2}, 1);
  T5Bias t5;
  t5.weights = weights.view();
  Kerple kerple;
  kerple.kernel = KerpleKernel::kLogarithmic;
  kerple.r1 = {1, 0.3};
  kerple.r2 = {0.5, 7};
  const FireTensors fire(Dtype::kFloat32);
  const OwnedTensor rows =
      OwnedTensor::Random(Dtype::kBfloat16, {2, 200, 9}, 5);
  UntiedPositions untied;
  untied.position_queries = rows.view();
  untied.position_keys = rows.view();
  // Blocks of this tensor have 112 keys instead of 128.
  const OwnedTensor wide_rows =
      OwnedTensor::Random(Dtype::kFloat16, {1, 200, 1100}, 6);
  UntiedPositions wide;
  wide.position_queries = wide_rows.view();
  wide.position_keys = wide_rows.view();
  Alibi alibi;
  alibi.heads = 3;
  const BiasRange range = {20, 150, 5, 140};
  for (const Bias& bias :
       std::vector<Bias>{alibi, t5, kerple, fire.Make(0.1, 40, 0),
                         Sandwich{2, 16}, RelativeIndex{ClippedDistance{8, 8}},
                         RelativeIndex{DebertaBuckets{32, 128}},
                         RelativeIndex{GridIndex{{13, 14}}}, untied, wide}) {
    CheckTiles(bias, range);
  }
}

TEST(BiasTilesTest, TilesBeyondABlockOfDistancesGiveTheSameBytes) {
  // At most 4096 rows or columns share a block of distances; this bias has
  // more.
  Alibi alibi;
  alibi.heads = 1;
  BiasArgs args = Args(alibi, {0, 4100, 0, 4103});
  args.causal = true;
  const OwnedTensor whole = Build(args);
  for (std::int64_t i = 0; i < 4100; i += 7) {
    for (std::int64_t j = 0; j < 4103; ++j) {
      ASSERT_EQ(whole[i * 4103 + j],
                j > i ? -kInfinity : 0 - 0.00390625 * std::llabs(i - j));
    }
  }
}

TEST(BiasTilesTest, ATileOfAHugeBiasNeedsTheTileOnly) {
  // 2^64 elements per head, and the largest number of heads.
  Alibi alibi;
  alibi.heads = 65536;
  absl::StatusOr<BiasTiles> tiles =
      BiasTiles::Create(Args(alibi, {-kMaxPosition, 2 * kMaxPosition,
                                     -kMaxPosition, 2 * kMaxPosition}));
  ASSERT_TRUE(tiles.ok()) << tiles.status();
  EXPECT_EQ(tiles->heads(), 65536);

  alibi.heads = 1;
  tiles = BiasTiles::Create(Args(alibi, {-kMaxPosition, 2 * kMaxPosition,
                                         -kMaxPosition, 2 * kMaxPosition}));
  ASSERT_TRUE(tiles.ok()) << tiles.status();
  const OwnedTensor corner =
      Fill(*tiles, {-kMaxPosition, 2, kMaxPosition - 2, 2});
  EXPECT_EQ(corner[1], static_cast<float>(-0.00390625 * 4294967295.));
}

TEST(BiasTilesTest, DefaultsToFloat32AndDoesNotMask) {
  Alibi alibi;
  alibi.heads = 1;
  const OwnedTensor bias = Build(Args(alibi));
  EXPECT_EQ(bias.view().dtype, Dtype::kFloat32);
  EXPECT_EQ(bias[3], -3 * 0.00390625);
}

}  // namespace
}  // namespace posenc::core
