// Messages and answers in a budget of a few MiB. The server is a separate
// process: in the same process, the memory of clients would count as the
// server's memory, and the server would end calls to free memory.

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/fixtures/posencd.h"
#include "tests/fixtures/server.h"

namespace posenc::server {
namespace {

using Stub = v1::PositionalEncodingService::Stub;

class BinaryMemoryTest : public BinaryTest {
 protected:
  void Start(const std::string& in_flight_bytes,
             const std::string& max_request_bytes) {
    process_ = std::make_unique<Process>(std::vector<std::string>{
        "--listen", "unix:" + socket(), "--ready-file", ready_file(),
        "--in-flight-bytes", in_flight_bytes, "--max-request-bytes",
        max_request_bytes, "--max-response-bytes", "4MiB"});
    const std::string address = AwaitAddress();
    stub_ = v1::PositionalEncodingService::NewStub(Connect(address));
  }

  template <typename Request, typename Response>
  grpc::Status Announced(grpc::Status (Stub::*method)(grpc::ClientContext*,
                                                      const Request&,
                                                      Response*),
                         const Request& request) {
    grpc::ClientContext context;
    context.set_deadline(Deadline());
    context.AddMetadata("posenc-message-bytes",
                        std::to_string(request.ByteSizeLong()));
    Response response;
    return (stub_.get()->*method)(&context, request, &response);
  }

  std::unique_ptr<Process> process_;
  std::unique_ptr<Stub> stub_;
};

TEST_F(BinaryMemoryTest, ResponsesWaitForRoom) {
  Start("7MiB", "64KiB");
  std::vector<std::thread> threads;
  std::vector<grpc::Status> statuses(12);
  for (grpc::Status& status : statuses) {
    threads.emplace_back([this, &status] {
      for (int i = 0; i < 8 && status.ok(); ++i) {
        status = Announced(&Stub::BuildTable, LargeTable());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const grpc::Status& status : statuses) {
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
}

// Bytes beside tensors are copied for the parser, encodings are prepared, and
// positions expanded: 200 MiB of frequencies once took 3.3 GiB with a budget of
// 256 MiB.
TEST_F(BinaryMemoryTest, AMessageClaimsMemoryForItsParsedData) {
  Start("8MiB", "6MiB");
  // A call's claim may end a moment after its answer.
  const auto reason_of = [this](auto method, const auto& request) {
    std::string reason;
    for (int tries = 0; tries < 100; ++tries) {
      reason = ReadDetails(Announced(method, request)).reason;
      if (reason != "ERROR_REASON_OVERLOADED") break;
    }
    return reason;
  };
  v1::ResolveRopeRequest resolve;
  for (const auto& [bytes, reason] :
       {std::pair{64 << 10, "ERROR_REASON_MODEL_CONFIG_INVALID"},
        std::pair{256 << 10, "ERROR_REASON_MESSAGE_TOO_LARGE"}}) {
    resolve.mutable_rope()->set_config_json(std::string(bytes, ' '));
    EXPECT_EQ(reason_of(&Stub::ResolveRope, resolve), reason);
  }
  // The tensor's bytes are not borrowed, because the long text is in the same
  // message.
  v1::ApplyRopeRequest apply;
  apply.mutable_q()->set_data("q");
  apply.mutable_rope()->set_config_json(std::string(5 << 20, ' '));
  EXPECT_EQ(reason_of(&Stub::ApplyRope, apply),
            "ERROR_REASON_MESSAGE_TOO_LARGE");
  // Each token takes 2 bytes in q, and its position takes 8 bytes.
  apply.mutable_rope()->mutable_spec()->set_pairing(v1::PAIRING_HALF_SPLIT);
  apply.mutable_positions()->set_start(0);
  apply.set_layout(v1::LAYOUT_BSHD);
  apply.set_saturation(v1::SATURATION_FINITE);
  for (const auto& [tokens, reason] :
       {std::pair{512 << 10, ""},
        std::pair{1 << 20, "ERROR_REASON_MESSAGE_TOO_LARGE"}}) {
    v1::Tensor& q = *apply.mutable_q();
    q.set_dtype(v1::DTYPE_FLOAT8_E4M3FN);
    q.clear_shape();
    for (const int extent : {1, tokens, 1, 2}) q.add_shape(extent);
    q.set_data(std::string(2 * tokens, '\0'));
    EXPECT_EQ(reason_of(&Stub::ApplyRope, apply), reason);
  }
}

TEST_F(BinaryMemoryTest, TheResponseMayTakeWhatTheParserHasGivenBack) {
  Start("8MiB", "6MiB");
  // A tensor of 1.9 MiB, and 1.6 MiB beside it. The message, a copy of the 1.6
  // MiB and the response take 7 MiB; with the parser's own copy of the 1.6 MiB
  // they would take 8.4 MiB.
  v1::AddEncodingRequest request;
  SetTensor(v1::DTYPE_FLOAT32, {2, 240, 1024},
            std::vector<float>(2 * 240 * 1024), request.mutable_x());
  SetTensor(v1::DTYPE_FLOAT32, {400, 1024}, std::vector<float>(400 * 1024),
            request.mutable_encoding()->mutable_learned()->mutable_table());
  request.mutable_positions()->set_start(0);
  const grpc::Status status = Announced(&Stub::AddEncoding, request);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

}  // namespace
}  // namespace posenc::server
