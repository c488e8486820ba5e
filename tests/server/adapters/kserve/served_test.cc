// How the rest of the server treats calls of KServe's service.

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/descriptor.pb.h"
#include "grpc/reflection/v1/reflection.pb.h"
#include "server/service/extra_service.h"
#include "tests/fixtures/kserve.h"

namespace posenc::server {
namespace {

using KserveServedTest = KserveTest;

TEST_F(KserveServedTest, SwitchedOffItIsNotThere) {
  ServerOptions options;
  options.extra_service = KserveService();
  options.extra_service.make = nullptr;
  ServerTest::Start(options);
  for (const char* const name : {"ModelInfer", "ModelStreamInfer", "ServerLive",
                                 "RepositoryModelLoad"}) {
    std::string bytes;
    EXPECT_EQ(RawUnary(channel_,
                       std::string("/inference.GRPCInferenceService/") + name,
                       "", &bytes)
                  .error_code(),
              grpc::StatusCode::UNIMPLEMENTED);
  }
}

TEST_F(KserveServedTest, HealthKnowsTheService) {
  // Field 1: the name. The answer's field 1: SERVING.
  std::string bytes;
  const std::string name = "inference.GRPCInferenceService";
  EXPECT_TRUE(
      RawUnary(channel_, "/grpc.health.v1.Health/Check",
               "\x0a" + std::string(1, static_cast<char>(name.size())) + name,
               &bytes)
          .ok());
  EXPECT_EQ(bytes, "\x08\x01");
}

TEST_F(KserveServedTest, ReflectionListsAndDescribesTheService) {
  constexpr char kPath[] =
      "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
  grpc::reflection::v1::ServerReflectionRequest list, symbol;
  list.set_list_services("*");
  symbol.set_file_containing_symbol("inference.GRPCInferenceService");
  std::string bytes;
  grpc::reflection::v1::ServerReflectionResponse services, files;
  ASSERT_TRUE(RawUnary(channel_, kPath, list.SerializeAsString(), &bytes).ok());
  ASSERT_TRUE(services.ParseFromString(bytes));
  std::vector<std::string> names;
  for (const auto& each : services.list_services_response().service()) {
    names.push_back(each.name());
  }
  EXPECT_THAT(names, testing::Contains("inference.GRPCInferenceService"));
  ASSERT_TRUE(
      RawUnary(channel_, kPath, symbol.SerializeAsString(), &bytes).ok());
  ASSERT_TRUE(files.ParseFromString(bytes));
  const auto& found = files.file_descriptor_response().file_descriptor_proto();
  ASSERT_EQ(found.size(), 1);
  google::protobuf::FileDescriptorProto file;
  ASSERT_TRUE(file.ParseFromString(found[0]));
  EXPECT_EQ(file.service(0).name(), "GRPCInferenceService");
}

// Handlers report that a small message with a wide encoding takes long, so that
// no connection thread resolves it.
TEST(KserveHandlerTest, SaysOfWideEncodingsThatTheyTakeLong) {
  Limits limits;
  limits.max_request_bytes = limits.max_response_bytes = 1 << 20;
  RopeCache cache(1 << 20);
  const MethodContext context = {&limits, &cache, {}};
  const auto service = KserveService().make(nullptr);
  int methods = 0;
  for (const Method& method : service->Methods()) {
    if (method.exempt) continue;
    ++methods;
    for (const int width : {128, 4096}) {
      const grpc::Slice slice(
          InferRequest("resolve_rope",
                       {{"rope.spec.pairing", Parameter("half_split")},
                        {"rope.spec.rotary_dim", Parameter(width)},
                        {"rope.spec.rope_theta", Parameter(10000.0)}})
              .SerializeAsString());
      const auto started = method.start(context);
      ASSERT_TRUE(started.ok()) << started.status();
      CallHandler* const handler = started->get();
      EXPECT_FALSE(handler->TakesLong());  // without a message
      const absl::Status received =
          handler->Receive(RequestMessage({slice}, true));
      EXPECT_TRUE(received.ok()) << received;
      EXPECT_EQ(handler->TakesLong(), width == 4096) << method.name;
    }
  }
  EXPECT_GT(methods, 0);
}

}  // namespace
}  // namespace posenc::server
