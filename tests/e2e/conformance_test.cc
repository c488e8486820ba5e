// Replays the conformance vectors of proto/testdata through the C++ client and
// a server. Their README describes the format; tests/reference makes them.

#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <string>

#include "server/service/server.h"
#include "tests/conformance/replay.h"

namespace posenc::conformance {

void PrintTo(const Vector& vector, std::ostream* out) { *out << vector.family; }

namespace {

class ConformanceTest : public testing::TestWithParam<Vector> {
 protected:
  static void SetUpTestSuite() {
    absl::StatusOr<std::unique_ptr<server::Server>> started =
        server::Server::Start({});
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = started->release();
    const auto channel = server_->InProcessChannel();
    replay_ = new Replay(Client(channel), channel);
  }
  static void TearDownTestSuite() {
    delete replay_;
    delete server_;
  }

  static server::Server* server_;
  static Replay* replay_;
};

server::Server* ConformanceTest::server_ = nullptr;
Replay* ConformanceTest::replay_ = nullptr;

TEST_P(ConformanceTest, Holds) { EXPECT_EQ(replay_->Run(GetParam()), ""); }

INSTANTIATE_TEST_SUITE_P(Vectors, ConformanceTest,
                         testing::ValuesIn(LoadVectors(POSENC_VECTORS)),
                         [](const testing::TestParamInfo<Vector>& info) {
                           return info.param.name;
                         });

TEST(ConformanceVectorsTest, AllExist) {
  EXPECT_GE(LoadVectors(POSENC_VECTORS).size(), 200u);
}

}  // namespace
}  // namespace posenc::conformance
