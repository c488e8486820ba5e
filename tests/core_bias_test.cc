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
#include "core/relative/bias.h"
#include "core/relative/elements.h"
#include "tests/relative_fixture.h"

namespace posenc::core {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t kMaxPosition = std::int64_t{1} << 31;

OwnedTensor Fill(const BiasTiles& tiles, const BiasRange& tile) {
  OwnedTensor out(tiles.dtype(),
                  {tiles.heads(), tile.query_length, tile.key_length});
  tiles.Fill(tile, out.data());
  return out;
}

OwnedTensor Build(const BiasArgs& args) {
  absl::StatusOr<BiasTiles> tiles = BiasTiles::Create(args);
  if (!tiles.ok()) ADD_FAILURE() << tiles.status();
  return Fill(*tiles, args.range);
}

absl::Status Refusal(const BiasArgs& args) {
  return BiasTiles::Create(args).status();
}

BiasArgs Args(Bias bias, BiasRange range = {0, 4, 0, 4}) {
  BiasArgs args;
  args.bias = std::move(bias);
  args.range = range;
  return args;
}

// What the formula gives, and by how much float64 arithmetic may miss it.
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
              // Past float16's greatest number, 65504 and half a unit.
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

// Relative error of n roundings to float64.
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
      for (std::int64_t q = 0; q < range.query_length; q += rows) {
        for (std::int64_t k = 0; k < range.key_length; k += columns) {
          const BiasRange tile = {
              range.query_start + q, std::min(rows, range.query_length - q),
              range.key_start + k, std::min(columns, range.key_length - k)};
          OwnedTensor part = Fill(*tiles, tile);
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
  // The paper's code: 8 heads' slopes, then every second one of 16 heads'. Not
  // one geometric sequence over 12 heads, 2^(-8 h / 12).
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
      const T5BucketIndex index(t5.buckets);  // held to the formula elsewhere
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

struct FireTensors {
  explicit FireTensors(Dtype dtype)
      : w1(OwnedTensor::Random(dtype, {5, 1}, 1)),
        b1(OwnedTensor::Random(dtype, {5}, 2)),
        w2(OwnedTensor::Random(dtype, {3, 5}, 3)),
        b2(OwnedTensor::Random(dtype, {3}, 4)) {}
  Fire Make(double c, double threshold, double epsilon) const {
    Fire fire;
    fire.c = c;
    fire.threshold = threshold;
    fire.epsilon = epsilon;
    fire.w1 = w1.view();
    fire.b1 = b1.view();
    fire.w2 = w2.view();
    fire.b2 = b2.view();
    return fire;
  }
  OwnedTensor w1, b1, w2, b2;
};

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
  // x once; each unit twice; 5 products and sums, and b2.
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
                 // log1p, as 1 + 1e-600 is 1 in __float128 too: psi(x) = c x
                 // here.
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
                     // Each cosine and each partial sum by an ulp of 1 or of
                     // dim; frequencies to 2^-63; the quotient.
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
  Alibi alibi;
  alibi.heads = 3;
  const BiasRange range = {20, 150, 5, 140};
  for (const Bias& bias :
       std::vector<Bias>{alibi, t5, kerple, fire.Make(0.1, 40, 0),
                         Sandwich{2, 16}, RelativeIndex{ClippedDistance{8, 8}},
                         RelativeIndex{DebertaBuckets{32, 128}},
                         RelativeIndex{GridIndex{{13, 14}}}, untied}) {
    CheckTiles(bias, range);
  }
}

TEST(BiasTilesTest, TilesBeyondABlockOfDistancesGiveTheSameBytes) {
  // 4096 rows or columns share a strip of distances.
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
  // 2^64 elements a head, and more heads than could be listed.
  Alibi alibi;
  alibi.heads = 2147483647;
  absl::StatusOr<BiasTiles> tiles =
      BiasTiles::Create(Args(alibi, {-kMaxPosition, 2 * kMaxPosition,
                                     -kMaxPosition, 2 * kMaxPosition}));
  ASSERT_TRUE(tiles.ok()) << tiles.status();
  EXPECT_EQ(tiles->heads(), 2147483647);

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

TEST(StoreDoublesTest, RoundsOnceAsStoreDoubleDoes) {
  std::mt19937_64 generator(1);
  std::vector<double> values = {0,
                                -0.,
                                kInfinity,
                                -kInfinity,
                                65519.999,
                                65520,
                                -65504,
                                0x1p-24,
                                0x1p-25,
                                0x1.0000001p-25,
                                1 + 0x1p-11,
                                1 + 0x1p-11 + 0x1p-40,
                                1 + 0x1p-8,
                                1 + 0x1p-8 + 0x1p-40,
                                1e300,
                                -1e300,
                                3.4028235677973366e38,
                                1e-310,
                                0x1p-134,
                                0x1.0000001p-134};
  for (int n = 0; n < 200000; ++n) {
    const std::uint64_t bits = generator();
    const int exponent = static_cast<int>(bits % 300) - 160;
    const double value =
        std::ldexp(static_cast<double>(bits >> 11), exponent - 53);
    values.push_back(bits & 512 ? -value : value);
    // Halfway between float32 numbers, and a little beside.
    values.push_back(static_cast<float>(value) *
                     (1 + std::ldexp(1, -static_cast<int>(8 + bits % 45))));
  }
  const auto n = static_cast<std::int64_t>(values.size());
  for (const Dtype dtype :
       {Dtype::kFloat16, Dtype::kBfloat16, Dtype::kFloat32, Dtype::kFloat64}) {
    OwnedTensor actual(dtype, {n});
    StoreDoubles(values.data(), n, dtype, actual.data());
    const OwnedTensor expected(dtype, {n}, values);
    EXPECT_EQ(actual.bytes(), expected.bytes()) << DtypeName(dtype);
    std::vector<double> read(n);
    LoadDoubles(actual.view(), 0, n, read.data());
    for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(read[i], expected[i]);
  }
  const double nan = std::nan("");
  for (const Dtype dtype : kFloatingDtypes) {
    OwnedTensor actual(dtype, {1});
    StoreDoubles(&nan, 1, dtype, actual.data());
    EXPECT_TRUE(std::isnan(actual[0]));
  }
}

TEST(BiasValidationTest, RequiresABias) {
  ExpectRequired(Refusal(Args({})), "bias", "not set; say which bias to build");
}

TEST(BiasValidationTest, RejectsAlibiWithoutHeadsOrWithOtherSlopes) {
  Alibi alibi;
  ExpectRequired(Refusal(Args(alibi)), "bias.alibi.heads",
                 "not set; must be at least 1");
  alibi.slopes = {0.5};
  ExpectRequired(Refusal(Args(alibi)), "bias.alibi.heads",
                 "not set; must be at least 1");
  alibi.heads = -2;
  ExpectInvalid(Refusal(Args(alibi)), "bias.alibi.heads",
                "-2; must be at least 1");
  alibi.heads = 2;
  ExpectInvalid(Refusal(Args(alibi)), "bias.alibi.slopes",
                "has 1 for 2 heads; give one per head");
  alibi.slopes = {0.5, std::nan("")};
  ExpectInvalid(Refusal(Args(alibi)), "bias.alibi.slopes[1]",
                "nan; must be finite");
  alibi.slopes = {0.5, 0.25};
  alibi.max_bias = 8;
  ExpectInvalid(Refusal(Args(alibi)), "bias.alibi.max_bias",
                "8, and 2 slopes are given; unset one of them");
  alibi.slopes.clear();
  for (const double bad : {0., -8., kInfinity}) {
    alibi.max_bias = bad;
    ExpectInvalid(Refusal(Args(alibi)), "bias.alibi.max_bias",
                  NumberText(bad) + "; must be finite and positive");
  }
}

TEST(BiasValidationTest, RejectsT5WeightsOfTheWrongShape) {
  T5Bias t5;
  const OwnedTensor few(Dtype::kFloat32, {31, 4});
  t5.weights = few.view();
  ExpectMismatch(Refusal(Args(t5)), "bias.t5.weights.shape",
                 "is [31, 4]; must be [num_buckets = 32, heads]");
  const OwnedTensor flat(Dtype::kFloat32, {32});
  t5.weights = flat.view();
  ExpectMismatch(Refusal(Args(t5)), "bias.t5.weights.shape",
                 "is [32]; must be [num_buckets = 32, heads]");
  const OwnedTensor headless(Dtype::kFloat32, {32, 0});
  t5.weights = headless.view();
  ExpectMismatch(Refusal(Args(t5)), "bias.t5.weights.shape",
                 "is [32, 0]; must be [num_buckets = 32, heads]");
  const OwnedTensor whole(Dtype::kInt32, {32, 4});
  t5.weights = whole.view();
  ExpectInvalid(Refusal(Args(t5)), "bias.t5.weights.dtype",
                "int32; must be float32, float16, bfloat16 or float64");
  t5.weights.reset();
  t5.buckets.max_distance = 16;
  ExpectInvalid(Refusal(Args(t5)), "bias.t5.max_distance",
                "16, but the first 16 of 32 buckets hold one distance each; "
                "must be at least 17");
}

TEST(BiasValidationTest, RejectsKerpleParametersOutOfRange) {
  Kerple kerple;
  ExpectRequired(Refusal(Args(kerple)), "bias.kerple.kernel",
                 "not set; must be LOGARITHMIC or POWER");
  kerple.kernel = KerpleKernel::kPower;
  ExpectRequired(Refusal(Args(kerple)), "bias.kerple.r1",
                 "is empty; give one per head");
  kerple.r1 = {1, 0};
  ExpectInvalid(Refusal(Args(kerple)), "bias.kerple.r1[1]",
                "0; must be finite and positive");
  kerple.r1 = {-0.5};
  ExpectInvalid(Refusal(Args(kerple)), "bias.kerple.r1[0]",
                "-0.5; must be finite and positive");
  kerple.r1 = {kInfinity};
  ExpectInvalid(Refusal(Args(kerple)), "bias.kerple.r1[0]",
                "inf; must be finite and positive");
  kerple.r1 = {1};
  ExpectRequired(Refusal(Args(kerple)), "bias.kerple.r2",
                 "is empty; give one per head");
  kerple.r2 = {2.5};
  ExpectInvalid(Refusal(Args(kerple)), "bias.kerple.r2[0]",
                "2.5; must be positive and at most 2");
  kerple.r2 = {std::nan("")};
  ExpectInvalid(Refusal(Args(kerple)), "bias.kerple.r2[0]",
                "nan; must be positive and at most 2");
  kerple.r2 = {1, 1};
  ExpectInvalid(Refusal(Args(kerple)), "bias.kerple.r2",
                "has 2, but r1 has 1; give one of each per head");
}

TEST(BiasValidationTest, RejectsFireWithoutItsParameters) {
  const FireTensors tensors(Dtype::kFloat32);
  const auto refuse = [](const Fire& fire) { return Refusal(Args(fire)); };
  ExpectRequired(refuse(tensors.Make(0, 1, 0)), "bias.fire.c",
                 "not set; must be positive");
  ExpectInvalid(refuse(tensors.Make(-1, 1, 0)), "bias.fire.c",
                "-1; must be finite and positive");
  ExpectRequired(refuse(tensors.Make(1, 0, 0)), "bias.fire.threshold",
                 "not set; must be positive");
  ExpectInvalid(refuse(tensors.Make(1, kInfinity, 0)), "bias.fire.threshold",
                "inf; must be finite and positive");
  ExpectInvalid(refuse(tensors.Make(1, 1, -1e-6)), "bias.fire.epsilon",
                "-1e-06; must be finite and >= 0");
  Fire fire = tensors.Make(1, 1, 0);
  fire.b1.reset();
  ExpectRequired(refuse(fire), "bias.fire.b1", "not set; must be [hidden = 5]");
  fire = tensors.Make(1, 1, 0);
  fire.w1 = tensors.w2.view();
  ExpectMismatch(refuse(fire), "bias.fire.w1.shape",
                 "is [3, 5]; must be [hidden, 1]");
  fire = tensors.Make(1, 1, 0);
  fire.w2 = tensors.w1.view();
  ExpectMismatch(refuse(fire), "bias.fire.w2.shape",
                 "is [5, 1]; must be [heads, hidden = 5]");
  fire = tensors.Make(1, 1, 0);
  fire.b2 = tensors.b1.view();
  ExpectMismatch(refuse(fire), "bias.fire.b2.shape",
                 "is [5]; must be [heads = 3]");
}

TEST(BiasValidationTest, RejectsSandwichOfOddWidth) {
  ExpectRequired(Refusal(Args(Sandwich{0, 128})), "bias.sandwich.heads",
                 "not set; must be at least 1");
  ExpectInvalid(Refusal(Args(Sandwich{-1, 128})), "bias.sandwich.heads",
                "-1; must be at least 1");
  ExpectRequired(Refusal(Args(Sandwich{4, 0})), "bias.sandwich.dim",
                 "not set; the paper has 128");
  for (const int dim : {127, -2, 65538}) {
    ExpectInvalid(Refusal(Args(Sandwich{4, dim})), "bias.sandwich.dim",
                  absl::StrCat(dim, "; must be even, 2 .. 65536"));
  }
}

TEST(BiasValidationTest, RejectsIndicesWithoutARule) {
  ExpectRequired(Refusal(Args(RelativeIndex{})), "bias.relative_index",
                 "has no rule; set clip, deberta or grid");
  ExpectInvalid(Refusal(Args(RelativeIndex{ClippedDistance{-1, 2}})),
                "bias.relative_index.clip.left", "-1; must be >= 0");
  ExpectInvalid(Refusal(Args(RelativeIndex{DebertaBuckets{1, 5}})),
                "bias.relative_index.deberta.bucket_size",
                "1; must be 2 .. 16384, or 0 for none");
  ExpectInvalid(Refusal(Args(RelativeIndex{GridIndex{{0}}})),
                "bias.relative_index.grid.extents[0]", "0; must be at least 1");
}

TEST(BiasValidationTest, RejectsPositionsOutsideTheGrid) {
  const Bias grid = RelativeIndex{GridIndex{{7, 7}}};
  const auto out_of_range = [&](BiasRange range, const std::string& field,
                                const std::string& fact) {
    ExpectError(Refusal(Args(grid, range)), absl::StatusCode::kOutOfRange,
                ErrorReason::kPositionOutOfRange, field, fact);
  };
  out_of_range({0, 50, 0, 49}, "query_length",
               "positions 0 .. 49; a grid of [7, 7] has positions 0 .. 48");
  out_of_range({0, 49, 1, 49}, "key_length",
               "positions 1 .. 49; a grid of [7, 7] has positions 0 .. 48");
  out_of_range({-1, 2, 0, 49}, "query_start",
               "positions -1 .. 0; a grid of [7, 7] has positions 0 .. 48");
  out_of_range({0, 1, 49, 1}, "key_start",
               "positions 49 .. 49; a grid of [7, 7] has positions 0 .. 48");
}

TEST(BiasValidationTest, RejectsUntiedPositionsPastTheRows) {
  const OwnedTensor queries(Dtype::kFloat32, {2, 10, 4});
  const OwnedTensor keys(Dtype::kFloat32, {2, 9, 4});
  UntiedPositions untied;
  ExpectRequired(Refusal(Args(untied)),
                 "bias.untied_positions.position_queries",
                 "not set; must be [heads, rows, D]");
  untied.position_queries = queries.view();
  ExpectRequired(Refusal(Args(untied)), "bias.untied_positions.position_keys",
                 "not set; must be [heads = 2, rows = 10, D = 4]");
  untied.position_keys = keys.view();
  ExpectMismatch(Refusal(Args(untied)),
                 "bias.untied_positions.position_keys.shape",
                 "is [2, 9, 4]; must be [heads = 2, rows = 10, D = 4]");
  untied.position_keys = queries.view();
  untied.scale = kInfinity;
  ExpectInvalid(Refusal(Args(untied)), "bias.untied_positions.scale",
                "inf; must be finite");
  untied.scale.reset();
  const absl::Status status = Refusal(Args(untied, {8, 3, 0, 1}));
  ExpectError(status, absl::StatusCode::kOutOfRange,
              ErrorReason::kPositionOutOfRange, "query_length",
              "positions 8 .. 10; bias.untied_positions has positions 0 .. 9");
  EXPECT_THAT(GetErrorDetails(status)->metadata,
              testing::ElementsAre(testing::Pair("index", "2")));
}

TEST(BiasValidationTest, RejectsLengthsAndPositionsOutOfRange) {
  Alibi alibi;
  alibi.heads = 1;
  ExpectRequired(Refusal(Args(alibi, {0, 0, 0, 4})), "query_length",
                 "not set; a bias has at least 1 query and key");
  ExpectInvalid(Refusal(Args(alibi, {0, 4, 0, -1})), "key_length",
                "-1; must be at least 1");
  const auto out_of_range = [&](BiasRange range, const std::string& field,
                                const std::string& fact) {
    ExpectError(Refusal(Args(alibi, range)), absl::StatusCode::kInvalidArgument,
                ErrorReason::kPositionOutOfRange, field, fact);
  };
  out_of_range({-kMaxPosition - 1, 1, 0, 1}, "query_start",
               "-2147483649; positions are within +-2^31");
  out_of_range({0, 1, kMaxPosition, 2}, "key_start",
               "2147483648 + 1 is the position of the last of 2 tokens; "
               "positions are within +-2^31");
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  out_of_range({0, most, 0, 1}, "query_start",
               "0 + 9223372036854775806 is the position of the last of "
               "9223372036854775807 tokens; positions are within +-2^31");
}

TEST(BiasValidationTest, RejectsDtypesThatCannotHoldTheBias) {
  Alibi alibi;
  alibi.heads = 1;
  BiasArgs args = Args(alibi);
  args.dtype = Dtype::kInt32;
  ExpectInvalid(Refusal(args), "dtype",
                "int32; must be float32, float16, bfloat16 or float64");
  for (const Bias& indices :
       std::vector<Bias>{T5Bias{}, RelativeIndex{ClippedDistance{1, 1}}}) {
    args = Args(indices);
    for (const Dtype dtype : {Dtype::kFloat32, Dtype::kInt64}) {
      args.dtype = dtype;
      ExpectInvalid(Refusal(args), "dtype",
                    absl::StrCat(DtypeName(dtype),
                                 "; indices are int32, leave it unset"));
    }
    args.dtype = Dtype::kInt32;
    EXPECT_TRUE(BiasTiles::Create(args).ok());
    args.causal = true;
    ExpectInvalid(Refusal(args), "causal",
                  "set; indices have no -infinity, mask what they look up");
  }
}

}  // namespace
}  // namespace posenc::core
