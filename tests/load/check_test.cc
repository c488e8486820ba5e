// Every kind of request against a real server on a unix socket.

#include "client/tools/load/check.h"

#include <unistd.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/tools/load/engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/service/server.h"

namespace posenc::load {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);

class CheckTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = absl::StrCat(testing::TempDir(), "posenc-load-", getpid(), ".sock");
    server::ServerOptions options;
    options.listen = {"unix:" + path_};
    auto server = server::Server::Start(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    auto channels = ConnectAll("unix:" + path_, 2, true, kPatience);
    ASSERT_TRUE(channels.ok()) << channels.status();
    channels_ = *std::move(channels);
  }
  void TearDown() override {
    channels_.clear();
    server_.reset();
    unlink(path_.c_str());
  }

  static WorkloadOptions Everything() {
    WorkloadOptions options;
    options.mix = {{"ApplyRope", 4},
                   {"Reposition", 1},
                   {"BuildTable", 1},
                   {"AddEncoding", 1},
                   {"ResolveRope", 1}};
    options.shapes = {{1, 5, 3, 128}, {2, 7, 1, 64}};
    options.dtypes = {v1::DTYPE_FLOAT32, v1::DTYPE_FLOAT16, v1::DTYPE_BFLOAT16,
                      v1::DTYPE_FLOAT64};
    options.variants = 2;
    return options;
  }

  std::string path_;
  std::unique_ptr<server::Server> server_;
  std::vector<std::shared_ptr<grpc::Channel>> channels_;
  SteadyClock clock_;
};

TEST_F(CheckTest, ARunOverAUnixSocketHasEveryAnswerRight) {
  auto workload = BuildWorkload(Everything());
  ASSERT_TRUE(workload.ok()) << workload.status();
  ASSERT_EQ(workload->size(), 4u * 2 * 4 + 1);
  Engine engine(&*workload, channels_, 2, &clock_);
  const absl::Status learned =
      engine.Learn(&*workload, kPatience,
                   [](const Case& one, const std::string& request,
                      const std::string& answer) {
                     return CheckAnswer(one.rpc, request, answer, nullptr);
                   });
  ASSERT_TRUE(learned.ok()) << learned;
  StepOptions step;
  step.warm_up = absl::ZeroDuration();
  step.calls = 500;
  step.in_flight = 12;
  step.timeout = kPatience;
  step.verify = 1;

  const StepResult result = engine.Run(step, nullptr);

  EXPECT_EQ(result.total.ok, 500);
  EXPECT_EQ(result.total.verified, 500);
  EXPECT_EQ(result.total.wrong, 0) << result.total.first_wrong;
  EXPECT_TRUE(result.total.errors.empty());
  EXPECT_EQ(result.ErrorRate(), 0);
  std::int64_t by_case = 0;
  for (const Histogram& one : result.cases) by_case += one.count();
  EXPECT_EQ(by_case, 500);
  // ApplyRope has half of the weight: 250 calls are expected, with a standard
  // deviation of 11.
  std::int64_t applied = 0;
  for (int i = 0; i < 8; ++i) applied += result.cases[i].count();
  EXPECT_NEAR(applied, 250, 5 * 11.2);
}

TEST_F(CheckTest, AnAnswerWithOneOtherElementIsWrong) {
  auto workload = BuildWorkload(Everything());
  ASSERT_TRUE(workload.ok()) << workload.status();
  Engine engine(&*workload, channels_, 1, &clock_);
  int altered = 0;
  const absl::Status learned = engine.Learn(
      &*workload, kPatience,
      [&](const Case& one, const std::string& request, std::string answer) {
        if (one.rpc != "ApplyRope" && one.rpc != "Reposition") {
          return absl::OkStatus();
        }
        // The tensor comes last: this changes some ulps of its last element in
        // 16-bit types, and more in other types.
        answer[answer.size() - 2] ^= 0x10;
        const absl::Status status =
            CheckAnswer(one.rpc, request, answer, nullptr);
        EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << one.name;
        ++altered;
        return absl::OkStatus();
      });
  ASSERT_TRUE(learned.ok()) << learned;
  EXPECT_EQ(altered, 2 * 2 * 4 * 2);
}

TEST_F(CheckTest, AnAnswerOfAnotherShapeIsWrong) {
  v1::ApplyRopeRequest request;
  request.mutable_q()->set_dtype(v1::DTYPE_FLOAT32);
  for (const int extent : {1, 1, 1, 2}) request.mutable_q()->add_shape(extent);
  request.mutable_q()->set_data(std::string(8, '\0'));
  v1::ApplyRopeResponse response;
  *response.mutable_q() = request.q();
  EXPECT_TRUE(CheckAnswer("ApplyRope", request.SerializeAsString(),
                          response.SerializeAsString(), nullptr)
                  .ok());
  response.mutable_q()->set_shape(3, 1);
  EXPECT_EQ(CheckAnswer("ApplyRope", request.SerializeAsString(),
                        response.SerializeAsString(), nullptr)
                .message(),
            "ApplyRope: the answer is [1, 1, 1, 1] of float32; must be "
            "[1, 1, 1, 2] of float32");
}

TEST_F(CheckTest, PresetsAreCheckedWithTheirOwnFrequencies) {
  WorkloadOptions options = Everything();
  options.preset = "llama-3.1-8b";
  options.shapes = {{1, 5, 2, 128}};
  auto workload = BuildWorkload(options);
  ASSERT_TRUE(workload.ok()) << workload.status();
  v1::ResolveRopeRequest resolve;
  resolve.mutable_rope()->set_preset(options.preset);
  const auto rope = Client(channels_[0], kPatience).ResolveRope(resolve);
  ASSERT_TRUE(rope.ok()) << rope.status();
  int rejected = 0;

  const absl::Status learned =
      Engine(&*workload, channels_, 1, &clock_)
          .Learn(&*workload, kPatience,
                 [&](const Case& one, const std::string& request,
                     const std::string& answer) {
                   // The request's frequencies are not 10000^(-2i/d).
                   if (one.rpc == "ApplyRope") {
                     rejected +=
                         !CheckAnswer(one.rpc, request, answer, nullptr).ok();
                   }
                   return CheckAnswer(one.rpc, request, answer, &*rope);
                 });

  EXPECT_TRUE(learned.ok()) << learned;
  EXPECT_EQ(rejected, 8);
}

TEST_F(CheckTest, EncodingsThatAreNotCheckedAreRefused) {
  WorkloadOptions options;
  options.shapes = {{1, 1, 1, 128}};
  const auto workload = BuildWorkload(options);
  ASSERT_TRUE(workload.ok()) << workload.status();
  v1::ResolveRopeResponse rope;
  rope.mutable_spec()->mutable_xpos();
  EXPECT_EQ(CheckAnswer("ApplyRope",
                        BytesOf((*workload)[0].requests[0].message), "", &rope)
                .code(),
            absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace posenc::load
