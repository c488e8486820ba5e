// Tests the client's own part of each method, against the server in this
// process. The conformance vectors test the numbers (e2e/conformance_test).

#include <sys/mman.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "posenc/client.h"
#include "server/service/server.h"
#include "tests/fixtures/core/tensor_bytes.h"

namespace posenc {
namespace {

using testing::HasSubstr;

template <typename T>
std::vector<T> Elements(const TensorView& view) {
  std::vector<T> elements(view.bytes.size() / sizeof(T));
  std::memcpy(elements.data(), view.bytes.data(), view.bytes.size());
  return elements;
}

v1::RopeSource Spec(int rotary_dim, double theta) {
  v1::RopeSource source;
  source.mutable_spec()->set_rotary_dim(rotary_dim);
  source.mutable_spec()->set_rope_theta(theta);
  source.mutable_spec()->set_pairing(v1::PAIRING_INTERLEAVED);
  return source;
}

class ClientRpcsTest : public testing::Test {
 protected:
  static absl::StatusOr<std::unique_ptr<server::Server>> Start() {
    return server::Server::Start(server::ServerOptions());
  }

  absl::StatusOr<std::unique_ptr<server::Server>> server_ = Start();
  Client client_{(*server_)->InProcessChannel()};
};

v1::BuildBiasRequest AlibiRequest() {
  v1::BuildBiasRequest request;
  request.mutable_bias()->mutable_alibi()->set_heads(2);
  request.set_query_start(3);
  request.set_query_length(5);
  request.set_key_start(1);
  request.set_key_length(7);
  request.set_query_tile(2);
  request.set_key_tile(3);
  return request;
}

TEST_F(ClientRpcsTest, BuildBiasEndsIfTheCallerStopsIt) {
  v1::BuildBiasRequest request = AlibiRequest();
  request.set_query_length(1 << 14);
  request.set_key_length(1 << 14);
  request.set_query_tile(64);
  int tiles = 0;
  const absl::Status status =
      client_.BuildBias(request, [&](const BiasTile&) { return ++tiles < 3; });
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(tiles, 3);
}

TEST_F(ClientRpcsTest, BuildBiasPassesTheServersErrorOn) {
  v1::BuildBiasRequest request = AlibiRequest();
  request.mutable_bias()->mutable_alibi()->set_heads(0);
  CallOptions options;
  options.request_id = "the same";
  bool called = false;
  const absl::Status status = client_.BuildBias(
      request, [&](const BiasTile&) { return called = true; }, options);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("bias.alibi.heads"));
  EXPECT_NE(ErrorReason(status), "");
  EXPECT_FALSE(called);
  EXPECT_EQ(client_.BuildBias(request, options).status(), status);
}

TEST_F(ClientRpcsTest, BuildBiasObeysItsDeadline) {
  CallOptions options;
  options.timeout = absl::ZeroDuration();
  EXPECT_EQ(client_.BuildBias(AlibiRequest(), options).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST_F(ClientRpcsTest, BuiltPositionsGoIntoOtherCallsAsTheyAre) {
  v1::BuildPositionsRequest request;
  request.mutable_padded()->add_lengths(3);
  request.mutable_padded()->add_lengths(2);
  request.mutable_padded()->set_padded_length(3);
  request.mutable_padded()->set_left(true);
  const absl::StatusOr<v1::BuildPositionsResponse> built =
      client_.BuildPositions(request);
  ASSERT_TRUE(built.ok()) << built.status();

  // One pair of frequency 1: (1, 0) becomes (cos p, sin p).
  const std::vector<float> q = {1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0};
  ApplyRopeArgs args;
  args.rope = Spec(2, 10000);
  args.positions = built->positions();
  args.layout = v1::LAYOUT_BSHD;
  args.q = View(v1::DTYPE_FLOAT32, {2, 3, 1, 2}, q);
  const absl::StatusOr<ApplyRopeResult> rotated = client_.ApplyRope(args);
  ASSERT_TRUE(rotated.ok()) << rotated.status();
  const std::vector<float> values = Elements<float>(*rotated->q);
  const int positions[] = {0, 1, 2, 0, 0, 1};  // the second row is padded
  for (int t = 0; t < 6; ++t) {
    EXPECT_NEAR(values[2 * t], std::cos(positions[t]), 0x1p-23);
    EXPECT_NEAR(values[2 * t + 1], std::sin(positions[t]), 0x1p-23);
  }
}

TEST_F(ClientRpcsTest, TensorsOfTheSameProcessAreNotWrittenTo) {
  std::vector<float> channels(1 << 18);
  for (std::size_t i = 0; i < channels.size(); ++i) {
    channels[i] = static_cast<float>(i % 1000);
  }
  const std::vector<float> before = channels;
  ApplyRopeArgs rotate;
  rotate.rope = Spec(128, 10000);
  rotate.positions = StartAt(1000);
  rotate.layout = v1::LAYOUT_BSHD;
  rotate.q = View(v1::DTYPE_FLOAT32, {1, 256, 8, 128}, channels);
  const absl::StatusOr<ApplyRopeResult> rotated = client_.ApplyRope(rotate);
  ASSERT_TRUE(rotated.ok()) << rotated.status();
  EXPECT_FALSE(rotated->q->bytes == rotate.q->bytes);
  EXPECT_TRUE(channels == before);

  AddEncodingArgs add;
  add.encoding.mutable_sinusoidal()->set_dim(128);
  add.encoding.mutable_sinusoidal()->set_order(
      v1::SINUSOIDAL_ORDER_INTERLEAVED);
  add.positions = StartAt(0);
  add.x = View(v1::DTYPE_FLOAT32, {1, 2048, 128}, channels);
  const absl::StatusOr<TensorResult> added = client_.AddEncoding(add);
  ASSERT_TRUE(added.ok()) << added.status();
  EXPECT_TRUE(channels == before);
}

// The client sends incomplete requests; the server reports the missing
// arguments.
TEST_F(ClientRpcsTest, TheServerReportsMissingArguments) {
  for (const absl::Status& status :
       {client_.Reposition({}).status(), client_.AddEncoding({}).status(),
        client_.ScoreRelative({}).status(), client_.ConvertPairing({}).status(),
        client_.BuildBias({}).status(), client_.BuildPositions({}).status(),
        client_.AnalyzeRope({}).status(), client_.DiagnoseRope({}).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_NE(ErrorReason(status), "") << status;
  }
}

// The tensors are on unreadable pages: they are refused without a copy.
TEST_F(ClientRpcsTest, TensorsBeyondProtobufsTwoGibibytesAreRefusedUnread) {
  const std::size_t size = std::size_t{1} << 31;
  void* pages = mmap(nullptr, size, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  const TensorView huge{
      v1::DTYPE_FLOAT32, {1 << 29}, {static_cast<const char*>(pages), size}};
  AddEncodingArgs add;
  add.x = huge;
  ScoreRelativeArgs score;
  score.q = TensorView{v1::DTYPE_FLOAT32,
                       {1 << 28},
                       {static_cast<const char*>(pages), size / 2}};
  score.k = score.q;
  ConvertPairingArgs convert;
  convert.weight = huge;
  for (const absl::Status& status :
       {client_.AddEncoding(add).status(),
        client_.ScoreRelative(score).status(),
        client_.ConvertPairing(convert).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("bytes; the limit is 2147483647"));
  }
  munmap(pages, size);
}

}  // namespace
}  // namespace posenc
