// The output tensors of each KServe model have the same bytes as the tensors in
// the answer of its RPC (apply_rope: ApplyRope).

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/json_util.h"
#include "tests/fixtures/kserve.h"

namespace posenc::server {
namespace {

using google::protobuf::Message;

constexpr char kHalfSplit[] = "half_split";

// Returns the tensor at a path such as "movement.shifts"; for positions, their
// ids.
v1::Tensor* TensorAt(const std::string& path, Message* message) {
  for (const absl::string_view name : absl::StrSplit(path, '.')) {
    message = message->GetReflection()->MutableMessage(
        message, message->GetDescriptor()->FindFieldByName(std::string(name)));
  }
  if (auto* const positions = dynamic_cast<v1::Positions*>(message)) {
    return positions->mutable_ids();
  }
  return &dynamic_cast<v1::Tensor&>(*message);
}

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

  // Sends the inputs to the model and to the RPC. `native` is the RPC's request
  // without the inputs, in protobuf's text format. `outputs` are the names of
  // all tensors in the model's answer; the RPC's answer has the same names.
  template <typename NativeRequest, typename Native>
  Response ExpectAsByRpc(
      grpc::Status (Stub::*rpc)(grpc::ClientContext*, const NativeRequest&,
                                Native*),
      const std::string& native, Request request,
      const std::vector<std::pair<std::string, v1::Tensor>>& inputs,
      const std::vector<std::string>& outputs) {
    NativeRequest native_request;
    EXPECT_TRUE(
        google::protobuf::TextFormat::ParseFromString(native, &native_request));
    for (const auto& [path, tensor] : inputs) {
      AddInput(path, tensor, &request);
      *TensorAt(path, &native_request) = tensor;
    }
    auto expected = MustCall<Native>(rpc, native_request);
    const Response response = MustInfer(request);
    EXPECT_EQ(response.outputs_size(), static_cast<int>(outputs.size()));
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      ExpectOutput(response, static_cast<int>(i), outputs[i],
                   *TensorAt(outputs[i], &expected));
    }
    return response;
  }
};

TEST_F(ModelsTest, ApplyRopeInEveryDatatype) {
  for (const v1::Dtype dtype : {v1::DTYPE_FLOAT32, v1::DTYPE_FLOAT16,
                                v1::DTYPE_BFLOAT16, v1::DTYPE_FLOAT64}) {
    SCOPED_TRACE(v1::Dtype_Name(dtype));
    Request request = LlamaRotation({{"positions.start", Parameter(100)},
                                     {"direction", Parameter("inverse")}});
    request.set_id("seven");
    ExpectAsByRpc(&Stub::ApplyRope,
                  "rope { preset: 'llama-3.1-8b' } positions { start: 100 } "
                  "layout: LAYOUT_BSHD direction: DIRECTION_INVERSE",
                  request,
                  {{"q", SomeTensor(dtype, {2, 5, 3, 128})},
                   {"k", SomeTensor(dtype, {2, 5, 1, 128})}},
                  {"q", "k"});
  }
}

// The tensors are large enough for many slices, and for a rotation in place.
// The inputs have another order than the contract's fields.
TEST_F(ModelsTest, LargeTensorsAreThoseOfTheRpc) {
  ExpectAsByRpc(
      &Stub::ApplyRope,
      "rope { preset: 'llama-3.1-8b' } positions { start: 0 } "
      "layout: LAYOUT_BSHD",
      InferRequest("apply_rope", {{"rope.preset", Parameter("llama-3.1-8b")},
                                  {"positions.start", Parameter(0)},
                                  {"layout", Parameter("LAYOUT_BSHD")}}),
      {{"k", SomeTensor(v1::DTYPE_BFLOAT16, {1, 2048, 2, 128})},
       {"q", SomeTensor(v1::DTYPE_FLOAT32, {1, 2048, 8, 128})}},
      {"q", "k"});
  ExpectNothingInFlight();
}

TEST_F(ModelsTest, PositionsAreAnInputOfAnyOfTheirTypes) {
  v1::Tensor ids[4];
  SetTensor<std::int64_t>(v1::DTYPE_INT64, {3}, {7, 9, 1000}, &ids[0]);
  SetTensor<std::int32_t>(v1::DTYPE_INT32, {3}, {7, 9, 1000}, &ids[1]);
  SetTensor<float>(v1::DTYPE_FLOAT32, {3}, {7, 9, 1000}, &ids[2]);
  SetTensor<double>(v1::DTYPE_FLOAT64, {3}, {7, 9, 1000}, &ids[3]);
  for (const v1::Tensor& positions : ids) {
    for (const char* const name : {"positions", "positions.ids"}) {
      ExpectAsByRpc(&Stub::ApplyRope,
                    "rope { preset: 'llama-3.1-8b' } layout: LAYOUT_BSHD",
                    LlamaRotation({}),
                    {{name, positions},
                     {"k", SomeTensor(v1::DTYPE_FLOAT32, {1, 3, 2, 128})}},
                    {"k"});
    }
  }
}

TEST_F(ModelsTest, RepositionMovesKeysByAShiftAndByPositions) {
  const v1::Tensor k = SomeTensor(v1::DTYPE_FLOAT16, {1, 2, 4, 128});
  v1::Tensor from, to;
  SetTensor<std::int64_t>(v1::DTYPE_INT64, {4}, {0, 1, 2, 3}, &from);
  SetTensor<std::int64_t>(v1::DTYPE_INT64, {4}, {8, 1, 30, 9}, &to);
  const std::string native =
      "old_rope { preset: 'llama-3.1-8b' } layout: LAYOUT_BHSD";
  const Parameters parameters = {
      {"old_rope", Parameter(R"({"preset": "llama-3.1-8b"})")},
      {"layout", Parameter("bhsd")}};
  Request by_shift = InferRequest("reposition", parameters);
  (*by_shift.mutable_parameters())["movement.shift"] = Parameter(-20);
  ExpectAsByRpc(&Stub::Reposition, native + " movement { shift: -20 }",
                by_shift, {{"k", k}}, {"k"});
  ExpectAsByRpc(&Stub::Reposition, native,
                InferRequest("reposition", parameters),
                {{"k", k},
                 {"movement.old_positions", from},
                 {"movement.new_positions", to}},
                {"k"});
  ExpectAsByRpc(&Stub::Reposition, native,
                InferRequest("reposition", parameters),
                {{"movement.shifts", to}, {"k", k}}, {"k"});
}

TEST_F(ModelsTest, RepositionMovesInt8AndBytesOfBlocks) {
  const std::string native =
      "old_rope { preset: 'llama-3.1-8b' } layout: LAYOUT_THD "
      "movement { shift: -20 } ";
  const auto request = [](const char* name, const char* value) {
    return InferRequest("reposition",
                        {{"old_rope.preset", Parameter("llama-3.1-8b")},
                         {"movement.shift", Parameter(-20)},
                         {"layout", Parameter("thd")},
                         {name, Parameter(value)}});
  };
  ExpectAsByRpc(&Stub::Reposition, native + "block_format: BLOCK_FORMAT_Q8_0",
                request("block_format", "q8_0"),
                {{"k", SomeTensor(v1::DTYPE_INT8, {3, 2, 4 * 34})}}, {"k"});
  ExpectAsByRpc(&Stub::Reposition, native + "saturation: SATURATION_FINITE",
                request("saturation", "finite"),
                {{"k", SomeTensor(v1::DTYPE_INT8, {3, 2, 128})}}, {"k"});
}

TEST_F(ModelsTest, RepositionMovesAPagedCache) {
  v1::Tensor table;
  SetTensor<std::int64_t>(v1::DTYPE_INT64, {2}, {2, 0}, &table);
  ExpectAsByRpc(&Stub::Reposition,
                "old_rope { preset: 'llama-3.1-8b' } movement { shift: -20 } "
                "cache { dimensions: 'vllm_split' lengths: 5 }",
                InferRequest("reposition",
                             {{"old_rope.preset", Parameter("llama-3.1-8b")},
                              {"movement.shift", Parameter(-20)},
                              {"cache.dimensions", Parameter("vllm_split")},
                              {"cache.lengths", Parameter("[5]")}}),
                {{"cache.block_table", table},
                 {"k", SomeTensor(v1::DTYPE_BFLOAT16, {2, 3, 4, 2, 128})}},
                {"k"});
}

TEST_F(ModelsTest, BuildTableGivesCosinesSinesAndTheAmplitude) {
  const Response response = ExpectAsByRpc(
      &Stub::BuildTable,
      "rope { spec { pairing: PAIRING_HALF_SPLIT rotary_dim: 64 "
      "rope_theta: 500000 amplitude: 1.25 } } positions { start: 3 } rows: 5 "
      "layout: TABLE_LAYOUT_DUPLICATED dtype: DTYPE_BFLOAT16",
      InferRequest("build_table", {{"rope.spec.pairing", Parameter(kHalfSplit)},
                                   {"rope.spec.rotary_dim", Parameter("64")},
                                   {"rope.spec.rope_theta", Parameter(500000)},
                                   {"rope.spec.amplitude", Parameter("1.25")},
                                   {"positions", Parameter(R"({"start": 3})")},
                                   {"rows", Unsigned(5)},
                                   {"layout", Parameter("duplicated")},
                                   {"dtype", Parameter("bfloat16")}}),
      {}, {"cos", "sin"});
  EXPECT_EQ(response.parameters().at("amplitude").double_param(), 1.25);
}

TEST_F(ModelsTest, BuildEncodingGivesTablesOfOneTensor) {
  ExpectAsByRpc(
      &Stub::BuildTable,
      "absolute { sinusoidal { dim: 16 order: SINUSOIDAL_ORDER_SIN_COS } } "
      "positions { start: 0 } rows: 9",
      InferRequest("build_encoding",
                   {{"absolute.sinusoidal.dim", Parameter(16)},
                    {"absolute.sinusoidal.order", Parameter("sin_cos")},
                    {"positions.start", Parameter(0)},
                    {"rows", Parameter(9)}}),
      {}, {"table"});
  ExpectAsByRpc(
      &Stub::BuildTable,
      "rope { preset: 'llama-3.1-8b' } positions { start: 0 } rows: 2 "
      "layout: TABLE_LAYOUT_COMPLEX",
      InferRequest("build_encoding",
                   {{"rope.preset", Parameter("llama-3.1-8b")},
                    {"positions.start", Parameter(0)},
                    {"rows", Parameter(2)},
                    {"layout", Parameter("complex")}}),
      {}, {"table"});
}

TEST_F(ModelsTest, AddEncodingTakesATableThatIsNotListed) {
  ExpectAsByRpc(
      &Stub::AddEncoding, "positions { start: 1 } x_scale: 2",
      InferRequest("add_encoding", {{"positions.start", Parameter(1)},
                                    {"x_scale", Parameter(2.0)}}),
      {{"x", SomeTensor(v1::DTYPE_FLOAT64, {2, 5, 8})},
       {"encoding.learned.table", SomeTensor(v1::DTYPE_FLOAT32, {6, 8})}},
      {"x"});
}

TEST_F(ModelsTest, ScoreRelativeTakesItsKeyTableAsAnInput) {
  ExpectAsByRpc(
      &Stub::ScoreRelative, "", InferRequest("score_relative", {}),
      {{"q", SomeTensor(v1::DTYPE_FLOAT32, {1, 2, 3, 16})},
       {"k", SomeTensor(v1::DTYPE_FLOAT32, {1, 2, 4, 16})},
       {"score.shaw.key_table", SomeTensor(v1::DTYPE_FLOAT32, {5, 16})}},
      {"scores"});
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
  const Response response = ExpectAsByRpc(
      &Stub::BuildPositions,
      "multimodal { spans { text_tokens: 3 } spans { vision { time: 1 "
      "height: 4 width: 6 spatial_merge_size: 2 } } }",
      InferRequest("build_positions",
                   {{"multimodal", Parameter(R"({"spans": [{"text_tokens": 3},
                     {"vision": {"time": 1, "height": 4, "width": 6,
                                 "spatial_merge_size": 2}}]})")}}),
      {}, {"positions"});
  // The image has 2 x 3 tokens, and the greatest position is 3 + 2.
  EXPECT_EQ(response.parameters().at("next_position").int64_param(), 6);
  EXPECT_EQ(response.parameters().at("delta").int64_param(), 6 - 9);

  ExpectAsByRpc(&Stub::BuildPositions, "packed { lengths: 2 lengths: 3 }",
                InferRequest("build_positions",
                             {{"packed.lengths", Parameter("[2, 3]")}}),
                {}, {"positions"});
}

TEST_F(ModelsTest, ConvertPairingReordersAWeight) {
  ExpectAsByRpc(
      &Stub::ConvertPairing,
      "old_pairing: PAIRING_INTERLEAVED new_pairing: PAIRING_HALF_SPLIT "
      "heads: 2",
      InferRequest("convert_pairing",
                   {{"old_pairing", Parameter("interleaved")},
                    {"new_pairing", Parameter(kHalfSplit)},
                    {"heads", Parameter(2)}}),
      {{"weight", SomeTensor(v1::DTYPE_BFLOAT16, {16, 10})}}, {"weight"});
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
  Request request = LlamaRotation({{"positions.start", Parameter(5)}});
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
  Request request = LlamaRotation({{"positions.start", Parameter(0)}});
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
    const v1::Tensor q = SomeTensor(v1::DTYPE_FLOAT32, {1, length, 3, 128}),
                     k = SomeTensor(v1::DTYPE_FLOAT64, {1, length, 1, 128});
    std::vector<std::int64_t> positions(length);
    for (std::int64_t i = 0; i < length; ++i) positions[i] = 5 * i % 17;
    Request request = LlamaRotation({});
    AddInput("q", q, &request);
    AddInput("k", k, &request);
    AddInput("positions", "INT64", {length}, BytesOf(positions), &request);
    const Response raw = MustInfer(request);
    request.clear_raw_input_contents();
    for (const float x : Elements<float>(q)) {
      request.mutable_inputs(0)->mutable_contents()->add_fp32_contents(x);
    }
    for (const double x : Elements<double>(k)) {
      request.mutable_inputs(1)->mutable_contents()->add_fp64_contents(x);
    }
    for (const std::int64_t x : positions) {
      request.mutable_inputs(2)->mutable_contents()->add_int64_contents(x);
    }
    EXPECT_TRUE(MustInfer(request).SerializeAsString() ==
                raw.SerializeAsString());
  }
  ExpectNothingInFlight();
}

// A writer that does not sort fields sends such messages.
TEST_F(ModelsTest, BytesMayComeBeforeTheirInputs) {
  Request request = LlamaRotation({{"positions.start", Parameter(5)}});
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
  // The length of the model's name has padding; only the generated parser
  // reads such a length.
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
