// What is wrong with a request of KServe's protocol, and how it is told.

#include <functional>
#include <string>
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
    Request request =
        InferRequest("apply_rope", {{"rope.preset", Parameter("llama-3.1-8b")},
                                    {"positions.start", Parameter(0)},
                                    {"layout", Parameter("bshd")}});
    AddInput("k", SomeTensor(v1::DTYPE_FLOAT32, {1, 2, 1, 128}), &request);
    return request;
  }
  grpc::Status Refused(const Request& request) {
    Response response;
    return Infer(request, &response);
  }
  void ExpectRefused(const Request& request, grpc::StatusCode code,
                     const std::string& text) {
    const grpc::Status status = Refused(request);
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(text));
  }
};

struct BadParameter {
  const char* name;
  inference::InferParameter value;
  const char* text;  // what the error says
};

TEST_F(NamingTest, EachBadParameterIsNamed) {
  const std::vector<BadParameter> cases = {
      {"layuot", Parameter("bshd"),
       "parameters.layuot: the request has no such field"},
      {"", Parameter("bshd"), "the request has no such field"},
      {".", Parameter("bshd"), "the request has no such field"},
      {"rope.", Parameter("bshd"), "the request has no such field"},
      {"positions.starts.values.0", Parameter(1), "beside start"},
      {"query_scale.beta.0", Parameter(1),
       "parameters.query_scale.beta.0: the request has no such field"},
      {"layout.bshd", Parameter(1), "the request has no such field"},
      {"a.b.c.d.e.f.g.h.i.j", Parameter(1), "the request has no such field"},
      {"q", Parameter("x"), "parameters.q: is a tensor; give it as an input"},
      {"q.dtype", Parameter("float32"), "is part of a tensor"},
      // Kinds.
      {"direction", Parameter(1),
       "parameters.direction: is int64_param; must be string_param"},
      {"direction", Parameter("backwards"), "'backwards' is no Direction"},
      {"direction", Parameter("Inverse"), "'Inverse' is no Direction"},
      {"rope.layer_index", Parameter(1.0),
       "is double_param; must be int64_param or uint64_param"},
      {"rope.layer_index", Parameter(true), "is bool_param"},
      {"rope.layer_index", Parameter("one"), "'one'; must be a whole number"},
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
      // JSON.
      {"query_scale", Parameter(1), "must be string_param with its JSON"},
      {"query_scale", Parameter("{"), "is not JSON"},
      {"query_scale", Parameter("{'beta': 1}"), "is not JSON"},
      {"query_scale", Parameter("[1]"), "must be an object"},
      {"query_scale", Parameter("null"), "must be an object"},
      {"query_scale", Parameter(R"({"gamma": 1})"),
       "is not the JSON of QueryScale"},
      {"query_scale", Parameter(R"({"beta": 1, "beta": 2})"),
       "has the key 'beta' twice"},
      {"query_scale", Parameter(R"({"beta": 1}, "layout": 2)"), "is not JSON"},
      {"query_scale",
       Parameter("{\"beta\":" + std::string(65, '[') + std::string(65, ']') +
                 "}"),
       "is nested deeper than 64"},
      {"query_scale", Parameter("{\"beta\": [" + Times(16384, "{},") + "{}]}"),
       "has over 16384 objects and arrays"},
      // Twice, in two ways.
      {"rope", Parameter(R"({"preset": "llama-3.1-8b"})"),
       "given twice, as rope"},
      {"rope.spec.rope_theta", Parameter(10000), "beside preset"},
      {"positions", Parameter(R"({"start": 1})"), "given twice"},
      {"positions.starts", Parameter(R"({"values": [1]})"), "beside start"},
      // Reserved.
      {"timeout", Parameter("1"), "parameters.timeout: is string_param"},
      {"timeout", Parameter(-1), "parameters.timeout: -1"},
      {"priority", Parameter("high"), "parameters.priority: is string_param"},
      {"triton_enable_empty_final_response", Parameter(1), "is int64_param"},
      {"sequence_id", Parameter(7), "parameters.sequence_id: no sequences"},
      {"sequence_start", Parameter(true), "no sequences here"},
      {"triton_other", Parameter(1), "the request has no such field"},
      {"headers", Parameter("x"), "the request has no such field"},
  };
  for (const BadParameter& bad : cases) {
    SCOPED_TRACE(std::string(bad.name) + " = " + bad.value.ShortDebugString());
    Request request = Good();
    (*request.mutable_parameters())[bad.name] = bad.value;
    ExpectRefused(request, kInvalid, bad.text);
  }
}

TEST_F(NamingTest, ParametersThatSayNothingOfNumbersAreTaken) {
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

struct BadRequest {
  const char* what;
  std::function<void(inference::ModelInferRequest*)> change;
  grpc::StatusCode code;
  const char* text;
};

TEST_F(NamingTest, EachBadInputOrOutputIsNamed) {
  using R = inference::ModelInferRequest;
  const v1::Tensor k = SomeTensor(v1::DTYPE_FLOAT32, {1, 2, 1, 128});
  const std::vector<BadRequest> cases = {
      {"unknown model", [](R* r) { r->set_model_name("rope"); }, kNotFound,
       "model_name: 'rope'"},
      {"no model", [](R* r) { r->clear_model_name(); }, kNotFound,
       "the models are apply_rope, reposition"},
      {"version", [](R* r) { r->set_model_version("2"); }, kNotFound,
       "model_version: '2'"},
      {"unknown preset",
       [](R* r) {
         (*r->mutable_parameters())["rope.preset"] = Parameter("none");
       },
       kNotFound, "rope.preset"},
      {"unknown input", [](R* r) { AddInput("v", "FP32", {1}, "1234", r); },
       kInvalid, "inputs.v: the model has no such input"},
      {"parameter as input",
       [](R* r) { AddInput("layout", "FP32", {1}, "1234", r); }, kInvalid,
       "inputs.layout: is no tensor"},
      {"input twice", [&](R* r) { AddInput("k", k, r); }, kInvalid,
       "inputs.k: given twice"},
      {"two names of one input",
       [](R* r) {
         r->mutable_parameters()->erase("positions.start");
         AddInput("positions", "INT64", {2}, std::string(16, '\0'), r);
         AddInput("positions.ids", "INT64", {2}, std::string(16, '\0'), r);
       },
       kInvalid, "given twice"},
      {"positions both ways",
       [](R* r) {
         AddInput("positions", "INT64", {2}, std::string(16, '\0'), r);
       },
       kInvalid, "beside ids"},
      {"datatype", [](R* r) { r->mutable_inputs(0)->set_datatype("UINT8"); },
       kInvalid, "inputs.k.datatype: 'UINT8'; must be one of FP32"},
      {"no datatype", [](R* r) { r->mutable_inputs(0)->clear_datatype(); },
       kInvalid, "inputs.k.datatype"},
      {"a bare FP8", [](R* r) { r->mutable_inputs(0)->set_datatype("FP8"); },
       kInvalid, "inputs.k.datatype: 'FP8'"},
      {"integer keys",
       [](R* r) { r->mutable_inputs(0)->set_datatype("INT32"); }, kInvalid,
       "k.dtype: int32"},
      {"negative extent", [](R* r) { r->mutable_inputs(0)->set_shape(1, -2); },
       kInvalid, "k.shape"},
      {"too few bytes",
       [](R* r) { r->mutable_raw_input_contents(0)->pop_back(); }, kInvalid,
       "k.data: 1023 bytes"},
      {"no bytes", [](R* r) { r->clear_raw_input_contents(); }, kInvalid,
       "raw_input_contents: 0 of them for 1 inputs"},
      {"bytes of nothing", [](R* r) { r->add_raw_input_contents("1"); },
       kInvalid, "raw_input_contents: 2 of them for 1 inputs"},
      {"contents beside bytes",
       [](R* r) {
         r->mutable_inputs(0)->mutable_contents()->add_fp32_contents(1);
       },
       kInvalid, "raw_input_contents: beside contents of the input k"},
      {"contents of one of two",
       [&](R* r) {
         AddInput("q", k, r);
         r->clear_raw_input_contents();
         r->mutable_inputs(0)->mutable_contents()->add_fp32_contents(1);
       },
       kInvalid, "raw_input_contents: the input q has no contents"},
      {"contents of another type",
       [](R* r) {
         r->clear_raw_input_contents();
         r->mutable_inputs(0)->mutable_contents()->add_fp64_contents(1);
       },
       kInvalid, "inputs.k.contents: has fp64_contents"},
      {"typed halves",
       [](R* r) {
         r->clear_raw_input_contents();
         r->mutable_inputs(0)->set_datatype("BF16");
         r->mutable_inputs(0)->mutable_contents()->add_fp32_contents(1);
       },
       kInvalid, "BF16 has no typed form"},
      {"too few typed",
       [](R* r) {
         r->clear_raw_input_contents();
         r->mutable_inputs(0)->mutable_contents()->add_fp32_contents(1);
       },
       kInvalid, "k.data: 4 bytes"},
      {"parameter of an input",
       [](R* r) {
         (*r->mutable_inputs(0)->mutable_parameters())["scale"] = Parameter(1);
       },
       kInvalid, "inputs.k.parameters.scale: no such parameter"},
      {"shared memory",
       [](R* r) {
         (*r->mutable_inputs(0)->mutable_parameters())["shared_memory_region"] =
             Parameter("r");
         r->clear_raw_input_contents();
       },
       kUnimplemented, "no shared memory"},
      {"unknown output", [](R* r) { r->add_outputs()->set_name("v"); },
       kInvalid, "outputs.v: the model has no such output"},
      {"output twice",
       [](R* r) {
         r->add_outputs()->set_name("k");
         r->add_outputs()->set_name("k");
       },
       kInvalid, "outputs.k: asked for twice"},
      {"output of what is not sent",
       [](R* r) { r->add_outputs()->set_name("q"); }, kInvalid,
       "outputs.q: not computed by this request"},
      {"classification",
       [](R* r) {
         auto* const output = r->add_outputs();
         output->set_name("k");
         (*output->mutable_parameters())["classification"] = Parameter(3);
       },
       kInvalid, "outputs.k.parameters.classification"},
      {"too many inputs",
       [](R* r) {
         for (int i = 0; i < 64; ++i) r->add_inputs();
       },
       kInvalid, "inputs: 65 of them; at most 64"},
      {"too many parameters",
       [](R* r) {
         for (int i = 0; i < 1100; ++i) {
           (*r->mutable_parameters())[std::to_string(i)] = Parameter(i);
         }
       },
       kInvalid, "parameters: 1103 of them; at most 1024"},
      {"a number that no enum has",
       [](R* r) {
         r->mutable_parameters()->erase("rope.preset");
         (*r->mutable_parameters())["rope"] =
             Parameter(R"({"spec": {"pairing": 99}})");
       },
       kUnimplemented, "rope.spec.pairing"},
      {"the native check",
       [](R* r) { r->mutable_parameters()->erase("layout"); }, kInvalid,
       "layout: "},
  };
  for (const BadRequest& bad : cases) {
    SCOPED_TRACE(bad.what);
    Request request = Good();
    bad.change(&request);
    ExpectRefused(request, bad.code, bad.text);
  }
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

TEST_F(NamingTest, ModelsRefuseWhatOthersAreFor) {
  ExpectRefused(
      InferRequest("build_table", {{"rope.preset", Parameter("llama-3.1-8b")},
                                   {"positions.start", Parameter(0)},
                                   {"rows", Parameter(2)},
                                   {"layout", Parameter("complex")}}),
      kInvalid, "the model build_encoding");
  ExpectRefused(
      InferRequest("build_table", {{"absolute.sinusoidal.dim", Parameter(4)}}),
      kInvalid, "absolute: not here");
  ExpectRefused(InferRequest("build_encoding",
                             {{"rope.preset", Parameter("llama-3.1-8b")}}),
                kInvalid, "the model build_table");
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

TEST_F(NamingTest, MessagesThatAreNoneAreRefused) {
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
  // A parameter that is in the message twice.
  Request again;
  (*again.mutable_parameters())["layout"] = Parameter("bhsd");
  const grpc::Status twice = InferBytes(
      Good().SerializeAsString() + again.SerializeAsString(), &response);
  EXPECT_EQ(twice.error_code(), kInvalid);
  EXPECT_THAT(twice.error_message(), HasSubstr("given twice"));
}

TEST_F(NamingTest, WhatIsBesideTheTensorsIsBounded) {
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
