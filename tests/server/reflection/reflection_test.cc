// Reflection, for tools without the contract's files.

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"
#include "google/protobuf/dynamic_message.h"
#include "grpc/reflection/v1/reflection.pb.h"
#include "tests/fixtures/eventually.h"
#include "tests/fixtures/server.h"

namespace posenc::server {
namespace {

using grpc::reflection::v1::ServerReflectionRequest;
using grpc::reflection::v1::ServerReflectionResponse;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

constexpr char kV1[] =
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
constexpr char kV1Alpha[] =
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";

class ReflectionTest : public ServerTest {
 protected:
  ServerReflectionResponse Ask(const ServerReflectionRequest& request,
                               const char* method = kV1) {
    std::string bytes;
    ServerReflectionResponse response;
    const grpc::Status status =
        RawUnary(channel_, method, request.SerializeAsString(), &bytes);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_TRUE(response.ParseFromString(bytes));
    EXPECT_EQ(response.original_request().SerializeAsString(),
              request.SerializeAsString());
    return response;
  }
  ServerReflectionResponse AskSymbol(const std::string& symbol) {
    ServerReflectionRequest request;
    request.set_file_containing_symbol(symbol);
    return Ask(request);
  }

  static std::vector<google::protobuf::FileDescriptorProto> FilesOf(
      const ServerReflectionResponse& response) {
    std::vector<google::protobuf::FileDescriptorProto> files;
    for (const std::string& bytes :
         response.file_descriptor_response().file_descriptor_proto()) {
      EXPECT_TRUE(files.emplace_back().ParseFromString(bytes));
    }
    return files;
  }

  // Returns descriptors that come only from the server's answer for this
  // symbol.
  const google::protobuf::DescriptorPool& Learn(const std::string& symbol) {
    pools_.push_back(std::make_unique<google::protobuf::DescriptorPool>());
    for (const auto& file : FilesOf(AskSymbol(symbol))) {
      EXPECT_NE(pools_.back()->BuildFile(file), nullptr) << file.name();
    }
    return *pools_.back();
  }

 private:
  std::vector<std::unique_ptr<google::protobuf::DescriptorPool>> pools_;
};

TEST_F(ReflectionTest, EveryListedServiceHasItsImports) {
  for (const char* const method : {kV1, kV1Alpha}) {
    ServerReflectionRequest request;
    request.set_list_services("*");
    const ServerReflectionResponse response = Ask(request, method);
    std::vector<std::string> names;
    for (const auto& service : response.list_services_response().service()) {
      names.push_back(service.name());
    }
    EXPECT_THAT(names, UnorderedElementsAre(
                           "posenc.v1.PositionalEncodingService",
                           "grpc.health.v1.Health",
                           "grpc.reflection.v1.ServerReflection",
                           "grpc.reflection.v1alpha.ServerReflection"));
    for (const std::string& name : names) {
      EXPECT_NE(Learn(name).FindServiceByName(name), nullptr) << name;
    }
  }
}

TEST_F(ReflectionTest, FieldsHaveTheNamesThatJsonGivesThem) {
  int named = 0, fields = 0;
  for (const auto& file : FilesOf(AskSymbol("posenc.v1.RopeSpec.rope_theta"))) {
    for (const auto& message : file.message_type()) {
      for (const auto& field : message.field()) {
        ++fields;
        named += field.has_json_name();
        if (field.name() == "rope_theta") {
          EXPECT_EQ(field.json_name(), "ropeTheta");
        }
      }
    }
  }
  EXPECT_GT(fields, 0);
  EXPECT_EQ(named, fields);
}

// grpcurl prints the details of an error in this way.
TEST_F(ReflectionTest, DetailsOfErrorsCanBeReadWithReflection) {
  v1::ApplyRopeResponse none;
  const grpc::Status status = Apply({}, &none);
  rpc::Status rich;
  ASSERT_TRUE(rich.ParseFromString(status.error_details()));
  std::string text;
  for (const auto& detail : rich.details()) {
    const std::string type =
        detail.type_url().substr(detail.type_url().rfind('/') + 1);
    const auto* const descriptor = Learn(type).FindMessageTypeByName(type);
    ASSERT_NE(descriptor, nullptr) << type;
    google::protobuf::DynamicMessageFactory factory;
    const std::unique_ptr<google::protobuf::Message> message(
        factory.GetPrototype(descriptor)->New());
    ASSERT_TRUE(message->ParseFromString(detail.value()));
    text += message->ShortDebugString();
  }
  EXPECT_THAT(text, HasSubstr("ERROR_REASON_FIELD_REQUIRED"));
  EXPECT_THAT(text, HasSubstr("field_violations { field: \"layout\""));
  EXPECT_NE(Learn("google.rpc.RetryInfo")
                .FindMessageTypeByName("google.rpc.RetryInfo"),
            nullptr);
}

TEST_F(ReflectionTest, ReasonsOfErrorsCanBeLookedUp) {
  EXPECT_NE(Learn("posenc.v1.ErrorReason")
                .FindEnumValueByName("posenc.v1.ERROR_REASON_DRAINING"),
            nullptr);
}

TEST_F(ReflectionTest, FilesAreFoundByName) {
  ServerReflectionRequest request;
  request.set_file_by_filename("posenc/v1/tensor.proto");
  const auto files = FilesOf(Ask(request));
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(files[0].name(), "posenc/v1/tensor.proto");
}

TEST_F(ReflectionTest, UnknownSymbolsAreNotFound) {
  ServerReflectionRequest file, extension, numbers, nothing;
  file.set_file_by_filename("posenc/rpc/status.proto");
  extension.mutable_file_containing_extension()->set_containing_type(
      "posenc.v1.Tensor");
  numbers.set_all_extension_numbers_of_type("posenc.v1.Nothing");
  for (const auto& request : {file, extension, numbers}) {
    EXPECT_EQ(Ask(request).error_response().error_code(),
              grpc::StatusCode::NOT_FOUND);
  }
  EXPECT_EQ(AskSymbol("posenc.v1.Nothing").error_response().error_code(),
            grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Ask(nothing).error_response().error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  numbers.set_all_extension_numbers_of_type("posenc.v1.Tensor");
  EXPECT_EQ(Ask(numbers).all_extension_numbers_response().base_type_name(),
            "posenc.v1.Tensor");
}

TEST_F(ReflectionTest, RefusesCallsWhileTooManyAreOpen) {
  const auto code = [this] {
    ServerReflectionRequest request;
    request.set_list_services("");
    std::string bytes;
    return RawUnary(channel_, kV1, request.SerializeAsString(), &bytes)
        .error_code();
  };
  std::vector<std::unique_ptr<RawCall>> open;
  for (int i = 0; i < 64; ++i) {
    open.push_back(std::make_unique<RawCall>(channel_, kV1));
  }
  EXPECT_TRUE(test::Eventually(
      [&] { return code() == grpc::StatusCode::RESOURCE_EXHAUSTED; }));
  open.clear();
  EXPECT_TRUE(test::Eventually([&] { return code() == grpc::StatusCode::OK; }));
}

TEST_F(ReflectionTest, ServersWithoutItDoNotAnswer) {
  Start({.reflection = false});
  for (const char* const method : {kV1, kV1Alpha}) {
    std::string bytes;
    EXPECT_EQ(RawUnary(channel_, method, "", &bytes).error_code(),
              grpc::StatusCode::UNIMPLEMENTED);
  }
}

TEST_F(ReflectionTest, UnknownMethodsAreNamed) {
  for (const char* const name :
       {"posenc.v1.PositionalEncodingService/Unheard",
        "posenc.v1.PositionalEncodingService/", "posenc.v1.Other/ApplyRope",
        "inference.GRPCInferenceService/Unheard"}) {
    const std::string path = std::string("/") + name;
    std::string bytes;
    const grpc::Status status = RawUnary(channel_, path, "", &bytes);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
    EXPECT_THAT(status.error_message(), HasSubstr("no such method: " + path));
    EXPECT_THAT(status.error_message(), HasSubstr("this is posencd "));
  }
}

}  // namespace
}  // namespace posenc::server
