// Handlers report that a small message with a wide encoding takes long, so that
// no connection thread resolves it.

#include <memory>
#include <string>
#include <vector>

#include "google/protobuf/message.h"
#include "gtest/gtest.h"
#include "posenc/v1/service.pb.h"
#include "server/methods/methods.h"

namespace posenc::server {
namespace {

constexpr int kWide = 4096, kUsual = 128;

v1::RopeSource Rope(int rotary_dim) {
  v1::RopeSource rope;
  rope.mutable_spec()->set_pairing(v1::PAIRING_HALF_SPLIT);
  rope.mutable_spec()->set_rotary_dim(rotary_dim);
  rope.mutable_spec()->set_rope_theta(10000);
  return rope;
}

class TakesLongTest : public testing::Test {
 protected:
  // Returns the handler's report after this message.
  bool TakesLong(const char* method, const google::protobuf::Message& request) {
    const auto handler = *FindMethod(method)->start(context_);
    EXPECT_FALSE(handler->TakesLong());  // without a message
    const grpc::Slice slice(request.SerializeAsString());
    const absl::Status received =
        handler->Receive(RequestMessage({slice}, true));
    EXPECT_TRUE(received.ok()) << received;
    return handler->TakesLong();
  }

  const Limits limits_ = [] {
    Limits limits;
    limits.max_request_bytes = limits.max_response_bytes = 1 << 20;
    return limits;
  }();
  RopeCache cache_{1 << 20};
  const MethodContext context_{&limits_, &cache_, {}};
};

TEST_F(TakesLongTest, OfOneAnswer) {
  for (const int width : {kUsual, kWide}) {
    v1::ResolveRopeRequest resolve;
    *resolve.mutable_rope() = Rope(width);
    EXPECT_EQ(TakesLong("ResolveRope", resolve), width == kWide);
    v1::BuildTableRequest table;
    *table.mutable_rope() = Rope(width);
    EXPECT_EQ(TakesLong("BuildTable", table), width == kWide);
    v1::RepositionRequest move;
    *move.mutable_old_rope() = Rope(kUsual);
    *move.mutable_new_rope() = Rope(width);
    EXPECT_EQ(TakesLong("Reposition", move), width == kWide);
  }
}

TEST_F(TakesLongTest, OfStreams) {
  for (const int width : {kUsual, kWide}) {
    // Rotations may also expand the positions of many tokens.
    v1::ApplyRopeStreamRequest apply;
    *apply.mutable_call()->mutable_rope() = Rope(width);
    EXPECT_TRUE(TakesLong("ApplyRopeStream", apply));
    v1::RepositionStreamRequest move;
    *move.mutable_call()->mutable_old_rope() = Rope(width);
    EXPECT_TRUE(TakesLong("RepositionStream", move));
    v1::BuildTableStreamRequest table;
    *table.mutable_table()->mutable_rope() = Rope(width);
    EXPECT_EQ(TakesLong("BuildTableStream", table), width == kWide);
  }
}

// Longer than nearly all models' configurations.
TEST_F(TakesLongTest, OfLongConfigurations) {
  for (const int bytes : {10 << 10, 20 << 10}) {
    v1::ResolveRopeRequest request;
    request.mutable_rope()->set_config_json(std::string(bytes, ' '));
    EXPECT_EQ(TakesLong("ResolveRope", request), bytes == 20 << 10);
  }
}

}  // namespace
}  // namespace posenc::server
