// Every RPC while the server drains: new calls are refused, and an earlier call
// goes on.

#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "tests/fixtures/server.h"

namespace posenc::server {
namespace {

using DrainTest = ServerTest;

TEST_F(DrainTest, EveryRpcIsRefusedWhileABiasOfBeforeIsFinished) {
  v1::BuildBiasRequest request;
  request.mutable_bias()->mutable_alibi()->set_heads(16);
  request.set_query_length(2048);
  request.set_key_length(1024);  // 128 MiB: more than any window
  const std::shared_ptr<grpc::Channel> other = Connect(server_->addresses()[0]);
  const auto stub = v1::PositionalEncodingService::NewStub(other);
  grpc::ClientContext context;
  context.set_deadline(Deadline());
  const auto reader = stub->BuildBias(&context, request);
  v1::BuildBiasResponse tile;
  ASSERT_TRUE(reader->Read(&tile));
  std::size_t bytes = tile.tile().data().size();

  std::thread drain([this] { server_->Drain(); });
  v1::GetServerInfoResponse info;
  while (Call(&Stub::GetServerInfo, v1::GetServerInfoRequest(), &info).ok()) {
  }
  for (const char* name :
       {"GetServerInfo", "ResolveRope", "BuildTable", "BuildBias",
        "BuildPositions", "ApplyRope", "Reposition", "AddEncoding",
        "ScoreRelative", "ConvertPairing", "AnalyzeRope", "DiagnoseRope"}) {
    std::string response;
    const grpc::Status status = RawUnary(
        channel_, std::string("/posenc.v1.PositionalEncodingService/") + name,
        "", &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << name;
    EXPECT_EQ(ReadDetails(status).reason, "ERROR_REASON_DRAINING") << name;
  }

  while (reader->Read(&tile)) bytes += tile.tile().data().size();
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(bytes, std::size_t{16} * 2048 * 1024 * 4);
  drain.join();
}

}  // namespace
}  // namespace posenc::server
