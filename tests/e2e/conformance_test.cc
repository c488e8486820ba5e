// Replays the conformance vectors of proto/testdata through a server. Their
// README describes the format; tests/reference makes them.

#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <string>

#include "tests/conformance/vectors.h"
#include "tests/fixtures/server.h"

namespace posenc::conformance {

void PrintTo(const Vector& vector, std::ostream* out) { *out << vector.family; }

namespace {

using google::protobuf::Message;

class ConformanceTest : public testing::TestWithParam<Vector> {
 protected:
  using Stub = v1::PositionalEncodingService::Stub;

  static void SetUpTestSuite() {
    absl::StatusOr<std::unique_ptr<server::Server>> started =
        server::Server::Start({});
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = started->release();
    stub_ = v1::PositionalEncodingService::NewStub(server_->InProcessChannel())
                .release();
  }
  static void TearDownTestSuite() {
    delete stub_;
    delete server_;
  }

  template <typename Request, typename Response>
  void Replay(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                           Response*)) {
    Request request;
    std::string failure;
    ASSERT_TRUE(ParseRequest(GetParam(), &request, &failure)) << failure;
    Response response;
    grpc::ClientContext context;
    context.set_deadline(server::Deadline());
    const grpc::Status status = (stub_->*method)(&context, request, &response);
    Compare(status, response);
  }

  void ReplayBias() {
    v1::BuildBiasRequest request;
    std::string failure;
    ASSERT_TRUE(ParseRequest(GetParam(), &request, &failure)) << failure;
    grpc::ClientContext context;
    context.set_deadline(server::Deadline());
    const auto reader = stub_->BuildBias(&context, request);
    BiasTiles tiles(request);
    v1::BuildBiasResponse response;
    while (reader->Read(&response)) ASSERT_EQ(tiles.Add(response), "");
    const grpc::Status status = reader->Finish();
    Compare(status, tiles.Whole());
  }

  void Compare(const grpc::Status& status, const Message& response) {
    const nlohmann::json& expected = GetParam().content.at("expect");
    if (status.ok()) {
      EXPECT_EQ(CompareAnswer(response, expected), "");
      return;
    }
    const server::Details details = server::ReadDetails(status);
    const auto field = details.metadata.find("field");
    EXPECT_EQ(
        CompareError({CodeName(status.error_code()), details.reason,
                      field == details.metadata.end() ? "" : field->second,
                      status.error_message()},
                     expected),
        "");
  }

  static server::Server* server_;
  static Stub* stub_;
};

server::Server* ConformanceTest::server_ = nullptr;
ConformanceTest::Stub* ConformanceTest::stub_ = nullptr;

TEST_P(ConformanceTest, Holds) {
  const std::string rpc = GetParam().content.at("rpc");
  if (rpc == "ResolveRope") return Replay(&Stub::ResolveRope);
  if (rpc == "BuildTable") return Replay(&Stub::BuildTable);
  if (rpc == "BuildBias") return ReplayBias();
  if (rpc == "BuildPositions") return Replay(&Stub::BuildPositions);
  if (rpc == "ApplyRope") return Replay(&Stub::ApplyRope);
  if (rpc == "Reposition") return Replay(&Stub::Reposition);
  if (rpc == "AddEncoding") return Replay(&Stub::AddEncoding);
  if (rpc == "ScoreRelative") return Replay(&Stub::ScoreRelative);
  if (rpc == "ConvertPairing") return Replay(&Stub::ConvertPairing);
  if (rpc == "AnalyzeRope") return Replay(&Stub::AnalyzeRope);
  if (rpc == "DiagnoseRope") return Replay(&Stub::DiagnoseRope);
  FAIL() << "unknown rpc " << rpc;
}

INSTANTIATE_TEST_SUITE_P(Vectors, ConformanceTest,
                         testing::ValuesIn(LoadVectors(POSENC_VECTORS)),
                         [](const testing::TestParamInfo<Vector>& info) {
                           return info.param.name;
                         });

TEST(ConformanceVectorsTest, AreAllThere) {
  EXPECT_GE(LoadVectors(POSENC_VECTORS).size(), 200u);
}

}  // namespace
}  // namespace posenc::conformance
