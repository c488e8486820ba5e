// Biases that are refused: code, field, reason and message.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/relative/bias.h"
#include "tests/fixtures/bias.h"
#include "tests/fixtures/relative.h"

namespace posenc::core {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t kMaxPosition = std::int64_t{1} << 31;

absl::Status Refusal(const BiasArgs& args) {
  return BiasTiles::Create(args).status();
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
    ExpectError(Refusal(Args(alibi, range)), absl::StatusCode::kOutOfRange,
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
