// KServe's service: its metadata, streams, limits and end.

#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "tests/fixtures/kserve.h"

namespace posenc::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kStreamPath[] =
    "/inference.GRPCInferenceService/ModelStreamInfer";

class KserveServiceTest : public KserveTest {
 protected:
  using StreamResponse = inference::ModelStreamInferResponse;

  static Request Rotation(int start) {
    Request request = LlamaRotation({{"positions.start", Parameter(start)}});
    request.set_id("id " + std::to_string(start));
    AddInput("k", SomeTensor(v1::DTYPE_FLOAT32, {1, 2, 1, 128}), &request);
    return request;
  }

  // Sends all requests, then reads until the stream ends.
  grpc::Status Stream(const std::vector<std::string>& requests,
                      std::vector<StreamResponse>* responses,
                      const char* ends_with_error = nullptr) {
    grpc::ClientContext context;
    context.set_deadline(Deadline());
    if (ends_with_error != nullptr) {
      context.AddMetadata("triton_grpc_error", ends_with_error);
    }
    grpc::CompletionQueue queue;
    grpc::GenericStub stub(channel_);
    const auto call = stub.PrepareCall(&context, kStreamPath, &queue);
    const auto await = [&queue] {
      void* tag = nullptr;
      bool ok = false;
      return queue.Next(&tag, &ok) && ok;
    };
    call->StartCall(nullptr);
    await();
    for (const std::string& request : requests) {
      const grpc::Slice slice(request);
      call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
      if (!await()) break;
    }
    call->WritesDone(nullptr);
    await();
    while (true) {
      grpc::ByteBuffer buffer;
      call->Read(&buffer, nullptr);
      if (!await()) break;
      grpc::Slice slice;
      EXPECT_TRUE(buffer.DumpToSingleSlice(&slice).ok());
      EXPECT_TRUE(responses->emplace_back().ParseFromArray(
          slice.begin(), static_cast<int>(slice.size())));
    }
    grpc::Status status;
    call->Finish(&status, nullptr);
    await();
    queue.Shutdown();
    while (await()) {
    }
    return status;
  }

  inference::ModelStatistics StatisticsOf(const std::string& model) {
    inference::ModelStatisticsRequest request;
    request.set_name(model);
    const auto response =
        Ask<inference::ModelStatisticsResponse>("ModelStatistics", request);
    EXPECT_EQ(response.model_stats_size(), 1);
    return response.model_stats(0);
  }
};

TEST_F(KserveServiceTest, AStreamAnswersInOrder) {
  std::vector<std::string> requests;
  for (int i = 0; i < 20; ++i) {
    requests.push_back(Rotation(i).SerializeAsString());
  }
  std::vector<StreamResponse> responses;
  EXPECT_TRUE(Stream(requests, &responses).ok());
  ASSERT_EQ(responses.size(), 20u);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(responses[i].error_message(), "");
    Response expected;
    ASSERT_TRUE(Infer(Rotation(i), &expected).ok());
    EXPECT_EQ(responses[i].infer_response().SerializeAsString(),
              expected.SerializeAsString());
  }
}

TEST_F(KserveServiceTest, AStreamGoesOnAfterAnError) {
  Request bad = Rotation(1);
  (*bad.mutable_parameters())["layuot"] = Parameter("x");
  Request late = Rotation(2);
  (*late.mutable_parameters())["timeout"] = Unsigned(1);
  std::vector<StreamResponse> responses;
  const grpc::Status status = Stream(
      {Rotation(0).SerializeAsString(), bad.SerializeAsString(),
       late.SerializeAsString(), "\xff", Rotation(4).SerializeAsString()},
      &responses);
  EXPECT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(responses.size(), 5u);
  EXPECT_EQ(responses[0].error_message(), "");
  EXPECT_THAT(responses[1].error_message(), HasSubstr("parameters.layuot"));
  EXPECT_EQ(responses[1].infer_response().model_name(), "apply_rope");
  EXPECT_EQ(responses[1].infer_response().id(), "id 1");
  EXPECT_EQ(responses[1].infer_response().outputs_size(), 0);
  EXPECT_THAT(responses[2].error_message(), HasSubstr("parameters.timeout"));
  EXPECT_EQ(responses[2].infer_response().id(), "id 2");
  EXPECT_THAT(responses[3].error_message(), HasSubstr("protobuf"));
  EXPECT_EQ(responses[4].error_message(), "");
  EXPECT_EQ(responses[4].infer_response().id(), "id 4");
  ExpectNothingInFlight();
}

TEST_F(KserveServiceTest, AnErrorEndsAStreamThatAsksForIt) {
  Request bad = Rotation(1);
  (*bad.mutable_parameters())["layuot"] = Parameter("x");
  const std::vector<std::string> requests = {Rotation(0).SerializeAsString(),
                                             bad.SerializeAsString(),
                                             Rotation(2).SerializeAsString()};
  std::vector<StreamResponse> responses;
  const grpc::Status status = Stream(requests, &responses, "true");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("parameters.layuot"));
  ASSERT_EQ(responses.size(), 1u);
  EXPECT_EQ(responses[0].error_message(), "");
  responses.clear();
  EXPECT_TRUE(Stream(requests, &responses, "false").ok());
  EXPECT_EQ(responses.size(), 3u);
}

TEST_F(KserveServiceTest, FinalResponsesAreMarkedWhereThatIsAskedFor) {
  Request request = Rotation(0);
  (*request.mutable_parameters())["triton_enable_empty_final_response"] =
      Parameter(true);
  std::vector<StreamResponse> responses;
  EXPECT_TRUE(
      Stream({request.SerializeAsString(), Rotation(1).SerializeAsString()},
             &responses)
          .ok());
  ASSERT_EQ(responses.size(), 2u);
  EXPECT_TRUE(responses[0]
                  .infer_response()
                  .parameters()
                  .at("triton_final_response")
                  .bool_param());
  EXPECT_EQ(responses[1].infer_response().parameters_size(), 0);
}

TEST_F(KserveServiceTest, TellsOfTheServerAndItsModels) {
  EXPECT_TRUE(Ask<inference::ServerLiveResponse>("ServerLive",
                                                 inference::ServerLiveRequest())
                  .live());
  EXPECT_TRUE(Ask<inference::ServerReadyResponse>(
                  "ServerReady", inference::ServerReadyRequest())
                  .ready());
  const auto server = Ask<inference::ServerMetadataResponse>(
      "ServerMetadata", inference::ServerMetadataRequest());
  EXPECT_EQ(server.name(), "posenc");
  EXPECT_NE(server.version(), "");
  EXPECT_THAT(server.extensions(),
              ElementsAre("statistics", "model_configuration", "parameters"));
  const auto index = Ask<inference::RepositoryIndexResponse>(
      "RepositoryIndex", inference::RepositoryIndexRequest());
  ASSERT_EQ(index.models_size(), 10);
  for (const auto& entry : index.models()) {
    SCOPED_TRACE(entry.name());
    EXPECT_EQ(entry.version(), "1");
    EXPECT_EQ(entry.state(), "READY");
    inference::ModelReadyRequest ready;
    ready.set_name(entry.name());
    EXPECT_TRUE(
        Ask<inference::ModelReadyResponse>("ModelReady", ready).ready());
    ready.set_version("2");
    EXPECT_FALSE(
        Ask<inference::ModelReadyResponse>("ModelReady", ready).ready());
    inference::ModelMetadataRequest about;
    about.set_name(entry.name());
    const auto metadata =
        Ask<inference::ModelMetadataResponse>("ModelMetadata", about);
    EXPECT_EQ(metadata.name(), entry.name());
    EXPECT_THAT(metadata.versions(), ElementsAre("1"));
    EXPECT_EQ(metadata.platform(), "posenc");
    EXPECT_GT(metadata.outputs_size(), 0);
    inference::ModelConfigRequest configure;
    configure.set_name(entry.name());
    const auto config =
        Ask<inference::ModelConfigResponse>("ModelConfig", configure).config();
    EXPECT_EQ(config.name(), entry.name());
    EXPECT_EQ(config.platform(), "posenc");
    EXPECT_EQ(config.backend(), "posenc");
    EXPECT_EQ(config.max_batch_size(), 0);
    EXPECT_TRUE(config.has_model_transaction_policy());
    EXPECT_FALSE(config.model_transaction_policy().decoupled());
    // perf_analyzer gives up if the configuration and the metadata differ.
    ASSERT_EQ(config.input_size(), metadata.inputs_size());
    for (int i = 0; i < config.input_size(); ++i) {
      EXPECT_EQ(config.input(i).name(), metadata.inputs(i).name());
      EXPECT_EQ("TYPE_" + metadata.inputs(i).datatype(),
                inference::DataType_Name(config.input(i).data_type()));
      EXPECT_THAT(config.input(i).dims(),
                  testing::ElementsAreArray(metadata.inputs(i).shape()));
    }
    ASSERT_EQ(config.output_size(), metadata.outputs_size());
    for (int i = 0; i < config.output_size(); ++i) {
      EXPECT_EQ(config.output(i).name(), metadata.outputs(i).name());
    }
  }
  inference::ModelReadyRequest none;
  none.set_name("none");
  EXPECT_FALSE(Ask<inference::ModelReadyResponse>("ModelReady", none).ready());
}

TEST_F(KserveServiceTest, MetadataHasDatatypesAndRanks) {
  inference::ModelMetadataRequest about;
  about.set_name("apply_rope");
  const auto metadata =
      Ask<inference::ModelMetadataResponse>("ModelMetadata", about);
  ASSERT_EQ(metadata.inputs_size(), 3);
  EXPECT_EQ(metadata.inputs(0).name(), "q");
  EXPECT_EQ(metadata.inputs(0).datatype(), "FP32");
  EXPECT_THAT(metadata.inputs(0).shape(), ElementsAre(-1, -1, -1, -1));
  EXPECT_EQ(metadata.inputs(2).name(), "positions");
  EXPECT_EQ(metadata.inputs(2).datatype(), "INT64");
  EXPECT_THAT(metadata.inputs(2).shape(), ElementsAre(-1));
  EXPECT_EQ(metadata.properties().at("q.datatypes"),
            "FP32,FP16,BF16,FP64,FP8E4M3,FP8E5M2");
  about.set_name("resolve_rope");
  const auto resolve =
      Ask<inference::ModelMetadataResponse>("ModelMetadata", about);
  ASSERT_EQ(resolve.outputs_size(), 1);
  EXPECT_EQ(resolve.outputs(0).datatype(), "FP64");
}

TEST_F(KserveServiceTest, UnknownModelsAreNotFound) {
  for (const char* const name :
       {"ModelMetadata", "ModelConfig", "ModelStatistics"}) {
    for (const auto& [model, version] :
         {std::pair("none", ""), std::pair("apply_rope", "7"),
          std::pair("\xC3\xA9\n", ""), std::pair("apply_rope", "\x7F")}) {
      inference::ModelMetadataRequest request;  // with the same fields
      request.set_name(model);
      request.set_version(version);
      std::string bytes;
      EXPECT_EQ(RawUnary(channel_,
                         std::string("/inference.GRPCInferenceService/") + name,
                         request.SerializeAsString(), &bytes)
                    .error_code(),
                grpc::StatusCode::NOT_FOUND);
    }
  }
}

TEST_F(KserveServiceTest, UnsupportedRpcsAreUnimplementedWithTheReason) {
  for (const char* const name :
       {"RepositoryModelLoad", "RepositoryModelUnload", "TraceSetting",
        "LogSettings", "CudaSharedMemoryRegister", "SystemSharedMemoryStatus",
        "SystemSharedMemoryRegister", "SystemSharedMemoryUnregister",
        "NoSuchThing"}) {
    std::string bytes;
    const grpc::Status status = RawUnary(
        channel_, std::string("/inference.GRPCInferenceService/") + name, "",
        &bytes);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED) << name;
    EXPECT_THAT(status.error_message(), HasSubstr(name));
  }
  // perf_analyzer always calls these.
  Ask<inference::CudaSharedMemoryUnregisterResponse>(
      "CudaSharedMemoryUnregister",
      inference::CudaSharedMemoryUnregisterRequest());
  EXPECT_EQ(
      Ask<inference::CudaSharedMemoryStatusResponse>(
          "CudaSharedMemoryStatus", inference::CudaSharedMemoryStatusRequest())
          .regions_size(),
      0);
}

TEST_F(KserveServiceTest, StatisticsCountEveryRequestOfAModel) {
  const auto before = StatisticsOf("apply_rope");
  EXPECT_EQ(before.inference_count(), 0u);
  Response response;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Infer(Rotation(i), &response).ok());
  Request bad = Rotation(1);
  bad.mutable_parameters()->erase("layout");
  ASSERT_FALSE(Infer(bad, &response).ok());
  std::vector<StreamResponse> responses;
  ASSERT_TRUE(Stream({Rotation(0).SerializeAsString(), bad.SerializeAsString()},
                     &responses)
                  .ok());
  // A call's counts may come a moment after its answer.
  ASSERT_TRUE(test::Eventually([this] {
    return StatisticsOf("apply_rope").inference_stats().queue().count() == 6;
  }));
  const auto after = StatisticsOf("apply_rope");
  EXPECT_EQ(after.name(), "apply_rope");
  EXPECT_EQ(after.version(), "1");
  EXPECT_EQ(after.inference_count(), 4u);
  EXPECT_EQ(after.execution_count(), 4u);
  EXPECT_GT(after.last_inference(), 1600000000000u);
  const auto& times = after.inference_stats();
  EXPECT_EQ(times.success().count(), 4u);
  EXPECT_EQ(times.fail().count(), 2u);
  EXPECT_EQ(times.compute_input().count(), 4u);
  EXPECT_EQ(times.compute_infer().count(), 4u);
  EXPECT_EQ(times.compute_output().count(), 4u);
  EXPECT_GT(times.success().ns(), 0u);
  EXPECT_GT(times.compute_infer().ns(), 0u);
  EXPECT_EQ(StatisticsOf("reposition").inference_stats().queue().count(), 0u);
  EXPECT_EQ(Ask<inference::ModelStatisticsResponse>(
                "ModelStatistics", inference::ModelStatisticsRequest())
                .model_stats_size(),
            10);
}

TEST_F(KserveServiceTest, ADrainingServerIsNotReadyAndThenUnavailable) {
  // Delays the drain by an unread call.
  const auto held = HoldLargeTable();
  std::thread drain([this] { server_->Drain(); });
  EXPECT_TRUE(test::Eventually([this] {
    std::string bytes;
    return RawUnary(channel_, kInferPath, Rotation(0).SerializeAsString(),
                    &bytes)
               .error_code() == grpc::StatusCode::UNAVAILABLE;
  }));
  EXPECT_FALSE(Ask<inference::ServerReadyResponse>(
                   "ServerReady", inference::ServerReadyRequest())
                   .ready());
  inference::ModelReadyRequest model;
  model.set_name("apply_rope");
  EXPECT_FALSE(Ask<inference::ModelReadyResponse>("ModelReady", model).ready());
  EXPECT_TRUE(Ask<inference::ServerLiveResponse>("ServerLive",
                                                 inference::ServerLiveRequest())
                  .live());
  std::string table;
  while (held->Read(&table)) {
  }
  drain.join();
}

TEST_F(KserveServiceTest, AnnouncementsAndLimitsAreThoseOfTheContract) {
  const auto announced = [this](const std::string& bytes) {
    RawCall call(channel_, kInferPath, {{"posenc-message-bytes", bytes}});
    std::string answer;
    call.WriteLast(Rotation(0).SerializeAsString());
    call.Read(&answer);
    return call.Finish();
  };
  EXPECT_TRUE(announced("100000").ok());
  EXPECT_EQ(announced("10").error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(announced("1000000000000").error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);

  Start({.limits = {.max_request_bytes = 1 << 20,
                    .max_response_bytes = 1 << 16}});
  Request large = Rotation(0);
  large.set_id(std::string(3 << 19, 'x'));
  Response response;
  const grpc::Status request = Infer(large, &response);
  EXPECT_EQ(request.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(ReadDetails(request).reason, "ERROR_REASON_MESSAGE_TOO_LARGE");
  const grpc::Status answer = Infer(
      InferRequest("build_table", {{"rope.preset", Parameter("llama-3.1-8b")},
                                   {"positions.start", Parameter(0)},
                                   {"rows", Parameter(1000)}}),
      &response);
  EXPECT_EQ(answer.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(ReadDetails(answer).reason, "ERROR_REASON_MESSAGE_TOO_LARGE");
  const grpc::Status bias =
      Infer(InferRequest("build_bias", {{"bias.alibi.heads", Parameter(4)},
                                        {"query_length", Parameter(1000)},
                                        {"key_length", Parameter(1000)}}),
            &response);
  EXPECT_EQ(bias.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(bias.error_message(), HasSubstr("query_length"));
}

TEST_F(KserveServiceTest, AServerThatIsFullSaysUnavailable) {
  Start({.limits = {.max_request_bytes = kLargeTableBytes,
                    .in_flight_bytes = kLargeTableBytes + (1 << 20),
                    .max_waiting = 0}});
  const auto held = HoldLargeTable();
  RawCall call(channel_, kInferPath, {{"posenc-message-bytes", "3000000"}});
  std::string bytes;
  call.WriteLast(Rotation(0).SerializeAsString());
  call.Read(&bytes);
  const grpc::Status status = call.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE)
      << status.error_message();
  const Details details = ReadDetails(status);
  EXPECT_EQ(details.reason, "ERROR_REASON_OVERLOADED");
  EXPECT_TRUE(details.has_retry_info);
}

TEST_F(KserveServiceTest,
       WhatAsksForNumbersNeedsATokenWhereCallersMustShowOne) {
  const std::string file = testing::TempDir() + "/kserve_tokens";
  std::ofstream(file) << "one aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n"
                      << "two bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb "
                         "methods=ModelMetadata,ApplyRope\n";
  Start({.token_file = file});
  const auto call = [this](const char* name, const std::string& request,
                           const char* token) {
    std::map<std::string, std::string> metadata;
    if (token != nullptr) {
      metadata["authorization"] = "Bearer " + std::string(32, *token);
    }
    RawCall raw(channel_,
                std::string("/inference.GRPCInferenceService/") + name,
                metadata);
    std::string bytes;
    raw.WriteLast(request);
    raw.Read(&bytes);
    return raw.Finish().error_code();
  };
  using grpc::StatusCode;
  const std::string infer = Rotation(0).SerializeAsString();
  EXPECT_EQ(call("ServerLive", "", nullptr), StatusCode::OK);
  EXPECT_EQ(call("ServerReady", "", nullptr), StatusCode::OK);
  EXPECT_EQ(call("ModelReady", "", nullptr), StatusCode::OK);
  EXPECT_EQ(call("ModelInfer", infer, nullptr), StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(call("ModelStatistics", "", nullptr), StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(call("ModelInfer", infer, "a"), StatusCode::OK);
  EXPECT_EQ(call("ModelStatistics", "", "a"), StatusCode::OK);
  EXPECT_EQ(call("ModelInfer", infer, "b"), StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(call("RepositoryIndex", "", "b"), StatusCode::PERMISSION_DENIED);
  inference::ModelMetadataRequest about;
  about.set_name("apply_rope");
  EXPECT_EQ(call("ModelMetadata", about.SerializeAsString(), "b"),
            StatusCode::OK);
}

}  // namespace
}  // namespace posenc::server
