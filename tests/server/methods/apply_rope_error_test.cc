// Bad input to ApplyRope over a real connection: code, ErrorInfo, BadRequest,
// message; and the server goes on.

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/fixtures/server_errors.h"

namespace posenc::server {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

v1::RopeSpec* Spec(v1::ApplyRopeRequest& request) {
  return request.mutable_rope()->mutable_spec();
}

template <typename T>
void SetIds(v1::ApplyRopeRequest& request, v1::Dtype dtype,
            const std::vector<std::int64_t>& shape,
            const std::vector<T>& elements) {
  SetTensor(dtype, shape, elements, request.mutable_positions()->mutable_ids());
}

void SetShape(v1::Tensor* tensor, const std::vector<std::int64_t>& shape) {
  tensor->clear_shape();
  tensor->mutable_shape()->Add(shape.begin(), shape.end());
}

using A = v1::ApplyRopeRequest;

const std::vector<BadCase<A>>& TensorCases() {
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  static const auto& cases = *new std::vector<BadCase<A>>{
      {"DataOneByteShort",
       [](A& r) { r.mutable_q()->mutable_data()->pop_back(); },
       kInvalid,
       "TENSOR_SIZE_MISMATCH",
       "q.data",
       {"127", "128"},
       {{"expectedBytes", "128"}, {"actualBytes", "127"}}},
      {"DataOneByteLong",
       [](A& r) { r.mutable_k()->mutable_data()->push_back('x'); },
       kInvalid,
       "TENSOR_SIZE_MISMATCH",
       "k.data",
       {"65", "64"},
       {{"expectedBytes", "64"}, {"actualBytes", "65"}}},
      {"DataForNoElement",
       [](A& r) {
         SetShape(r.mutable_k(), {1, 2, 0, 8});
       },
       kInvalid,
       "TENSOR_SIZE_MISMATCH",
       "k.data",
       {"64 bytes"},
       {{"expectedBytes", "0"}, {"actualBytes", "64"}}},
      {"BothValuesAndData",
       [](A& r) { r.mutable_q()->add_values(1); },
       kInvalid,
       "FIELD_INVALID",
       "q.values",
       {"128 bytes of data"}},
      {"NeitherValuesNorData",
       [](A& r) { r.mutable_q()->clear_data(); },
       kInvalid,
       "FIELD_REQUIRED",
       "q.data",
       {"[1, 2, 2, 8]", "32"}},
      {"ValuesOfAnotherNumber",
       [](A& r) {
         r.mutable_q()->clear_data();
         r.mutable_q()->add_values(1);
       },
       kInvalid,
       "TENSOR_SIZE_MISMATCH",
       "q.values",
       {"1 elements"},
       {{"expectedBytes", "128"}, {"actualBytes", "4"}}},
      {"TooManyValues",
       [](A& r) {
         r.mutable_q()->clear_data();
         r.mutable_q()->mutable_values()->Resize(65537, 1.0);
       },
       kInvalid,
       "FIELD_INVALID",
       "q.values",
       {"65537", "65536"}},
      {"NoDtype",
       [](A& r) { r.mutable_q()->clear_dtype(); },
       kInvalid,
       "FIELD_REQUIRED",
       "q.dtype",
       {}},
      {"DtypeThatCannotBeRotated",
       [](A& r) { r.mutable_q()->set_dtype(v1::DTYPE_INT32); },
       kInvalid,
       "FIELD_INVALID",
       "q.dtype",
       {"int32"}},
      {"FractionalInteger",
       [](A& r) {
         v1::Tensor* ids = r.mutable_positions()->mutable_ids();
         ids->set_dtype(v1::DTYPE_INT32);
         ids->add_shape(2);
         ids->add_values(0);
         ids->add_values(1.5);
       },
       kInvalid,
       "FIELD_INVALID",
       "positions.ids.values[1]",
       {"1.5", "int32"}},
      {"IntegerBeyondItsDtype",
       [](A& r) {
         v1::Tensor* ids = r.mutable_positions()->mutable_ids();
         ids->set_dtype(v1::DTYPE_INT32);
         ids->add_shape(2);
         ids->add_values(0);
         ids->add_values(2147483648.0);
       },
       kInvalid,
       "FIELD_INVALID",
       "positions.ids.values[1]",
       {"int32"}},
      {"NegativeExtent",
       [](A& r) {
         SetShape(r.mutable_q(), {1, -2, 2, 8});
       },
       kInvalid,
       "FIELD_INVALID",
       "q.shape",
       {"-2"}},
      {"ProductThatWrapsToTheRightSize",
       // 2^62 * 4 * 32 wraps to 0; without the wrap there is no such tensor.
       [](A& r) {
         SetShape(r.mutable_q(), {kMax / 2 + 1, 4, 4, 8});
       },
       kInvalid,
       "FIELD_INVALID",
       "q.shape",
       {"4611686018427387904"}},
      {"LargestExtents",
       [](A& r) {
         SetShape(r.mutable_q(), {kMax, kMax, kMax, kMax});
       },
       kInvalid,
       "FIELD_INVALID",
       "q.shape",
       {"9223372036854775807"}},
      {"OverflowThatAZeroHides",
       [](A& r) {
         SetShape(r.mutable_q(), {0, kMax, kMax, 8});
         r.mutable_q()->clear_data();
       },
       kInvalid,
       "FIELD_INVALID",
       "q.shape",
       {"9223372036854775807"}},
      {"ManyBytesOfFewElements",
       [](A& r) {
         SetShape(r.mutable_q(), {kMax / 8, 1, 1, 2});
       },
       kInvalid,
       "TENSOR_SIZE_MISMATCH",
       "q.data",
       {"128 bytes"}},
      {"HeadDimZero",
       [](A& r) {
         SetShape(r.mutable_q(), {1, 2, 2, 0});
         r.mutable_q()->clear_data();
       },
       kInvalid,
       "FIELD_INVALID",
       "q.shape",
       {"[1, 2, 2, 0]"}},
      {"RankThatDoesNotFitTheLayout",
       [](A& r) {
         SetShape(r.mutable_q(), {2, 2, 8});
       },
       kInvalid,
       "FIELD_INVALID",
       "q.shape",
       {"[2, 2, 8]"}},
      {"NeitherQNorK",
       [](A& r) {
         r.clear_q();
         r.clear_k();
       },
       kInvalid,
       "FIELD_REQUIRED",
       "q",
       {"k"}},
      {"QAndKDisagreeInTokens",
       [](A& r) {
         SetShape(r.mutable_k(), {1, 1, 2, 8});
       },
       kInvalid,
       "SHAPE_MISMATCH",
       "k.shape",
       {},
       {{"expected", "[1, 2]"}, {"actual", "[1, 1]"}}},
      {"NoLayout",
       [](A& r) { r.clear_layout(); },
       kInvalid,
       "FIELD_REQUIRED",
       "layout",
       {}},
  };
  return cases;
}

const std::vector<BadCase<A>>& PositionCases() {
  static const auto& cases = *new std::vector<BadCase<A>>{
      {"NoPositions",
       [](A& r) { r.clear_positions(); },
       kInvalid,
       "FIELD_REQUIRED",
       "positions",
       {}},
      {"PositionsOfNoKind",
       [](A& r) { r.mutable_positions()->Clear(); },
       kInvalid,
       "FIELD_REQUIRED",
       "positions",
       {}},
      {"IdsOfTheWrongShape",
       [](A& r) {
         SetIds<std::int32_t>(r, v1::DTYPE_INT32, {3}, {0, 1, 2});
       },
       kInvalid,
       "SHAPE_MISMATCH",
       "positions.ids.shape",
       {"[3]"}},
      {"IdsThatCannotBePositions",
       [](A& r) {
         SetIds<std::int16_t>(r, v1::DTYPE_FLOAT16, {2}, {0, 0});
       },
       kInvalid,
       "FIELD_INVALID",
       "positions.ids.dtype",
       {"float16"}},
      {"NanId",
       [](A& r) {
         SetIds<double>(r, v1::DTYPE_FLOAT64, {2}, {0, kNan});
       },
       kOutOfRange,
       "POSITION_OUT_OF_RANGE",
       "positions.ids",
       {},
       {{"index", "1"}}},
      {"InfiniteId",
       [](A& r) {
         SetIds<double>(r, v1::DTYPE_FLOAT64, {2}, {-kInf, 0});
       },
       kOutOfRange,
       "POSITION_OUT_OF_RANGE",
       "positions.ids",
       {},
       {{"index", "0"}}},
      {"IdBeyondTheLimit",
       [](A& r) {
         SetIds<std::int64_t>(r, v1::DTYPE_INT64, {2}, {0, 2147483649});
       },
       kOutOfRange,
       "POSITION_OUT_OF_RANGE",
       "positions.ids",
       {"2147483649"},
       {{"index", "1"}}},
      {"StartBeyondTheLimit",
       [](A& r) { r.mutable_positions()->set_start(2147483648); },
       kOutOfRange,
       "POSITION_OUT_OF_RANGE",
       "positions.start",
       {"2147483648"}},
      {"StartThatWraps",
       [](A& r) {
         r.mutable_positions()->set_start(
             std::numeric_limits<std::int64_t>::max());
       },
       kOutOfRange,
       "POSITION_OUT_OF_RANGE",
       "positions.start",
       {"9223372036854775807"}},
      {"StartsOfAnotherBatch",
       [](A& r) {
         r.mutable_positions()->mutable_starts()->add_values(0);
         r.mutable_positions()->mutable_starts()->add_values(1);
       },
       kInvalid,
       "SHAPE_MISMATCH",
       "positions.starts.values",
       {}},
      {"PackedWithoutThd",
       [](A& r) { r.mutable_positions()->mutable_packed()->add_cu_seqlens(0); },
       kInvalid,
       "FIELD_INVALID",
       "positions.packed",
       {}},
      {"CuSeqlensDecrease",
       [](A& r) {
         r.set_layout(v1::LAYOUT_THD);
         r.clear_k();
         SetShape(r.mutable_q(), {4, 1, 8});
         for (const int end : {0, 3, 2, 4}) {
           r.mutable_positions()->mutable_packed()->add_cu_seqlens(end);
         }
       },
       kInvalid,
       "FIELD_INVALID",
       "positions.packed.cu_seqlens[2]",
       {"2", "3"}},
      {"CuSeqlensEndWrong",
       [](A& r) {
         r.set_layout(v1::LAYOUT_THD);
         r.clear_k();
         SetShape(r.mutable_q(), {4, 1, 8});
         for (const int end : {0, 3}) {
           r.mutable_positions()->mutable_packed()->add_cu_seqlens(end);
         }
       },
       kInvalid,
       "FIELD_INVALID",
       "positions.packed.cu_seqlens[1]",
       {"3", "4"}},
  };
  return cases;
}

const std::vector<BadCase<A>>& RopeCases() {
  static const auto& cases = *new std::vector<BadCase<A>>{
      {"NoRope",
       [](A& r) { r.clear_rope(); },
       kInvalid,
       "FIELD_REQUIRED",
       "rope",
       {}},
      {"NoSource",
       [](A& r) { r.mutable_rope()->Clear(); },
       kInvalid,
       "FIELD_REQUIRED",
       "rope",
       {"preset"}},
      {"NoPairing",
       [](A& r) { Spec(r)->clear_pairing(); },
       kInvalid,
       "FIELD_REQUIRED",
       "rope.spec.pairing",
       {}},
      {"OddRotaryDim",
       [](A& r) { Spec(r)->set_rotary_dim(7); },
       kInvalid,
       "FIELD_INVALID",
       "rope.spec.rotary_dim",
       {"7"}},
      {"RotaryDimOverHeadDim",
       [](A& r) { Spec(r)->set_rotary_dim(10); },
       kInvalid,
       "FIELD_INVALID",
       "rope.spec.rotary_dim",
       {"10", "8"}},
      {"NegativeRotaryDim",
       [](A& r) { Spec(r)->set_rotary_dim(-2); },
       kInvalid,
       "FIELD_INVALID",
       "rope.spec.rotary_dim",
       {"-2"}},
      {"ThetaOfOne",
       [](A& r) { Spec(r)->set_rope_theta(1); },
       kInvalid,
       "FIELD_INVALID",
       "rope.spec.rope_theta",
       {"1"}},
      {"InfiniteTheta",
       [](A& r) { Spec(r)->set_rope_theta(kInf); },
       kInvalid,
       "FIELD_INVALID",
       "rope.spec.rope_theta",
       {"inf"}},
      {"NanTheta",
       [](A& r) { Spec(r)->set_rope_theta(kNan); },
       kInvalid,
       "FIELD_INVALID",
       "rope.spec.rope_theta",
       {"nan"}},
      {"MissingFactor",
       [](A& r) { Spec(r)->mutable_linear(); },
       kInvalid,
       "FIELD_REQUIRED",
       "rope.spec.linear.factor",
       {}},
      {"NegativeFactor",
       [](A& r) { Spec(r)->mutable_linear()->set_factor(-1); },
       kInvalid,
       "FIELD_INVALID",
       "rope.spec.linear.factor",
       {"-1"}},
      {"NanFactor",
       [](A& r) { Spec(r)->mutable_ntk()->set_factor(kNan); },
       kInvalid,
       "FIELD_INVALID",
       "rope.spec.ntk.factor",
       {"nan"}},
      {"NoSequenceLength",
       [](A& r) {
         Spec(r)->mutable_dynamic_ntk()->set_factor(2);
         Spec(r)->mutable_dynamic_ntk()->set_max_position_embeddings(64);
       },
       kInvalid,
       "FIELD_REQUIRED",
       "rope.sequence_length",
       {}},
      {"WrongNumberOfLongropeFactors",
       [](A& r) {
         v1::LongRopeScaling* longrope = Spec(r)->mutable_longrope();
         longrope->mutable_short_factor()->Resize(4, 1.0);
         longrope->mutable_long_factor()->Resize(3, 1.0);
         longrope->set_original_max_position_embeddings(64);
         longrope->set_factor(2);
         r.mutable_rope()->set_sequence_length(128);
       },
       kInvalid,
       "FIELD_INVALID",
       "rope.spec.longrope.long_factor",
       {"3", "4"}},
      {"SectionsThatDoNotAddUp",
       [](A& r) {
         v1::RotaryAxes* axes = Spec(r)->mutable_axes();
         axes->set_assignment(v1::RotaryAxes::ASSIGNMENT_SECTIONED);
         axes->add_sections(1);
         axes->add_sections(2);
       },
       kInvalid,
       "FIELD_INVALID",
       "rope.spec.axes.sections",
       {"3", "4"}},
      {"UnknownPreset",
       [](A& r) { r.mutable_rope()->set_preset("llama-99"); },
       grpc::StatusCode::NOT_FOUND,
       "PRESET_UNKNOWN",
       "rope.preset",
       {"llama-99"},
       {{"preset", "llama-99"}}},
      {"ConfigThatIsNotJson",
       [](A& r) { r.mutable_rope()->set_config_json("{"); },
       kInvalid,
       "MODEL_CONFIG_INVALID",
       "rope.config_json",
       {}},
      {"ConfigOfWrongTypes",
       [](A& r) {
         r.mutable_rope()->set_config_json(
             R"({"model_type": "llama", "head_dim": 8, "rope_theta": "big",
                 "hidden_size": 8, "num_attention_heads": 1})");
       },
       kInvalid,
       "MODEL_CONFIG_INVALID",
       "rope.config_json",
       {"rope_theta"},
       {{"key", "rope_theta"}}},
      {"ConfigOfUnknownRopeType",
       [](A& r) {
         r.mutable_rope()->set_config_json(
             R"({"model_type": "llama", "head_dim": 8, "hidden_size": 8,
                 "num_attention_heads": 1, "max_position_embeddings": 64,
                 "rope_scaling": {"rope_type": "twisted", "factor": 2}})");
       },
       kInvalid,
       "MODEL_CONFIG_INVALID",
       "rope.config_json",
       {"twisted"}},
      {"UnchosenLayerType",
       [](A& r) { r.mutable_rope()->set_preset("gemma-3-4b"); },
       kInvalid,
       "FIELD_REQUIRED",
       "rope.layer_type",
       {"sliding_attention"}},
      {"UnknownEnumValue",
       [](A& r) { Spec(r)->set_pairing(static_cast<v1::Pairing>(9)); },
       kUnimplemented,
       "FIELD_UNKNOWN",
       "rope.spec.pairing",
       {"9"},
       {{"fieldNumber", "4"}}},
      {"UnknownDtype",
       [](A& r) { r.mutable_q()->set_dtype(static_cast<v1::Dtype>(77)); },
       kUnimplemented,
       "FIELD_UNKNOWN",
       "q.dtype",
       {"77"},
       {{"fieldNumber", "1"}}},
      {"QueryScaleOfNoStep",
       [](A& r) { r.mutable_query_scale()->set_beta(0.1); },
       kInvalid,
       "FIELD_INVALID",
       "query_scale.floor_scale",
       {"0"}},
  };
  return cases;
}

class ApplyRopeErrorTest : public ErrorTest {};

TEST_F(ApplyRopeErrorTest, ApplyRopeNamesFieldNumbersAndReason) {
  for (const auto* cases : {&TensorCases(), &PositionCases(), &RopeCases()}) {
    for (const BadCase<A>& bad : *cases) {
      A request = GoodApply();
      bad.spoil(request);
      v1::ApplyRopeResponse response;
      Expect(bad, Apply(request, &response));
      EXPECT_TRUE(Apply(GoodApply(), &response).ok()) << "after " << bad.name;
    }
  }
}

}  // namespace
}  // namespace posenc::server
