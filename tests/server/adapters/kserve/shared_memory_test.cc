// Regions of KServe's clients: their registration, and inputs and outputs in
// them, with the same bits as by wire.

#include "tests/fixtures/shared_memory.h"

#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "tests/fixtures/kserve.h"

namespace posenc::server {
namespace {

using test::SharedMemoryFile;
using testing::HasSubstr;

constexpr auto kInvalid = grpc::StatusCode::INVALID_ARGUMENT;
constexpr auto kNotFound = grpc::StatusCode::NOT_FOUND;
constexpr auto kExhausted = grpc::StatusCode::RESOURCE_EXHAUSTED;

class KserveSharedMemoryTest : public KserveTest {
 protected:
  void SetUp() override {
    Start({.listen = {"unix:/tmp/posenc_kserve_" + std::to_string(getpid()) +
                          ".sock",
                      "127.0.0.1:0"},
           .shared_memory = {.prefix = test::kSharedDirectory +
                                       test::SharedPrefix()}});
  }

  grpc::Status Register(const std::string& name, const std::string& key,
                        std::uint64_t offset, std::uint64_t bytes) {
    inference::SystemSharedMemoryRegisterRequest request;
    request.set_name(name);
    request.set_key(key);
    request.set_offset(offset);
    request.set_byte_size(bytes);
    return Raw("SystemSharedMemoryRegister", request);
  }
  void Unregister(const std::string& name) {
    inference::SystemSharedMemoryUnregisterRequest request;
    request.set_name(name);
    Ask<inference::SystemSharedMemoryUnregisterResponse>(
        "SystemSharedMemoryUnregister", request);
  }
  grpc::Status Raw(const std::string& name,
                   const google::protobuf::Message& request) {
    std::string bytes;
    return RawUnary(channel_, "/inference.GRPCInferenceService/" + name,
                    request.SerializeAsString(), &bytes);
  }

  static Request Rotation() {
    return LlamaRotation({{"positions.start", Parameter(7)}});
  }

  template <typename Tensor>
  static void Place(Tensor* tensor, const std::string& region, int bytes,
                    int offset = 0) {
    auto& parameters = *tensor->mutable_parameters();
    parameters["shared_memory_region"] = Parameter(region);
    parameters["shared_memory_byte_size"] = Parameter(bytes);
    if (offset != 0) parameters["shared_memory_offset"] = Parameter(offset);
  }

  static void AddPlacedOutput(const std::string& name,
                              const std::string& region, int bytes, int offset,
                              Request* request) {
    auto* const output = request->add_outputs();
    output->set_name(name);
    Place(output, region, bytes, offset);
  }

  // An input without bytes.
  static Request::InferInputTensor* AddPlaced(const std::string& name,
                                              const v1::Tensor& tensor,
                                              Request* request) {
    auto* const input = request->add_inputs();
    input->set_name(name);
    input->set_datatype(DatatypeOf(tensor.dtype()));
    *input->mutable_shape() = tensor.shape();
    return input;
  }

  static void ExpectPlaced(const Response& response, int place,
                           const std::string& region, int bytes, int offset) {
    const auto& parameters = response.outputs(place).parameters();
    EXPECT_EQ(parameters.at("shared_memory_region").string_param(), region);
    EXPECT_EQ(parameters.at("shared_memory_byte_size").int64_param(), bytes);
    EXPECT_EQ(parameters.contains("shared_memory_offset"), offset != 0);
    if (offset != 0) {
      EXPECT_EQ(parameters.at("shared_memory_offset").int64_param(), offset);
    }
    EXPECT_EQ(response.raw_output_contents(place), "");
  }
};

TEST_F(KserveSharedMemoryTest, TensorsInRegionsAreRotatedAsByWire) {
  const v1::Tensor q = SomeTensor(v1::DTYPE_FLOAT32, {1, 4, 2, 128}),
                   k = SomeTensor(v1::DTYPE_BFLOAT16, {1, 4, 1, 128});
  Request request = Rotation();
  AddInput("q", q, &request);
  AddInput("k", k, &request);
  Response wire;
  ASSERT_TRUE(Infer(request, &wire).ok());

  SharedMemoryFile in(8192), out(8192);
  in.Write(64, q.data());
  ASSERT_TRUE(Register("in", "/" + in.name(), 64, 8192 - 64).ok());
  ASSERT_TRUE(Register("out", out.name(), 0, 8192).ok());
  request = Rotation();
  Place(AddPlaced("q", q, &request), "in", 4096);
  AddInput("k", k, &request);                        // mixed with raw bytes
  AddPlacedOutput("k", "out", 5000, 100, &request);  // more than it needs
  request.add_outputs()->set_name("q");
  Response response;
  const grpc::Status status = Infer(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(response.outputs_size(), 2);
  ExpectPlaced(response, 0, "out", 1024, 100);
  EXPECT_EQ(response.outputs(0).datatype(), "BF16");
  EXPECT_EQ(out.Read(100, 1024), wire.raw_output_contents(1));
  EXPECT_EQ(response.raw_output_contents(1), wire.raw_output_contents(0));
  EXPECT_EQ(in.Read(64, 4096), q.data());

  // The output is in the input's place.
  request = Rotation();
  Place(AddPlaced("q", q, &request), "in", 4096);
  AddPlacedOutput("q", "in", 4096, 0, &request);
  ASSERT_TRUE(Infer(request, &response).ok());
  ExpectPlaced(response, 0, "in", 4096, 0);
  EXPECT_EQ(in.Read(64, 4096), wire.raw_output_contents(0));
  ExpectNothingInFlight();
}

TEST_F(KserveSharedMemoryTest, SmallInputsAndOtherModelsUseRegions) {
  SharedMemoryFile file(1 << 16);
  ASSERT_TRUE(Register("r", file.name(), 0, 1 << 16).ok());
  const std::vector<std::int64_t> ids = {3, 1, 4};
  file.Write(0, BytesOf(ids));
  Request request =
      InferRequest("build_table", {{"rope.preset", Parameter("llama-3.1-8b")}});
  AddInput("positions", "INT64", {3}, BytesOf(ids), &request);
  Response wire, response;
  ASSERT_TRUE(Infer(request, &wire).ok());
  request.clear_raw_input_contents();
  Place(request.mutable_inputs(0), "r", 24);
  AddPlacedOutput("cos", "r", 4096, 4096, &request);
  AddPlacedOutput("sin", "r", 4096, 8192, &request);
  const grpc::Status status = Infer(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  const std::size_t bytes = wire.raw_output_contents(0).size();
  EXPECT_EQ(file.Read(4096, bytes), wire.raw_output_contents(0));
  EXPECT_EQ(file.Read(8192, bytes), wire.raw_output_contents(1));
}

// KServe's own client sets contents in every input.
TEST_F(KserveSharedMemoryTest, AnInputInARegionMayHaveContentsWithoutElements) {
  const v1::Tensor q = SomeTensor(v1::DTYPE_FLOAT32, {1, 4, 2, 128}),
                   k = SomeTensor(v1::DTYPE_FLOAT32, {1, 4, 1, 128});
  Request request = Rotation();
  AddInput("q", q, &request);
  AddInput("k", k, &request);
  Response wire, response;
  ASSERT_TRUE(Infer(request, &wire).ok());
  SharedMemoryFile file(4096);
  file.Write(0, q.data());
  ASSERT_TRUE(Register("r", file.name(), 0, 4096).ok());
  request = Rotation();
  Place(AddPlaced("q", q, &request), "r", 4096);
  request.mutable_inputs(0)->mutable_contents();
  AddInput("k", k, &request);
  grpc::Status status = Infer(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.raw_output_contents(0), wire.raw_output_contents(0));
  EXPECT_EQ(response.raw_output_contents(1), wire.raw_output_contents(1));
  request.mutable_inputs(0)->mutable_contents()->add_fp32_contents(0);
  request.clear_raw_input_contents();
  request.mutable_inputs()->RemoveLast();
  status = Infer(request, &response);
  EXPECT_EQ(status.error_code(), kInvalid);
  EXPECT_THAT(status.error_message(), HasSubstr("inputs.q.contents: beside"));
}

// Outputs in a region are not part of the message.
TEST_F(KserveSharedMemoryTest, OutputsInRegionsMayBeLargerThanAnyResponse) {
  ServerOptions options;
  options.listen = {"unix:/tmp/posenc_kserve_" + std::to_string(getpid()) +
                    ".small"};
  options.limits.max_response_bytes = 4096;
  options.shared_memory.prefix = test::kSharedDirectory + test::SharedPrefix();
  Request table =
      InferRequest("build_table", {{"rope.preset", Parameter("llama-3.1-8b")},
                                   {"positions.start", Parameter(3)},
                                   {"rows", Parameter(1000)}});
  Request bias = InferRequest("build_bias", {{"bias.alibi.heads", Parameter(8)},
                                             {"query_length", Parameter(64)},
                                             {"key_length", Parameter(64)}});
  Response table_wire, bias_wire, response;
  ASSERT_TRUE(Infer(table, &table_wire).ok());
  ASSERT_TRUE(Infer(bias, &bias_wire).ok());
  Start(options);
  EXPECT_EQ(Infer(table, &response).error_code(), kExhausted);
  EXPECT_EQ(Infer(bias, &response).error_code(), kExhausted);

  SharedMemoryFile file(1 << 20);
  ASSERT_TRUE(Register("r", file.name(), 0, 1 << 20).ok());
  const std::string& cos = table_wire.raw_output_contents(0);
  const int bytes = static_cast<int>(cos.size());
  AddPlacedOutput("cos", "r", bytes, 0, &table);
  AddPlacedOutput("sin", "r", bytes, bytes, &table);
  grpc::Status status = Infer(table, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(file.Read(0, cos.size()), cos);
  EXPECT_EQ(file.Read(cos.size(), cos.size()),
            table_wire.raw_output_contents(1));

  const std::string& whole = bias_wire.raw_output_contents(0);
  AddPlacedOutput("bias", "r", static_cast<int>(whole.size()), 64, &bias);
  status = Infer(bias, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(file.Read(64, whole.size()), whole);

  // An output in the message still counts for the message's limit.
  table.mutable_outputs(1)->clear_parameters();
  EXPECT_EQ(Infer(table, &response).error_code(), kExhausted);
  // No region is as large as this.
  (*table.mutable_parameters())["rows"] = Parameter(1 << 30);
  EXPECT_EQ(Infer(table, &response).error_code(), kExhausted);
}

TEST_F(KserveSharedMemoryTest, RegistersUnregistersAndTells) {
  SharedMemoryFile file(100);
  EXPECT_TRUE(Register("a", "/" + file.name(), 10, 90).ok());
  EXPECT_TRUE(Register("b", file.name(), 0, 1).ok());
  EXPECT_EQ(Register("a", file.name(), 0, 1).error_code(),
            grpc::StatusCode::ALREADY_EXISTS);
  inference::SystemSharedMemoryStatusRequest about;
  auto all = Ask<inference::SystemSharedMemoryStatusResponse>(
      "SystemSharedMemoryStatus", about);
  ASSERT_EQ(all.regions_size(), 2);
  EXPECT_EQ(all.regions().at("a").key(), "/" + file.name());
  EXPECT_EQ(all.regions().at("a").offset(), 10u);
  EXPECT_EQ(all.regions().at("a").byte_size(), 90u);
  about.set_name("c");
  EXPECT_EQ(Raw("SystemSharedMemoryStatus", about).error_code(), kNotFound);
  Unregister("c");
  Unregister("a");
  about.set_name("a");
  EXPECT_EQ(Raw("SystemSharedMemoryStatus", about).error_code(), kNotFound);
  Unregister("");
  about.set_name("");
  EXPECT_EQ(Ask<inference::SystemSharedMemoryStatusResponse>(
                "SystemSharedMemoryStatus", about)
                .regions_size(),
            0);
}

TEST_F(KserveSharedMemoryTest, RefusesRegistrationsThatAreWrong) {
  SharedMemoryFile file(100);
  constexpr std::uint64_t kMost = ~std::uint64_t{0};
  struct Case {
    std::string name, key;
    std::uint64_t offset, bytes;
    grpc::StatusCode code;
    const char* says;
  };
  for (const Case& each : std::vector<Case>{
           {"", file.name(), 0, 1, kInvalid, "name: "},
           {std::string(256, 'x'), file.name(), 0, 1, kInvalid, "name: "},
           {"r", "", 0, 1, kInvalid, "key: "},
           {"r", "/", 0, 1, kInvalid, "key: "},
           {"r", "//" + file.name(), 0, 1, kInvalid, "key: "},
           {"r", "../" + file.name(), 0, 1, kInvalid, "key: "},
           {"r", "/nothing", 0, 1, kNotFound, "key: "},
           {"r", test::SharedPrefix(), 0, 1, kNotFound, "key: "},
           {"r", file.name(), 0, 0, kInvalid, "byte_size: "},
           {"r", file.name(), 0, 101, kInvalid, "byte_size: "},
           {"r", file.name(), 100, 1, kInvalid, "byte_size: "},
           {"r", file.name(), kMost, 1, kInvalid, "byte_size: "},
           {"r", file.name(), 1, kMost, kInvalid, "byte_size: "},
           {"r", file.name(), kMost, kMost, kInvalid, "byte_size: "}}) {
    const grpc::Status status =
        Register(each.name, each.key, each.offset, each.bytes);
    EXPECT_EQ(status.error_code(), each.code) << status.error_message();
    EXPECT_THAT(status.error_message(), testing::StartsWith(each.says));
  }
  for (int i = 0; i < 1024; ++i) {
    ASSERT_TRUE(Register(std::to_string(i), file.name(), 0, 1).ok());
  }
  EXPECT_EQ(Register("more", file.name(), 0, 1).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(KserveSharedMemoryTest, RefusesUsesThatAreWrong) {
  SharedMemoryFile file(4096);
  const v1::Tensor k = SomeTensor(v1::DTYPE_FLOAT32, {1, 2, 1, 128});
  file.Write(0, k.data());
  ASSERT_TRUE(Register("r", file.name(), 0, 4096).ok());
  Request good = Rotation();
  Place(AddPlaced("k", k, &good), "r", 1024);
  good.add_outputs()->set_name("k");
  Place(good.mutable_outputs(0), "r", 1024, 1024);
  constexpr char kRegion[] = "shared_memory_region";
  constexpr char kBytes[] = "shared_memory_byte_size";
  constexpr char kOffset[] = "shared_memory_offset";
  const auto in = [](const char* name, const auto& value) {
    return [=](Request* r) {
      (*r->mutable_inputs(0)->mutable_parameters())[name] = value;
    };
  };
  const auto out = [](const char* name, const auto& value) {
    return [=](Request* r) {
      (*r->mutable_outputs(0)->mutable_parameters())[name] = value;
    };
  };
  ExpectEachRefused(
      good,
      {
          {in(kRegion, Parameter("none")),
           "inputs.k.parameters.shared_memory_region: no such region",
           kNotFound},
          {out(kRegion, Parameter("none")),
           "outputs.k.parameters.shared_memory_region: no such region",
           kNotFound},
          {in(kRegion, Parameter(1)), "must be string_param"},
          {in(kBytes, Parameter("1024")), "must be int64_param"},
          {in(kBytes, Parameter(-1)), "negative"},
          {in(kBytes, Parameter(1023)),
           "inputs.k.parameters.shared_memory_byte_size: is 1023"},
          {out(kBytes, Parameter(1023)),
           "outputs.k.parameters.shared_memory_byte_size: is 1023"},
          {in(kOffset, Parameter(3073)), "not within the region's 4096"},
          {in(kOffset, Unsigned(~std::uint64_t{0})),
           "not within the region's 4096"},
          {[&](Request* r) {
             r->mutable_inputs(0)->mutable_parameters()->erase(kBytes);
           },
           "shared_memory_byte_size: not given"},
          {[&](Request* r) {
             r->mutable_outputs(0)->mutable_parameters()->erase(kRegion);
           },
           "shared_memory_region: not given"},
          {[](Request* r) { r->add_raw_input_contents("x"); },
           "raw_input_contents: 1 of them for 0 inputs"},
          {[](Request* r) {
             r->mutable_inputs(0)->mutable_contents()->add_fp32_contents(1);
           },
           "beside a region"},
          {out(kOffset, Parameter(1000)), "overlaps k.shared"},
          {"k_output.name", Parameter("x"),
           "parameters.k_output: names a place"},
          {[](Request* r) {
             r->mutable_parameters()->erase("positions.start");
             (*r->mutable_parameters())["positions"] = Parameter(
                 R"({"ids": {"dtype": "DTYPE_INT64", "shape": [2], "shared":
                 {"name": "../x"}}})");
           },
           "positions.ids.shared.name"},
      });
  // The server checks the file again at each use.
  Response response;
  ASSERT_EQ(ftruncate(file.fd(), 100), 0);
  EXPECT_EQ(Infer(good, &response).error_code(), kInvalid);
  ASSERT_EQ(unlink(file.path().c_str()), 0);
  EXPECT_EQ(Infer(good, &response).error_code(), kNotFound);
}

TEST_F(KserveSharedMemoryTest, CallersOverTcpMayNot) {
  channel_ = Connect(server_->addresses()[1]);
  SharedMemoryFile file(4096);
  EXPECT_EQ(Register("r", file.name(), 0, 1).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(Raw("SystemSharedMemoryStatus",
                inference::SystemSharedMemoryStatusRequest())
                .error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(Raw("SystemSharedMemoryUnregister",
                inference::SystemSharedMemoryUnregisterRequest())
                .error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
  Request request = Rotation();
  const v1::Tensor k = SomeTensor(v1::DTYPE_FLOAT32, {1, 2, 1, 128});
  Place(AddPlaced("k", k, &request), "r", 1024);
  Response response;
  EXPECT_EQ(Infer(request, &response).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
}

TEST_F(KserveSharedMemoryTest, ServerMetadataTellsOfIt) {
  const auto metadata = Ask<inference::ServerMetadataResponse>(
      "ServerMetadata", inference::ServerMetadataRequest());
  EXPECT_THAT(metadata.extensions(), testing::Contains("system_shared_memory"));
}

}  // namespace
}  // namespace posenc::server
