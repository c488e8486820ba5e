// Requests that must be refused, each with its code, reason, field and text.

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/model/source.h"
#include "core/rope/apply.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fixtures/bad_input.h"

namespace posenc::core {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A good request, which each case spoils in one place.
struct Request {
  Request() {
    RopeSpec spec;
    spec.pairing = Pairing::kHalfSplit;
    rope.source = spec;
    args.positions = StartPosition{0};
  }
  RopeSpec& spec() { return std::get<RopeSpec>(rope.source); }
  // Ids of this shape, all 0 but for the first.
  void SetIds(Dtype dtype, Shape shape, double first) {
    const TensorView view{dtype, shape, ids};
    StoreDouble(first, view, 0);
    args.positions = PositionIds{{dtype, shape, ids}};
  }
  absl::Status Apply() {
    args.rope = LookupOf(rope);
    const ConstTensorView q_in{q_dtype, q_shape, data};
    const ConstTensorView k_in{Dtype::kFloat32, k_shape, data};
    const TensorView q_out{q_dtype, q_shape, out};
    const TensorView k_out{Dtype::kFloat32, k_shape, out + 2048};
    return ApplyRope(args, has_q ? &q_in : nullptr, &q_out,
                     has_k ? &k_in : nullptr, &k_out);
  }

  RopeSource rope;
  ApplyRopeArgs args;  // all but the encoding
  bool has_q = true, has_k = true;
  Dtype q_dtype = Dtype::kFloat32;
  Shape q_shape = {1, 4, 2, 8}, k_shape = {1, 4, 1, 8};
  std::byte data[4096] = {};
  std::byte out[4096] = {};
  std::byte ids[256] = {};
};

template <typename Scaling>
std::function<void(Request&)> Factor(double factor) {
  return [factor](Request& r) {
    Scaling scaling;
    scaling.factor = factor;
    if constexpr (requires { scaling.original_max_position_embeddings; }) {
      scaling.original_max_position_embeddings = 4096;
    }
    if constexpr (requires { scaling.max_position_embeddings; }) {
      scaling.max_position_embeddings = 4096;
    }
    if constexpr (requires { scaling.low_freq_factor; }) {
      scaling.low_freq_factor = 1;
      scaling.high_freq_factor = 4;
    }
    if constexpr (requires { scaling.rotating_pairs; }) {
      scaling.rotating_pairs = 2;
    }
    r.spec().scaling = scaling;
    r.rope.sequence_length = 8192;
  };
}

std::function<void(Request&)> Theta(double theta) {
  return [theta](Request& r) { r.spec().rope_theta = theta; };
}

std::function<void(Request&)> QShape(Shape shape) {
  return [shape](Request& r) {
    r.q_shape = shape;
    r.has_k = false;
  };
}

std::function<void(Request&)> Packed(std::vector<std::int64_t> cu_seqlens) {
  return [cu_seqlens](Request& r) {
    r.args.layout = Layout::kThd;
    r.q_shape = {4, 2, 8};
    r.k_shape = {4, 1, 8};
    r.args.positions = PackedSequences{cu_seqlens, {}};
  };
}

std::function<void(Request&)> Ids(Dtype dtype, Shape shape, double first) {
  return [=](Request& r) { r.SetIds(dtype, shape, first); };
}

std::function<void(Request&)> Sections(AxisAssignment assignment,
                                       std::vector<std::int32_t> sections) {
  return [=](Request& r) {
    RotaryAxes axes;
    axes.assignment = assignment;
    axes.sections = sections;
    r.spec().axes = axes;
  };
}

std::function<void(Request&)> Query(double beta, double floor_scale) {
  return [=](Request& r) {
    r.args.query_scale = QueryScale{beta, floor_scale};
  };
}

std::function<void(Request&)> LongRope(int shorts, int longs, bool length) {
  return [=](Request& r) {
    LongRopeScaling scaling;
    scaling.short_factor.assign(shorts, 1);
    scaling.long_factor.assign(longs, 2);
    scaling.original_max_position_embeddings = 4096;
    scaling.factor = 4;
    r.spec().scaling = scaling;
    if (length) r.rope.sequence_length = 8192;
  };
}

std::vector<BadInput<Request>> Cases() {
  constexpr auto kRequired = ErrorReason::kFieldRequired;
  constexpr auto kInvalid = ErrorReason::kFieldInvalid;
  constexpr auto kShape = ErrorReason::kShapeMismatch;
  constexpr auto kRange = ErrorReason::kPositionOutOfRange;
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  return {
      {"NoTensor",
       [](Request& r) { r.has_q = r.has_k = false; },
       kRequired,
       "q",
       {"at least one"}},
      {"NoSource", [](Request& r) { r.rope = {}; }, kRequired, "rope", {}},
      {"UnknownLayout",
       [](Request& r) { r.args.layout = Layout{9}; },
       kInvalid,
       "layout",
       {"9", "BSHD"}},
      {"NoPairing",
       [](Request& r) { r.spec().pairing = Pairing::kUnspecified; },
       kRequired,
       "rope.spec.pairing",
       {}},
      {"OddRotaryDim",
       [](Request& r) { r.spec().rotary_dim = 5; },
       kInvalid,
       "rope.spec.rotary_dim",
       {"5", "even"}},
      {"OddHeadDim",
       QShape({1, 4, 2, 7}),
       kInvalid,
       "rope.spec.rotary_dim",
       {"7", "even"}},
      {"RotaryDimBeyondHead",
       [](Request& r) { r.spec().rotary_dim = 10; },
       kInvalid,
       "rope.spec.rotary_dim",
       {"10", "8"}},
      {"NegativeRotaryDim",
       [](Request& r) { r.spec().rotary_dim = -2; },
       kInvalid,
       "rope.spec.rotary_dim",
       {"-2"}},
      {"IntegerTensor",
       [](Request& r) { r.q_dtype = Dtype::kInt32; },
       kInvalid,
       "q.dtype",
       {"int32", "float32", "float8_e4m3fn"}},
      {"Float8WithoutSaturation",
       [](Request& r) { r.q_dtype = Dtype::kFloat8E4m3fn; },
       kRequired,
       "saturation",
       {"unset", "q is float8_e4m3fn", "finite"}},
      {"UnknownSaturation",
       [](Request& r) {
         r.q_dtype = Dtype::kFloat8E5m2;
         r.args.saturation = static_cast<Saturation>(3);
       },
       kInvalid,
       "saturation",
       {"3", "finite", "none"}},
      {"Float8Positions",
       [](Request& r) { r.SetIds(Dtype::kFloat8E5m2, {4}, 1); },
       kInvalid,
       "positions.ids.dtype",
       {"float8_e5m2", "int32"}},
      {"NegativeExtent", QShape({1, -4, 2, 8}), kInvalid, "q.shape", {"-4"}},
      {"NoHeadDim",
       QShape({1, 4, 2, 0}),
       kInvalid,
       "q.shape",
       {"head_dim 0", "> 0"}},
      {"WrappingExtents",
       QShape({kHuge, 4, 2, 8}),
       kInvalid,
       "q.shape",
       {"4611686018427387904"}},
      {"WrappingExtentsBesideZero",
       QShape({kHuge, 4, 0, 8}),
       kInvalid,
       "q.shape",
       {"4611686018427387904"}},
      {"RankOfThd",
       QShape({4, 2, 8}),
       kInvalid,
       "q.shape",
       {"[4, 2, 8]", "rank 3", "BSHD", "rank 4"}},
      {"RankOfBshd",
       [](Request& r) { r.args.layout = Layout::kThd; },
       kInvalid,
       "q.shape",
       {"rank 4", "THD", "rank 3"}},
      {"OtherBatch",
       [](Request& r) {
         r.k_shape = {2, 4, 1, 8};
       },
       kShape,
       "k.shape",
       {"batch 2", "1"}},
      {"OtherSequence",
       [](Request& r) {
         r.k_shape = {1, 3, 1, 8};
       },
       kShape,
       "k.shape",
       {"sequence 3", "4"}},
      {"OtherHeadsThanFrequencies",
       [](Request& r) {
         r.spec().scaling =
             ExplicitFrequencies{std::vector<double>(3 * 4, 0.5), 3, 1};
       },
       kShape,
       "q.shape",
       {"2 heads", "3"}},
      {"PositionsMissing",
       [](Request& r) { r.args.positions = std::monostate(); },
       kRequired,
       "positions",
       {}},
      {"IdsOfOtherLength",
       Ids(Dtype::kInt64, {5}, 0),
       kShape,
       "positions.ids.shape",
       {"[5]", "4"}},
      {"IdsOfOtherBatch",
       Ids(Dtype::kInt64, {2, 4}, 0),
       kShape,
       "positions.ids.shape",
       {"[2, 4]"}},
      {"NanId",
       Ids(Dtype::kFloat32, {4}, kNan),
       kRange,
       "positions.ids",
       {"nan"}},
      {"InfiniteId",
       Ids(Dtype::kFloat64, {4}, kInfinity),
       kRange,
       "positions.ids",
       {"inf"}},
      {"IdBeyondRange",
       Ids(Dtype::kInt64, {4}, 0x1p31 + 1),
       kRange,
       "positions.ids",
       {"2147483649"}},
      {"HalfPrecisionIds",
       Ids(Dtype::kFloat16, {4}, 0),
       kInvalid,
       "positions.ids.dtype",
       {"float16"}},
      {"StartBeyondRange",
       [](Request& r) {
         r.args.positions = StartPosition{(std::int64_t{1} << 31) - 1};
       },
       kRange,
       "positions.start",
       {"2147483647"}},
      {"WrappingStart",
       [](Request& r) {
         r.args.positions =
             StartPosition{std::numeric_limits<std::int64_t>::max()};
       },
       kRange,
       "positions.start",
       {}},
      {"TooManyStarts",
       [](Request& r) {
         r.args.positions = SequenceStarts{{0, 0}};
       },
       kShape,
       "positions.starts.values",
       {"2", "1"}},
      {"PackedInBatch",
       [](Request& r) {
         r.args.positions = PackedSequences{{0, 4}, {}};
       },
       kInvalid,
       "positions.packed",
       {"THD"}},
      {"DecreasingSequences",
       Packed({0, 3, 2, 4}),
       kInvalid,
       "positions.packed.cu_seqlens[2]",
       {"2", "3"}},
      {"SequencesEndEarly",
       Packed({0, 3}),
       kInvalid,
       "positions.packed.cu_seqlens[1]",
       {"3", "4"}},
      {"SequencesStartLate",
       Packed({1, 4}),
       kInvalid,
       "positions.packed.cu_seqlens[0]",
       {"1", "0"}},
      {"ThetaOne", Theta(1), kInvalid, "rope.spec.rope_theta", {"1"}},
      {"NegativeTheta",
       Theta(-10000),
       kInvalid,
       "rope.spec.rope_theta",
       {"-10000"}},
      {"InfiniteTheta",
       Theta(kInfinity),
       kInvalid,
       "rope.spec.rope_theta",
       {"inf"}},
      {"NanTheta", Theta(kNan), kInvalid, "rope.spec.rope_theta", {"nan"}},
      {"XPosBeyondFloat32",
       [](Request& r) {
         r.spec().xpos.emplace();
         r.args.positions = StartPosition{1'000'000};
       },
       kRange,
       "positions.start",
       {"1000000", "35556"},
       absl::StatusCode::kOutOfRange},
      {"LinearFactorZero",
       Factor<LinearScaling>(0),
       kRequired,
       "rope.spec.linear.factor",
       {"0"}},
      {"NtkFactorNegative",
       Factor<NtkScaling>(-2),
       kInvalid,
       "rope.spec.ntk.factor",
       {"-2"}},
      {"DynamicFactorNan",
       Factor<DynamicNtkScaling>(kNan),
       kInvalid,
       "rope.spec.dynamic_ntk.factor",
       {"nan"}},
      {"YarnFactorInfinite",
       Factor<YarnScaling>(kInfinity),
       kInvalid,
       "rope.spec.yarn.factor",
       {"inf"}},
      {"Llama3FactorNegative",
       Factor<Llama3Scaling>(-1),
       kInvalid,
       "rope.spec.llama3.factor",
       {"-1"}},
      {"ProportionalFactorZero",
       Factor<ProportionalScaling>(0),
       kInvalid,
       "rope.spec.proportional.factor",
       {"0"}},
      {"DynamicWithoutLength",
       [](Request& r) {
         Factor<DynamicNtkScaling>(2)(r);
         r.rope.sequence_length.reset();
       },
       kRequired,
       "rope.sequence_length",
       {}},
      {"LongRopeWithoutLength",
       LongRope(4, 4, false),
       kRequired,
       "rope.sequence_length",
       {}},
      {"TooFewShortFactors",
       LongRope(3, 4, true),
       kInvalid,
       "rope.spec.longrope.short_factor",
       {"3", "4"}},
      {"TooManyLongFactors",
       LongRope(4, 5, true),
       kInvalid,
       "rope.spec.longrope.long_factor",
       {"5", "4"}},
      {"SectionsThatDoNotAddUp",
       Sections(AxisAssignment::kSectioned, {1, 1, 1}),
       kInvalid,
       "rope.spec.axes.sections",
       {"3", "4"}},
      {"UnknownPreset",
       [](Request& r) { r.rope.source = PresetName{"llama-0"}; },
       ErrorReason::kPresetUnknown,
       "rope.preset",
       {"llama-0"},
       absl::StatusCode::kNotFound},
      {"ConfigThatIsNotJson",
       [](Request& r) { r.rope.source = ConfigJson{"{\"rope"}; },
       ErrorReason::kModelConfigInvalid,
       "rope.config_json",
       {}},
      {"QueryScaleWithoutQ",
       [](Request& r) {
         Query(0.1, 8192)(r);
         r.has_q = false;
       },
       kInvalid,
       "query_scale",
       {"without q"}},
      {"QueryScaleBetaNan",
       Query(kNan, 8192),
       kInvalid,
       "query_scale.beta",
       {"nan", "finite"}},
      {"QueryScaleFloorZero",
       Query(0.1, 0),
       kInvalid,
       "query_scale.floor_scale",
       {"0", "greater than 0"}},
  };
}

class ApplyValidation : public testing::TestWithParam<BadInput<Request>> {};
INSTANTIATE_TEST_SUITE_P(Core, ApplyValidation, testing::ValuesIn(Cases()),
                         NameOf<Request>);

TEST_P(ApplyValidation, SaysWhatIsWrong) {
  Request request;
  GetParam().spoil(request);
  ExpectRefused(GetParam(), request.Apply());
  // Nothing is written for a request that fails.
  for (const std::byte byte : request.out) ASSERT_EQ(byte, std::byte{0});
}

TEST(ApplyValidation, PassesTheRequestThatTheCasesSpoil) {
  Request request;
  EXPECT_TRUE(request.Apply().ok()) << request.Apply();
}

TEST(ApplyValidation, ShapeMismatchCarriesBothExtents) {
  Request request;
  request.k_shape = {1, 3, 1, 8};
  const std::optional<ErrorDetails> details = GetErrorDetails(request.Apply());
  ASSERT_TRUE(details.has_value());
  EXPECT_THAT(details->metadata,
              testing::UnorderedElementsAre(testing::Pair("expected", "[1, 4]"),
                                            testing::Pair("actual", "[1, 3]")));
}

}  // namespace
}  // namespace posenc::core
