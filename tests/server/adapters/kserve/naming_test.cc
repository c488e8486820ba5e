// Errors of requests in KServe's protocol, and their texts.

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "tests/fixtures/kserve.h"

namespace posenc::server {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr auto kInvalid = grpc::StatusCode::INVALID_ARGUMENT;
constexpr auto kNotFound = grpc::StatusCode::NOT_FOUND;
constexpr auto kUnimplemented = grpc::StatusCode::UNIMPLEMENTED;

std::string Times(int count, const std::string& text) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

class NamingTest : public KserveTest {
 protected:
  // A good request: k, at positions from 0 on.
  static Request Good() {
    Request request = LlamaRotation({{"positions.start", Parameter(0)}});
    AddInput("k", SomeTensor(v1::DTYPE_FLOAT32, {1, 2, 1, 128}), &request);
    return request;
  }
  grpc::Status Refused(const Request& request) {
    Response response;
    return Infer(request, &response);
  }
};

TEST_F(NamingTest, EachBadParameterIsNamed) {
  ExpectEachRefused(
      Good(),
      {
          {"layuot", Parameter("bshd"),
           "parameters.layuot: the request has no such field"},
          {"", Parameter("bshd"), "the request has no such field"},
          {".", Parameter("bshd"), "the request has no such field"},
          {"rope.", Parameter("bshd"), "the request has no such field"},
          {"positions.starts.values.0", Parameter(1), "beside start"},
          {"query_scale.beta.0", Parameter(1),
           "parameters.query_scale.beta.0: the request has no such field"},
          {"layout.bshd", Parameter(1), "the request has no such field"},
          {"a.b.c.d.e.f.g.h.i.j", Parameter(1),
           "the request has no such field"},
          {"q", Parameter("x"),
           "parameters.q: is a tensor; give it as an input"},
          {"q.dtype", Parameter("float32"), "is part of a tensor"},
          // Parameters of a wrong kind or value.
          {"direction", Parameter(1),
           "parameters.direction: is int64_param; must be string_param"},
          {"direction", Parameter("backwards"), "'backwards' is no Direction"},
          {"direction", Parameter("Inverse"), "'Inverse' is no Direction"},
          {"rope.layer_index", Parameter(1.0),
           "is double_param; must be int64_param or uint64_param"},
          {"rope.layer_index", Parameter(true), "is bool_param"},
          {"rope.layer_index", Parameter("one"),
           "'one'; must be a whole number"},
          {"rope.layer_index", Parameter(" 1"), "must be a whole number"},
          {"rope.layer_index", Parameter(""), "must be a whole number"},
          {"rope.layer_index", Unsigned(std::uint64_t{1} << 31),
           "does not fit 32 bits"},
          {"rope.sequence_length", Unsigned(std::uint64_t{1} << 63),
           "does not fit 64 bits"},
          {"rope.sequence_length", inference::InferParameter(), "is no value"},
          {"query_scale.beta", Parameter(false),
           "is bool_param; must be double_param"},
          {"query_scale.beta", Parameter("much"), "'much'; must be a number"},
          {"query_scale.beta", Unsigned((std::uint64_t{1} << 53) + 1),
           "has no exact double"},
          {"rope.layer_type", Parameter(3), "must be string_param"},
          // Messages as JSON.
          {"query_scale", Parameter(1), "must be string_param with its JSON"},
          {"query_scale", Parameter("{"), "is not JSON"},
          {"query_scale", Parameter("{'beta': 1}"), "is not JSON"},
          {"query_scale", Parameter("[1]"), "must be an object"},
          {"query_scale", Parameter("null"), "must be an object"},
          {"query_scale", Parameter(R"({"gamma": 1})"),
           "is not the JSON of QueryScale"},
          {"query_scale", Parameter(R"({"beta": 1, "beta": 2})"),
           "has the key 'beta' twice"},
          {"query_scale",
           Parameter(R"({"floor_scale": 1, "beta": 2, "floorScale": 1})"),
           "has the field 'floor_scale' twice, in two spellings"},
          {"query_scale", Parameter(R"({"beta": 1}, "layout": 2)"),
           "is not JSON"},
          {"query_scale",
           Parameter("{\"beta\":" + std::string(65, '[') +
                     std::string(65, ']') + "}"),
           "is nested deeper than 64"},
          {"query_scale",
           Parameter("{\"beta\": [" + Times(16384, "{},") + "{}]}"),
           "has over 16384 objects and arrays"},
          {"query_scale", Parameter(std::string(257 << 10, ' ')),
           "makes 263168 bytes of JSON; at most 262144"},
          // The field is given twice, in two ways.
          {"rope", Parameter(R"({"preset": "llama-3.1-8b"})"),
           "given twice, as rope"},
          {"rope.spec.rope_theta", Parameter(10000), "beside preset"},
          {"positions", Parameter(R"({"start": 1})"), "given twice"},
          {"positions.starts", Parameter(R"({"values": [1]})"), "beside start"},
          // Reserved names.
          {"timeout", Parameter("1"), "parameters.timeout: is string_param"},
          {"timeout", Parameter(-1), "parameters.timeout: -1"},
          {"priority", Parameter("high"),
           "parameters.priority: is string_param"},
          {"triton_enable_empty_final_response", Parameter(1),
           "is int64_param"},
          {"sequence_id", Parameter(7), "parameters.sequence_id: no sequences"},
          {"sequence_start", Parameter(true), "no sequences here"},
          {"triton_other", Parameter(1), "the request has no such field"},
          {"headers", Parameter("x"), "the request has no such field"},
      });
}

TEST_F(NamingTest, ParametersWithoutEffectOnNumbersAreAccepted) {
  Request request = Good();
  auto& parameters = *request.mutable_parameters();
  parameters["timeout"] = Parameter(60000000);
  parameters["priority"] = Unsigned(1);
  parameters["sequence_id"] = Parameter(0);
  parameters["sequence_end"] = Parameter(false);
  parameters["triton_enable_empty_final_response"] = Parameter(true);
  parameters["binary_data_output"] = Parameter(true);
  Response response;
  const grpc::Status status = Infer(request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.parameters_size(), 0);
}

TEST_F(NamingTest, ATimeoutThatHasPassedIsADeadline) {
  Request request = Good();
  (*request.mutable_parameters())["timeout"] = Unsigned(1);
  const grpc::Status status = Refused(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(status.error_message(), StartsWith("parameters.timeout"));
}

TEST_F(NamingTest, EachBadInputOrOutputIsNamed) {
  using R = inference::ModelInferRequest;
  const v1::Tensor k = SomeTensor(v1::DTYPE_FLOAT32, {1, 2, 1, 128});
  const auto datatype = [](const char* name) {
    return [name](R* r) { r->mutable_inputs(0)->set_datatype(name); };
  };
  const auto input = [](const char* name, const char* type, int extent) {
    return [=](R* r) {
      AddInput(name, type, {extent}, std::string(8 * extent, '\0'), r);
    };
  };
  const auto output = [](const char* name) {
    return [name](R* r) { r->add_outputs()->set_name(name); };
  };
  // One float as contents of the first input, instead of its bytes.
  const auto typed = [](const char* type) {
    return [type](R* r) {
      r->clear_raw_input_contents();
      r->mutable_inputs(0)->set_datatype(type);
      r->mutable_inputs(0)->mutable_contents()->add_fp32_contents(1);
    };
  };
  ExpectEachRefused(
      Good(),
      {
          {[](R* r) { r->set_model_name("rope"); }, "model_name: 'rope'",
           kNotFound},
          {[](R* r) { r->clear_model_name(); },
           "the models are apply_rope, reposition", kNotFound},
          {[](R* r) { r->set_model_version("2"); }, "model_version: '2'",
           kNotFound},
          {"rope.preset", Parameter("none"), "rope.preset", kNotFound},
          {input("v", "FP32", 1), "inputs.v: the model has no such input"},
          {input("layout", "FP32", 1), "inputs.layout: is no tensor"},
          {[&](R* r) { AddInput("k", k, r); }, "inputs.k: given twice"},
          {[&](R* r) {
             r->mutable_parameters()->erase("positions.start");
             input("positions", "INT64", 2)(r);
             input("positions.ids", "INT64", 2)(r);
           },
           "given twice"},
          {input("positions", "INT64", 2), "beside ids"},
          {datatype("UINT8"),
           "inputs.k.datatype: 'UINT8'; must be one of FP32"},
          {datatype(""), "inputs.k.datatype"},
          {datatype("FP8"), "inputs.k.datatype: 'FP8'"},
          {datatype("INT32"), "k.dtype: int32"},
          {[](R* r) { r->mutable_inputs(0)->set_shape(1, -2); }, "k.shape"},
          {[](R* r) { r->mutable_raw_input_contents(0)->pop_back(); },
           "k.data: 1023 bytes"},
          {[](R* r) { r->clear_raw_input_contents(); },
           "raw_input_contents: 0 of them for 1 inputs"},
          {[](R* r) { r->add_raw_input_contents("1"); },
           "raw_input_contents: 2 of them for 1 inputs"},
          {[](R* r) {
             r->mutable_inputs(0)->mutable_contents()->add_fp32_contents(1);
           },
           "raw_input_contents: beside contents of the input k"},
          {[&](R* r) {
             AddInput("q", k, r);
             typed("FP32")(r);
           },
           "raw_input_contents: the input q has no contents"},
          {[](R* r) {
             r->clear_raw_input_contents();
             r->mutable_inputs(0)->mutable_contents()->add_fp64_contents(1);
           },
           "inputs.k.contents: has fp64_contents"},
          {typed("BF16"), "BF16 has no typed form"},
          {typed("FP32"), "k.data: 4 bytes"},
          {[](R* r) {
             (*r->mutable_inputs(0)->mutable_parameters())["scale"] =
                 Parameter(1);
           },
           "inputs.k.parameters.scale: no such parameter"},
          {[](R* r) {
             (*r->mutable_inputs(0)
                   ->mutable_parameters())["shared_memory_region"] =
                 Parameter("r");
             r->clear_raw_input_contents();
           },
           "no shared memory", kUnimplemented},
          {output("v"), "outputs.v: the model has no such output"},
          {[&](R* r) {
             output("k")(r);
             output("k")(r);
           },
           "outputs.k: asked for twice"},
          {output("q"), "outputs.q: not computed by this request"},
          {[&](R* r) {
             output("k")(r);
             (*r->mutable_outputs(0)->mutable_parameters())["classification"] =
                 Parameter(3);
           },
           "outputs.k.parameters.classification"},
          {[](R* r) {
             for (int i = 0; i < 64; ++i) r->add_inputs();
           },
           "inputs: 65 of them; at most 64"},
          {[](R* r) {
             for (int i = 0; i < 1100; ++i) {
               (*r->mutable_parameters())[std::to_string(i)] = Parameter(i);
             }
           },
           "parameters: 1103 of them; at most 1024"},
          // A number outside the enum.
          {[](R* r) {
             r->mutable_parameters()->erase("rope.preset");
             (*r->mutable_parameters())["rope"] =
                 Parameter(R"({"spec": {"pairing": 99}})");
           },
           "rope.spec.pairing", kUnimplemented},
          // A fault that the check of the native request finds.
          {[](R* r) { r->mutable_parameters()->erase("layout"); }, "layout: "},
      });
  ExpectNothingInFlight();
}

TEST_F(NamingTest, EqualRequestsGetEqualErrors) {
  for (int i = 0; i < 20; ++i) {
    Request request = Good();
    auto* const output = request.add_outputs();
    output->set_name("k");
    for (const char* const name : {"d", "b", "a", "c"}) {
      (*output->mutable_parameters())[name] = Parameter(1);
    }
    ExpectRefused(request, kInvalid,
                  "outputs.k.parameters.a: no such parameter");
  }
}

TEST_F(NamingTest, ModelsRefuseInputsOfOtherModels) {
  const auto table = [](const char* model, const char* field,
                        inference::InferParameter value) {
    return InferRequest(model, {{field, std::move(value)},
                                {"positions.start", Parameter(0)},
                                {"rows", Parameter(2)}});
  };
  Request complex =
      table("build_table", "rope.preset", Parameter("llama-3.1-8b"));
  (*complex.mutable_parameters())["layout"] = Parameter("complex");
  for (const Request& request :
       {complex,
        table("build_table", "absolute.sinusoidal",
              Parameter(R"({"dim": 4, "order": "SINUSOIDAL_ORDER_SIN_COS"})")),
        table("build_encoding", "rope.preset", Parameter("llama-3.1-8b"))}) {
    ExpectRefused(request, kInvalid,
                  "outputs: this request computes no output");
  }
  ExpectRefused(InferRequest("build_bias", {{"bias.alibi.heads", Parameter(4)},
                                            {"query_length", Parameter(4)},
                                            {"key_length", Parameter(4)},
                                            {"key_tile", Parameter(2)}}),
                kInvalid, "key_tile: 2; the matrix comes as one tile");
  Request request = InferRequest("resolve_rope",
                                 {{"rope.preset", Parameter("llama-3.1-8b")}});
  request.add_outputs()->set_name("axis_of_pair");
  ExpectRefused(request, kInvalid, "outputs.axis_of_pair: not computed");
}

TEST_F(NamingTest, ErrorsHaveTheDetailsOfTheRpcs) {
  Request request = Good();
  (*request.mutable_parameters())["layuot"] = Parameter("bshd");
  const Details unknown = ReadDetails(Refused(request));
  EXPECT_EQ(unknown.reason, "ERROR_REASON_FIELD_INVALID");
  EXPECT_EQ(unknown.violated_field, "parameters.layuot");
  request = Good();
  request.mutable_raw_input_contents(0)->pop_back();
  const Details size = ReadDetails(Refused(request));
  EXPECT_EQ(size.reason, "ERROR_REASON_TENSOR_SIZE_MISMATCH");
  EXPECT_EQ(size.violated_field, "k.data");
}

TEST_F(NamingTest, MalformedMessagesAreRefused) {
  Response response;
  for (const std::string& bytes :
       {std::string("\xff\xff\xff\xff\xff\xff"), std::string("\x0A\x05"),
        std::string("\x0E"), std::string("\x00", 1)}) {
    EXPECT_EQ(InferBytes(bytes, &response).error_code(), kInvalid);
  }
  // Field 15, which the protocol does not have.
  EXPECT_EQ(InferBytes(Good().SerializeAsString() + "\x7a\x01x", &response)
                .error_code(),
            kUnimplemented);
  // A parameter that occurs twice in the message.
  Request again;
  (*again.mutable_parameters())["layout"] = Parameter("bhsd");
  const grpc::Status twice = InferBytes(
      Good().SerializeAsString() + again.SerializeAsString(), &response);
  EXPECT_EQ(twice.error_code(), kInvalid);
  EXPECT_THAT(twice.error_message(), HasSubstr("given twice"));
}

TEST_F(NamingTest, FieldsBesideTheTensorsAreBounded) {
  Request request = Good();
  (*request.mutable_parameters())["rope.layer_type"] =
      Parameter(std::string(17 << 20, 'x'));
  const grpc::Status status = Refused(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(ReadDetails(status).reason, "ERROR_REASON_MESSAGE_TOO_LARGE");
  // Ten million empty tensors, as two bytes each.
  std::string empty = request.model_name();
  empty.clear();
  for (int i = 0; i < 10'000'000; ++i) empty.append("\x3a\x00", 2);
  Response response;
  const grpc::Status many = InferBytes(empty, &response);
  EXPECT_EQ(many.error_code(), kInvalid);
  EXPECT_THAT(many.error_message(),
              HasSubstr("raw_input_contents: 10000000 of them; at most 64"));
}

}  // namespace
}  // namespace posenc::server
