// The output tensors of each KServe model have the same bytes as the tensors in
// the answer of its RPC (apply_rope: ApplyRope).

#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/util/json_util.h"
#include "tests/fixtures/kserve.h"

namespace posenc::server {
namespace {

constexpr char kHalfSplit[] = "half_split";

class ModelsTest : public KserveTest {
 protected:
  Response MustInfer(const Request& request) {
    Response response;
    const grpc::Status status = Infer(request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.model_name(), request.model_name());
    EXPECT_EQ(response.model_version(), "1");
    EXPECT_EQ(response.id(), request.id());
    return response;
  }
  template <typename Native, typename Method, typename NativeRequest>
  Native MustCall(Method method, const NativeRequest& request) {
    Native response;
    const grpc::Status status = Call(method, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
};

TEST_F(ModelsTest, ApplyRopeInEveryDatatype) {
  for (const v1::Dtype dtype : {v1::DTYPE_FLOAT32, v1::DTYPE_FLOAT16,
                                v1::DTYPE_BFLOAT16, v1::DTYPE_FLOAT64}) {
    SCOPED_TRACE(v1::Dtype_Name(dtype));
    v1::ApplyRopeRequest native;
    native.mutable_rope()->set_preset("llama-3.1-8b");
    native.mutable_positions()->set_start(100);
    native.set_layout(v1::LAYOUT_BSHD);
    native.set_direction(v1::DIRECTION_INVERSE);
    *native.mutable_q() = SomeTensor(dtype, {2, 5, 3, 128});
    *native.mutable_k() = SomeTensor(dtype, {2, 5, 1, 128});
    const auto expected =
        MustCall<v1::ApplyRopeResponse>(&Stub::ApplyRope, native);
    Request request =
        InferRequest("apply_rope", {{"rope.preset", Parameter("llama-3.1-8b")},
                                    {"positions.start", Parameter(100)},
                                    {"layout", Parameter("bshd")},
                                    {"direction", Parameter("inverse")}});
    request.set_id("seven");
    AddInput("q", native.q(), &request);
    AddInput("k", native.k(), &request);
    const Response response = MustInfer(request);
    ASSERT_EQ(response.outputs_size(), 2);
    ExpectOutput(response, 0, "q", expected.q());
    ExpectOutput(response, 1, "k", expected.k());
  }
}

// The tensors are large enough for many slices, and for a rotation in place.
TEST_F(ModelsTest, LargeTensorsAreThoseOfTheRpc) {
  v1::ApplyRopeRequest native;
  native.mutable_rope()->set_preset("llama-3.1-8b");
  native.mutable_positions()->set_start(0);
  native.set_layout(v1::LAYOUT_BSHD);
  *native.mutable_q() = SomeTensor(v1::DTYPE_FLOAT32, {1, 2048, 8, 128});
  *native.mutable_k() = SomeTensor(v1::DTYPE_BFLOAT16, {1, 2048, 2, 128});
  const auto expected =
      MustCall<v1::ApplyRopeResponse>(&Stub::ApplyRope, native);
  Request request =
      InferRequest("apply_rope", {{"rope.preset", Parameter("llama-3.1-8b")},
                                  {"positions.start", Parameter(0)},
                                  {"layout", Parameter("LAYOUT_BSHD")}});
  // The inputs have another order than the contract's fields.
  AddInput("k", native.k(), &request);
  AddInput("q", native.q(), &request);
  const Response response = MustInfer(request);
  ExpectOutput(response, 0, "q", expected.q());
  ExpectOutput(response, 1, "k", expected.k());
  ExpectNothingInFlight();
}

TEST_F(ModelsTest, PositionsAreAnInputOfAnyOfTheirTypes) {
  v1::ApplyRopeRequest native;
  native.mutable_rope()->set_preset("llama-3.1-8b");
  native.set_layout(v1::LAYOUT_BSHD);
  *native.mutable_k() = SomeTensor(v1::DTYPE_FLOAT32, {1, 3, 2, 128});
  const std::vector<std::pair<v1::Dtype, std::string>> positions = {
      {v1::DTYPE_INT64, BytesOf<std::int64_t>({7, 9, 1000})},
      {v1::DTYPE_INT32, BytesOf<std::int32_t>({7, 9, 1000})},
      {v1::DTYPE_FLOAT32, BytesOf<float>({7, 9, 1000})},
      {v1::DTYPE_FLOAT64, BytesOf<double>({7, 9, 1000})}};
  for (const auto& [dtype, bytes] : positions) {
    v1::Tensor* const ids = native.mutable_positions()->mutable_ids();
    ids->Clear();
    ids->set_dtype(dtype);
    ids->add_shape(3);
    ids->set_data(bytes);
    const auto expected =
        MustCall<v1::ApplyRopeResponse>(&Stub::ApplyRope, native);
    for (const char* const name : {"positions", "positions.ids"}) {
      Request request = InferRequest(
          "apply_rope", {{"rope.preset", Parameter("llama-3.1-8b")},
                         {"layout", Parameter("bshd")}});
      AddInput(name, *ids, &request);
      AddInput("k", native.k(), &request);
      ExpectOutput(MustInfer(request), 0, "k", expected.k());
    }
  }
}

TEST_F(ModelsTest, RepositionMovesKeysByAShiftAndByPositions) {
  v1::RepositionRequest native;
  native.mutable_old_rope()->set_preset("llama-3.1-8b");
  native.set_layout(v1::LAYOUT_BHSD);
  native.mutable_movement()->set_shift(-20);
  *native.mutable_k() = SomeTensor(v1::DTYPE_FLOAT16, {1, 2, 4, 128});
  Request request = InferRequest(
      "reposition", {{"old_rope", Parameter(R"({"preset": "llama-3.1-8b"})")},
                     {"layout", Parameter("bhsd")},
                     {"movement.shift", Parameter(-20)}});
  AddInput("k", native.k(), &request);
  ExpectOutput(MustInfer(request), 0, "k",
               MustCall<v1::RepositionResponse>(&Stub::Reposition, native).k());

  v1::Tensor from, to;
  SetTensor<std::int64_t>(v1::DTYPE_INT64, {4}, {0, 1, 2, 3}, &from);
  SetTensor<std::int64_t>(v1::DTYPE_INT64, {4}, {8, 1, 30, 9}, &to);
  *native.mutable_movement()->mutable_old_positions()->mutable_ids() = from;
  *native.mutable_movement()->mutable_new_positions()->mutable_ids() = to;
  request.mutable_parameters()->erase("movement.shift");
  AddInput("movement.old_positions", from, &request);
  AddInput("movement.new_positions", to, &request);
  ExpectOutput(MustInfer(request), 0, "k",
               MustCall<v1::RepositionResponse>(&Stub::Reposition, native).k());

  native.mutable_movement()->clear_old_positions();
  *native.mutable_movement()->mutable_shifts() = to;
  Request shifts = InferRequest("reposition",
                                {{"old_rope.preset", Parameter("llama-3.1-8b")},
                                 {"layout", Parameter("bhsd")}});
  AddInput("movement.shifts", to, &shifts);
  AddInput("k", native.k(), &shifts);
  ExpectOutput(MustInfer(shifts), 0, "k",
               MustCall<v1::RepositionResponse>(&Stub::Reposition, native).k());
}

TEST_F(ModelsTest, RepositionMovesInt8AndBytesOfBlocks) {
  v1::RepositionRequest native;
  native.mutable_old_rope()->set_preset("llama-3.1-8b");
  native.set_layout(v1::LAYOUT_THD);
  native.mutable_movement()->set_shift(-20);
  native.set_block_format(v1::BLOCK_FORMAT_Q8_0);
  *native.mutable_k() = SomeTensor(v1::DTYPE_INT8, {3, 2, 4 * 34});
  Request request = InferRequest(
      "reposition", {{"old_rope.preset", Parameter("llama-3.1-8b")},
                     {"movement.shift", Parameter(-20)},
                     {"layout", Parameter("thd")},
                     {"block_format", Parameter("q8_0")}});
  AddInput("k", native.k(), &request);
  ExpectOutput(MustInfer(request), 0, "k",
               MustCall<v1::RepositionResponse>(&Stub::Reposition, native).k());

  native.clear_block_format();
  native.set_saturation(v1::SATURATION_FINITE);
  *native.mutable_k() = SomeTensor(v1::DTYPE_INT8, {3, 2, 128});
  request = InferRequest("reposition",
                         {{"old_rope.preset", Parameter("llama-3.1-8b")},
                          {"movement.shift", Parameter(-20)},
                          {"layout", Parameter("thd")},
                          {"saturation", Parameter("finite")}});
  AddInput("k", native.k(), &request);
  ExpectOutput(MustInfer(request), 0, "k",
               MustCall<v1::RepositionResponse>(&Stub::Reposition, native).k());
}

TEST_F(ModelsTest, RepositionMovesAPagedCache) {
  v1::RepositionRequest native;
  native.mutable_old_rope()->set_preset("llama-3.1-8b");
  native.mutable_movement()->set_shift(-20);
  native.mutable_cache()->set_dimensions("vllm_split");
  native.mutable_cache()->add_lengths(5);
  v1::Tensor* const table = native.mutable_cache()->mutable_block_table();
  SetTensor<std::int64_t>(v1::DTYPE_INT64, {2}, {2, 0}, table);
  *native.mutable_k() = SomeTensor(v1::DTYPE_BFLOAT16, {2, 3, 4, 2, 128});
  Request request = InferRequest(
      "reposition", {{"old_rope.preset", Parameter("llama-3.1-8b")},
                     {"movement.shift", Parameter(-20)},
                     {"cache.dimensions", Parameter("vllm_split")},
                     {"cache.lengths", Parameter("[5]")}});
  AddInput("cache.block_table", *table, &request);
  AddInput("k", native.k(), &request);
  ExpectOutput(MustInfer(request), 0, "k",
               MustCall<v1::RepositionResponse>(&Stub::Reposition, native).k());
}

TEST_F(ModelsTest, BuildTableGivesCosinesSinesAndTheAmplitude) {
  v1::BuildTableRequest native;
  v1::RopeSpec* const spec = native.mutable_rope()->mutable_spec();
  spec->set_pairing(v1::PAIRING_HALF_SPLIT);
  spec->set_rotary_dim(64);
  spec->set_rope_theta(500000);
  spec->set_amplitude(1.25);
  native.mutable_positions()->set_start(3);
  native.set_rows(5);
  native.set_layout(v1::TABLE_LAYOUT_DUPLICATED);
  native.set_dtype(v1::DTYPE_BFLOAT16);
  const auto expected =
      MustCall<v1::BuildTableResponse>(&Stub::BuildTable, native);
  const Response response = MustInfer(
      InferRequest("build_table", {{"rope.spec.pairing", Parameter(kHalfSplit)},
                                   {"rope.spec.rotary_dim", Parameter("64")},
                                   {"rope.spec.rope_theta", Parameter(500000)},
                                   {"rope.spec.amplitude", Parameter("1.25")},
                                   {"positions", Parameter(R"({"start": 3})")},
                                   {"rows", Unsigned(5)},
                                   {"layout", Parameter("duplicated")},
                                   {"dtype", Parameter("bfloat16")}}));
  ASSERT_EQ(response.outputs_size(), 2);
  ExpectOutput(response, 0, "cos", expected.cos());
  ExpectOutput(response, 1, "sin", expected.sin());
  EXPECT_EQ(response.parameters().at("amplitude").double_param(),
            expected.amplitude());
}

TEST_F(ModelsTest, BuildEncodingGivesTablesOfOneTensor) {
  v1::BuildTableRequest native;
  v1::Sinusoidal* const sinusoidal =
      native.mutable_absolute()->mutable_sinusoidal();
  sinusoidal->set_dim(16);
  sinusoidal->set_order(v1::SINUSOIDAL_ORDER_SIN_COS);
  native.mutable_positions()->set_start(0);
  native.set_rows(9);
  ExpectOutput(
      MustInfer(
          InferRequest("build_encoding",
                       {{"absolute.sinusoidal.dim", Parameter(16)},
                        {"absolute.sinusoidal.order", Parameter("sin_cos")},
                        {"positions.start", Parameter(0)},
                        {"rows", Parameter(9)}})),
      0, "table",
      MustCall<v1::BuildTableResponse>(&Stub::BuildTable, native).table());

  v1::BuildTableRequest complex;
  complex.mutable_rope()->set_preset("llama-3.1-8b");
  complex.mutable_positions()->set_start(0);
  complex.set_rows(2);
  complex.set_layout(v1::TABLE_LAYOUT_COMPLEX);
  ExpectOutput(
      MustInfer(InferRequest("build_encoding",
                             {{"rope.preset", Parameter("llama-3.1-8b")},
                              {"positions.start", Parameter(0)},
                              {"rows", Parameter(2)},
                              {"layout", Parameter("complex")}})),
      0, "table",
      MustCall<v1::BuildTableResponse>(&Stub::BuildTable, complex).table());
}

TEST_F(ModelsTest, AddEncodingTakesATableThatIsNotListed) {
  v1::AddEncodingRequest native;
  *native.mutable_encoding()->mutable_learned()->mutable_table() =
      SomeTensor(v1::DTYPE_FLOAT32, {6, 8});
  native.mutable_positions()->set_start(1);
  native.set_x_scale(2);
  *native.mutable_x() = SomeTensor(v1::DTYPE_FLOAT64, {2, 5, 8});
  Request request = InferRequest(
      "add_encoding",
      {{"positions.start", Parameter(1)}, {"x_scale", Parameter(2.0)}});
  AddInput("x", native.x(), &request);
  AddInput("encoding.learned.table", native.encoding().learned().table(),
           &request);
  ExpectOutput(
      MustInfer(request), 0, "x",
      MustCall<v1::AddEncodingResponse>(&Stub::AddEncoding, native).x());
}

TEST_F(ModelsTest, ScoreRelativeTakesItsKeyTableAsAnInput) {
  v1::ScoreRelativeRequest native;
  *native.mutable_score()->mutable_shaw()->mutable_key_table() =
      SomeTensor(v1::DTYPE_FLOAT32, {5, 16});
  *native.mutable_q() = SomeTensor(v1::DTYPE_FLOAT32, {1, 2, 3, 16});
  *native.mutable_k() = SomeTensor(v1::DTYPE_FLOAT32, {1, 2, 4, 16});
  Request request = InferRequest("score_relative", {});
  AddInput("q", native.q(), &request);
  AddInput("k", native.k(), &request);
  AddInput("score.shaw.key_table", native.score().shaw().key_table(), &request);
  ExpectOutput(MustInfer(request), 0, "scores",
               MustCall<v1::ScoreRelativeResponse>(&Stub::ScoreRelative, native)
                   .scores());
}

TEST_F(ModelsTest, BuildBiasGivesTheMatrixAsOneTile) {
  v1::BuildBiasRequest native;
  native.mutable_bias()->mutable_alibi()->set_heads(4);
  native.set_query_start(3);
  native.set_query_length(700);
  native.set_key_length(600);
  native.set_causal(true);
  native.set_query_tile(700);
  native.set_key_tile(600);
  grpc::ClientContext context;
  const auto reader = stub_->BuildBias(&context, native);
  v1::BuildBiasResponse tile, more;
  ASSERT_TRUE(reader->Read(&tile));
  EXPECT_FALSE(reader->Read(&more));
  const Response response =
      MustInfer(InferRequest("build_bias", {{"bias.alibi.heads", Parameter(4)},
                                            {"query_start", Parameter(3)},
                                            {"query_length", Parameter(700)},
                                            {"key_length", Parameter(600)},
                                            {"causal", Parameter(true)}}));
  ExpectOutput(response, 0, "bias", tile.tile());
  EXPECT_EQ(response.parameters().at("query_start").int64_param(), 3);
}

TEST_F(ModelsTest, BuildPositionsGivesIdsAndWhereDecodingGoesOn) {
  v1::BuildPositionsRequest native;
  native.mutable_multimodal()->add_spans()->set_text_tokens(3);
  auto* const vision =
      native.mutable_multimodal()->add_spans()->mutable_vision();
  vision->set_time(1);
  vision->set_height(4);
  vision->set_width(6);
  vision->set_spatial_merge_size(2);
  const auto expected =
      MustCall<v1::BuildPositionsResponse>(&Stub::BuildPositions, native);
  std::string json;
  ASSERT_TRUE(
      google::protobuf::util::MessageToJsonString(native.multimodal(), &json)
          .ok());
  const Response response = MustInfer(
      InferRequest("build_positions", {{"multimodal", Parameter(json)}}));
  ExpectOutput(response, 0, "positions", expected.positions().ids());
  EXPECT_EQ(response.parameters().at("next_position").int64_param(),
            expected.next_position());
  EXPECT_EQ(response.parameters().at("delta").int64_param(), expected.delta());

  v1::BuildPositionsRequest packed;
  packed.mutable_packed()->add_lengths(2);
  packed.mutable_packed()->add_lengths(3);
  ExpectOutput(
      MustInfer(InferRequest("build_positions",
                             {{"packed.lengths", Parameter("[2, 3]")}})),
      0, "positions",
      MustCall<v1::BuildPositionsResponse>(&Stub::BuildPositions, packed)
          .positions()
          .ids());
}

TEST_F(ModelsTest, ConvertPairingReordersAWeight) {
  v1::ConvertPairingRequest native;
  native.set_old_pairing(v1::PAIRING_INTERLEAVED);
  native.set_new_pairing(v1::PAIRING_HALF_SPLIT);
  native.set_heads(2);
  *native.mutable_weight() = SomeTensor(v1::DTYPE_BFLOAT16, {16, 10});
  Request request = InferRequest("convert_pairing",
                                 {{"old_pairing", Parameter("interleaved")},
                                  {"new_pairing", Parameter(kHalfSplit)},
                                  {"heads", Parameter(2)}});
  AddInput("weight", native.weight(), &request);
  ExpectOutput(
      MustInfer(request), 0, "weight",
      MustCall<v1::ConvertPairingResponse>(&Stub::ConvertPairing, native)
          .weight());
}

TEST_F(ModelsTest, ResolveRopeGivesFrequenciesAndTheRestAsParameters) {
  v1::ResolveRopeRequest native;
  native.mutable_rope()->set_preset("llama-3.1-8b");
  const auto expected =
      MustCall<v1::ResolveRopeResponse>(&Stub::ResolveRope, native);
  const Response response = MustInfer(InferRequest(
      "resolve_rope", {{"rope.preset", Parameter("llama-3.1-8b")}}));
  ASSERT_EQ(response.outputs_size(), 1);
  v1::Tensor frequencies;
  SetTensor<double>(v1::DTYPE_FLOAT64, {expected.inv_freq_size()},
                    {expected.inv_freq().begin(), expected.inv_freq().end()},
                    &frequencies);
  ExpectOutput(response, 0, "inv_freq", frequencies);
  const auto& parameters = response.parameters();
  EXPECT_EQ(parameters.at("content_hash").string_param(),
            expected.content_hash());
  EXPECT_EQ(parameters.at("amplitude").double_param(), expected.amplitude());
  EXPECT_EQ(parameters.at("head_dim").int64_param(), expected.head_dim());
  v1::RopeSpec spec;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(
                  parameters.at("spec").string_param(), &spec)
                  .ok());
  EXPECT_EQ(spec.SerializeAsString(), expected.spec().SerializeAsString());
}

TEST_F(ModelsTest, ListsOfMessagesAreJson) {
  v1::ResolveRopeRequest native;
  native.mutable_rope()->set_config_json(
      R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 2})");
  const auto expected =
      MustCall<v1::ResolveRopeResponse>(&Stub::ResolveRope, native);
  ASSERT_GT(expected.assumptions_size(), 0);
  const Response response = MustInfer(InferRequest(
      "resolve_rope",
      {{"rope.config_json", Parameter(native.rope().config_json())}}));
  v1::ResolveRopeResponse lists;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(
                  "{\"assumptions\":" +
                      response.parameters().at("assumptions").string_param() +
                      "}",
                  &lists)
                  .ok());
  ASSERT_EQ(lists.assumptions_size(), expected.assumptions_size());
  EXPECT_EQ(lists.assumptions(0).SerializeAsString(),
            expected.assumptions(0).SerializeAsString());
}

TEST_F(ModelsTest, AxesOfPairsAreSentOnRequest) {
  v1::ResolveRopeRequest native;
  native.mutable_rope()->set_preset("qwen2-vl-7b");
  const auto expected =
      MustCall<v1::ResolveRopeResponse>(&Stub::ResolveRope, native);
  ASSERT_GT(expected.axis_of_pair_size(), 0);
  Request request =
      InferRequest("resolve_rope", {{"rope.preset", Parameter("qwen2-vl-7b")}});
  EXPECT_EQ(MustInfer(request).outputs_size(), 1);
  request.add_outputs()->set_name("axis_of_pair");
  const Response response = MustInfer(request);
  ASSERT_EQ(response.outputs_size(), 1);
  v1::Tensor axes;
  SetTensor<std::int32_t>(
      v1::DTYPE_INT32, {expected.axis_of_pair_size()},
      {expected.axis_of_pair().begin(), expected.axis_of_pair().end()}, &axes);
  ExpectOutput(response, 0, "axis_of_pair", axes);
}

TEST_F(ModelsTest, OutputsComeAsTheyAreAskedFor) {
  Request request =
      InferRequest("apply_rope", {{"rope.preset", Parameter("llama-3.1-8b")},
                                  {"positions.start", Parameter(5)},
                                  {"layout", Parameter("bshd")}});
  AddInput("q", SomeTensor(v1::DTYPE_FLOAT32, {1, 2, 4, 128}), &request);
  AddInput("k", SomeTensor(v1::DTYPE_FLOAT64, {1, 2, 1, 128}), &request);
  const Response both = MustInfer(request);
  request.add_outputs()->set_name("k");
  const Response one = MustInfer(request);
  ASSERT_EQ(one.outputs_size(), 1);
  EXPECT_EQ(one.outputs(0).name(), "k");
  EXPECT_EQ(one.raw_output_contents(0), both.raw_output_contents(1));
  request.add_outputs()->set_name("q");
  const Response turned = MustInfer(request);
  ASSERT_EQ(turned.outputs_size(), 2);
  EXPECT_EQ(turned.outputs(1).name(), "q");
  EXPECT_EQ(turned.raw_output_contents(0), both.raw_output_contents(1));
  EXPECT_EQ(turned.raw_output_contents(1), both.raw_output_contents(0));
  ExpectNothingInFlight();
}

TEST_F(ModelsTest, EmptyTensorsHaveAnEmptyEntryEach) {
  Request request =
      InferRequest("apply_rope", {{"rope.preset", Parameter("llama-3.1-8b")},
                                  {"positions.start", Parameter(0)},
                                  {"layout", Parameter("bshd")}});
  AddInput("q", "FP32", {1, 0, 4, 128}, "", &request);
  AddInput("k", "FP16", {0, 3, 4, 128}, "", &request);
  Response response;
  const grpc::Status status = Infer(request, &response);
  // Batches differ, so this is refused; equal batches are accepted.
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  request.mutable_inputs(1)->mutable_shape()->Set(0, 1);
  request.mutable_inputs(1)->mutable_shape()->Set(1, 0);
  const Response empty = MustInfer(request);
  ASSERT_EQ(empty.raw_output_contents_size(), 2);
  EXPECT_EQ(empty.raw_output_contents(0), "");
  EXPECT_EQ(empty.raw_output_contents(1), "");
}

// Small answers are joined in one slice, large answers are not.
TEST_F(ModelsTest, TypedContentsAreTheSameTensors) {
  for (const std::int64_t length : {2, 300}) {
    v1::ApplyRopeRequest native;
    native.mutable_rope()->set_preset("llama-3.1-8b");
    std::vector<std::int64_t> positions(length);
    for (std::int64_t i = 0; i < length; ++i) positions[i] = 5 * i % 17;
    SetTensor<std::int64_t>(v1::DTYPE_INT64, {length}, positions,
                            native.mutable_positions()->mutable_ids());
    native.set_layout(v1::LAYOUT_BSHD);
    *native.mutable_q() = SomeTensor(v1::DTYPE_FLOAT32, {1, length, 3, 128});
    *native.mutable_k() = SomeTensor(v1::DTYPE_FLOAT64, {1, length, 1, 128});
    const auto expected =
        MustCall<v1::ApplyRopeResponse>(&Stub::ApplyRope, native);
    Request request =
        InferRequest("apply_rope", {{"rope.preset", Parameter("llama-3.1-8b")},
                                    {"layout", Parameter("bshd")}});
    AddInput("q", native.q(), &request);
    AddInput("k", native.k(), &request);
    AddInput("positions", native.positions().ids(), &request);
    request.clear_raw_input_contents();
    for (const float x : Elements<float>(native.q())) {
      request.mutable_inputs(0)->mutable_contents()->add_fp32_contents(x);
    }
    for (const double x : Elements<double>(native.k())) {
      request.mutable_inputs(1)->mutable_contents()->add_fp64_contents(x);
    }
    for (const std::int64_t x : positions) {
      request.mutable_inputs(2)->mutable_contents()->add_int64_contents(x);
    }
    const Response response = MustInfer(request);
    ExpectOutput(response, 0, "q", expected.q());
    ExpectOutput(response, 1, "k", expected.k());
  }
  ExpectNothingInFlight();
}

// A writer that does not sort fields sends such messages.
TEST_F(ModelsTest, BytesMayComeBeforeTheirInputs) {
  Request request =
      InferRequest("apply_rope", {{"rope.preset", Parameter("llama-3.1-8b")},
                                  {"positions.start", Parameter(5)},
                                  {"layout", Parameter("bshd")}});
  AddInput("q", SomeTensor(v1::DTYPE_FLOAT32, {1, 2, 4, 128}), &request);
  AddInput("k", SomeTensor(v1::DTYPE_FLOAT32, {1, 2, 1, 128}), &request);
  const Response expected = MustInfer(request);
  Request bytes;
  bytes.mutable_raw_input_contents()->Swap(
      request.mutable_raw_input_contents());
  Response response;
  ASSERT_TRUE(
      InferBytes(bytes.SerializeAsString() + request.SerializeAsString(),
                 &response)
          .ok());
  EXPECT_EQ(response.SerializeAsString(), expected.SerializeAsString());
  // A model's name with a padded length, which only the generated parser reads.
  request.clear_model_name();
  ASSERT_TRUE(InferBytes(std::string("\x0a\x8a\x00", 3) + "apply_rope" +
                             bytes.SerializeAsString() +
                             request.SerializeAsString(),
                         &response)
                  .ok());
  EXPECT_EQ(response.SerializeAsString(), expected.SerializeAsString());
}

}  // namespace
}  // namespace posenc::server
