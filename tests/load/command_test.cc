// The posenc-load command: exit codes, messages, files.

#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "client/tools/load/report.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/version.h"
#include "server/service/server.h"
#include "tests/fixtures/eventually.h"
#include "tests/fixtures/load_command.h"

namespace posenc::load {
namespace {

using testing::HasSubstr;

class LoadCommandTest : public testing::Test {
 protected:
  void SetUp() override {
    base_ = absl::StrCat(testing::TempDir(), "posenc-load-command-", getpid());
    server::ServerOptions options;
    options.listen = {absl::StrCat("unix:", base_, ".sock")};
    options.shared_memory.prefix =
        absl::StrCat("/dev/shm/posenc_load_", getpid(), "_");
    auto server = server::Server::Start(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  void TearDown() override {
    server_.reset();
    for (const char* ending : {".sock", ".json", ".html", ".pid"}) {
      unlink((base_ + ending).c_str());
    }
  }

  Outcome RunAtServer(const std::string& arguments) {
    return RunLoad(absl::StrCat("--server unix:", base_,
                                ".sock --warm-up 0s --timeout 60s ",
                                arguments));
  }

  // Returns what --json wrote.
  Json Report() const {
    std::ifstream file(base_ + ".json");
    Json report = Json::parse(file, nullptr, false);
    EXPECT_TRUE(report.is_object());
    return report.is_object() ? report : Json{{"steps", Json::array()}};
  }

  std::string base_;
  std::unique_ptr<server::Server> server_;
};

TEST_F(LoadCommandTest, TensorsInSharedMemoryAreVerified) {
  for (const char* const mode : {"", "in-place", "out-of-place"}) {
    const Outcome run = RunAtServer(absl::StrCat(
        "--shared-memory ", mode,
        " --calls 100 --in-flight 4 --verify 0.5 --dtype float32,bfloat16 "
        "--size 4KiB,64KiB --variants 2 "
        "--mix ApplyRope,Reposition,AddEncoding,BuildTable,ResolveRope"));
    EXPECT_EQ(run.exit_code, 0) << run.out;
    EXPECT_THAT(run.out, HasSubstr("compared bit for bit, 0 differ\n"));
  }
}

TEST_F(LoadCommandTest, SharedMemoryNeedsAServerThatHasIt) {
  server::ServerOptions options;
  options.listen = {absl::StrCat("unix:", base_, ".off.sock")};
  auto off = server::Server::Start(options);
  ASSERT_TRUE(off.ok()) << off.status();
  const Outcome run = RunLoad(absl::StrCat(
      "--server unix:", base_, ".off.sock --calls 1 --shared-memory"));
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.out,
              HasSubstr("--shared-memory: the server shares no memory"));
}

TEST_F(LoadCommandTest, WritesItsReports) {
  const Outcome run = RunAtServer(absl::StrCat(
      "--calls 200 --in-flight 1,8 --verify 1 --dtype float32,bfloat16 "
      "--size 4KiB --connections 2 --threads 2 --json ",
      base_, ".json --html ", base_, ".html"));
  ASSERT_EQ(run.exit_code, 0) << run.out;
  EXPECT_THAT(run.out, HasSubstr("8 in flight: 200 answers compared bit for "
                                 "bit, 0 differ\n"));
  const Json report = Report();
  ASSERT_EQ(report["steps"].size(), 2u);
  for (const Json& step : report["steps"]) {
    EXPECT_EQ(step["ok"], 200);
    EXPECT_EQ(step["failed"], 0);
    EXPECT_EQ(step["verified"], 200);
    EXPECT_EQ(step["cases"].size(), 2u);
  }
  EXPECT_EQ(report["settings"]["loop"], "closed");
  EXPECT_EQ(report["server"]["version"], server::kVersion);
  EXPECT_EQ(report["interrupted"], false);
}

TEST_F(LoadCommandTest, AnInterruptedRunReportsWhatItHasAndFails) {
  std::thread interrupter([this] {
    pid_t pid = 0;
    EXPECT_TRUE(test::Eventually([&] {
      std::ifstream(base_ + ".pid") >> pid;
      return pid > 0 && server_->Status().calls_in_progress > 0;
    }));
    EXPECT_EQ(kill(pid, SIGTERM), 0);
  });
  const Outcome run = RunAtServer(
      absl::StrCat("--duration 10m --in-flight 8 --size 4MiB --json ", base_,
                   ".json 2>&1 & echo $! >", base_, ".pid; wait $!"));
  interrupter.join();
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.out, HasSubstr("interrupted"));
  EXPECT_EQ(Report()["interrupted"], true);
}

TEST_F(LoadCommandTest, RotatesFloat8AndLeavesItOutOfWhatHasNone) {
  const std::string flags =
      "--calls 20 --verify 1 --dtype float8_e4m3fn,float8_e5m2 --size 4KiB ";
  const Outcome run = RunAtServer(flags + "--mix ApplyRope:1,Reposition:1");
  ASSERT_EQ(run.exit_code, 0) << run.out;
  EXPECT_THAT(run.out, HasSubstr("20 answers compared bit for bit, 0 differ"));
  const Outcome table = RunAtServer(flags + "--mix BuildTable:1");
  EXPECT_EQ(table.exit_code, 2);
  EXPECT_THAT(table.out, HasSubstr("--dtype: BuildTable takes no "
                                   "float8_e4m3fn"));
}

TEST_F(LoadCommandTest, AFlagWithNothingBehindItsSignTakesNoArgument) {
  const Outcome run = RunAtServer("--preset= --calls 1");
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.out, HasSubstr("--preset: '--preset=' has no value"));
}

TEST_F(LoadCommandTest, MakesAllCallsOfAnOpenLoop) {
  const Outcome run = RunAtServer(absl::StrCat(
      "--rates 2000,4000 --calls 100 --arrivals poisson --size 4KiB --mix "
      "ApplyRope,BuildTable,ResolveRope --json ",
      base_, ".json"));
  ASSERT_EQ(run.exit_code, 0) << run.out;
  const Json report = Report();
  ASSERT_EQ(report["steps"].size(), 2u);
  EXPECT_EQ(report["steps"][0]["rate"], 2000);
  EXPECT_EQ(report["steps"][1]["ok"], 100);
}

TEST_F(LoadCommandTest, FindsARateThatHoldsALooseBound) {
  // A busy machine may finish no call in 50 ms.
  const Outcome run = RunAtServer(
      "--find-capacity --p99 100s --duration 1s --max-steps 2 --size 4KiB "
      "--max-error-rate 1");
  EXPECT_EQ(run.exit_code, 0) << run.out;
  EXPECT_THAT(run.out, testing::ContainsRegex(
                           "capacity: [0-9]+ calls/s with p99 under 100 s\n"));
}

TEST_F(LoadCommandTest, FailsWhereNoRateHoldsItsBound) {
  const Outcome run = RunAtServer(
      "--find-capacity --p99 1ns --duration 50ms --max-steps 2 --size 4KiB");
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.out, HasSubstr("--p99: no rate has its p99 under 1ns"));
}

TEST_F(LoadCommandTest, OffersMultiplesOfThePeak) {
  const Outcome run = RunAtServer(
      absl::StrCat("--overload 0.5,2 --in-flight 4,8 --duration 200ms --size "
                   "4KiB --html ",
                   base_, ".html --json ", base_, ".json"));
  ASSERT_EQ(run.exit_code, 0) << run.out;
  EXPECT_THAT(run.out, HasSubstr("goodput against offered load; peak "));
  const Json report = Report();
  ASSERT_EQ(report["steps"].size(), 4u);
  ASSERT_EQ(report["overload"].size(), 2u);
  const double peak = report["peak"];
  EXPECT_GT(peak, 0);
  EXPECT_NEAR(report["overload"][0]["offered_per_second"].get<double>(),
              peak / 2, 1e-3 * peak);
  EXPECT_EQ(report["settings"]["retry"], false);
}

TEST_F(LoadCommandTest, LoopsThatFindThePeakMayFailInPart) {
  server_.reset();
  server::ServerOptions options;
  options.listen = {absl::StrCat("unix:", base_, ".sock")};
  options.limits.max_request_bytes = 64 << 10;
  auto server = server::Server::Start(options);
  ASSERT_TRUE(server.ok()) << server.status();
  server_ = *std::move(server);
  const Outcome run = RunAtServer(
      "--overload 0.5 --in-flight 4 --duration 200ms --size 4KiB,1MiB "
      "--verify 0");
  EXPECT_EQ(run.exit_code, 0) << run.out;
  EXPECT_THAT(run.out, HasSubstr(" x RESOURCE_EXHAUSTED"));
  EXPECT_THAT(run.out, HasSubstr("at most 2048 calls in flight\n"));
}

TEST_F(LoadCommandTest, ErrorsBeyondTheLimitAreExitCode1) {
  const std::string unknown =
      "--preset no-such-model --calls 10 --mix ResolveRope ";
  const Outcome strict = RunAtServer(unknown);
  EXPECT_EQ(strict.exit_code, 1) << strict.out;
  EXPECT_THAT(strict.out, HasSubstr("10 x NOT_FOUND"));
  EXPECT_THAT(strict.out,
              HasSubstr("error rate is 1; the limit is 0 (--max-error-rate)"));
  EXPECT_EQ(RunAtServer(unknown + "--max-error-rate 1").exit_code, 0);
}

TEST_F(LoadCommandTest, VerifyFailsWhereTheFirstAnswerIsAnError) {
  const Outcome run =
      RunAtServer("--preset no-such-model --calls 1 --verify 1");
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.out, testing::StartsWith("posenc-load: NOT_FOUND: "));
}

TEST_F(LoadCommandTest, PathsThatCannotBeWrittenFailBeforeTheRun) {
  for (const char* flag : {"--json", "--html"}) {
    const Outcome run =
        RunAtServer(absl::StrCat("--calls 1 ", flag, " /no/such/dir/file"));
    EXPECT_EQ(run.exit_code, 1);
    EXPECT_EQ(run.out,
              "posenc-load: PERMISSION_DENIED: /no/such/dir/file: cannot be "
              "written\n");
  }
}

TEST(LoadUsageTest, MistakesAreOneLineAndExitCode2) {
  const std::string server = "--server unix:/nowhere ";
  const std::pair<std::string, const char*> mistakes[] = {
      {"", "--server: missing; must be an address"},
      {server + "--rates fast", "--rates: \"fast\"; must be"},
      {server + "--in-flight 0", "--in-flight: \"0\"; must be"},
      {server + "--duration 10", "--duration: \"10\"; must be"},
      {server + "--size 64k", "--size: \"64k\"; must be"},
      {server + "--size 100", "--size: \"100B\"; must be a multiple"},
      {server + "--mix Rope", "--mix: \"Rope\"; must be"},
      {server + "--dtype int8", "--dtype: \"int8\"; must be"},
      {server + "--shape 1x2", "--shape: \"1x2\"; must be"},
      {server + "--verify 2", "--verify"},
      {server + "--verify nan", "--verify: nan: no number from 0 to 1"},
      {server + "--max-error-rate nan", "--max-error-rate: nan"},
      {server + "--calls 0", "--calls"},
      {server + "--arrivals bursts", "--arrivals"},
      {server + "--rates 1 --in-flight 1", "--in-flight excludes --rates"},
      {server + "--overload 2,x", "--overload: \"2,x\"; must be"},
      {server + "--overload 2 --rates 1", "--rates excludes --overload"},
      {server + "--calls 1 --duration 1s", "--duration excludes --calls"},
      {server + "--nonsense", "--nonsense"},
  };
  for (const auto& [arguments, message] : mistakes) {
    const Outcome run = RunLoad(arguments);
    EXPECT_EQ(run.exit_code, 2) << arguments << "\n" << run.out;
    EXPECT_THAT(run.out,
                testing::StartsWith("posenc-load: INVALID_ARGUMENT: "));
    EXPECT_THAT(run.out, HasSubstr(message));
    EXPECT_EQ(std::count(run.out.begin(), run.out.end(), '\n'), 1) << run.out;
  }
}

TEST(LoadUsageTest, AnAbsentServerIsExitCode1) {
  const Outcome run =
      RunLoad("--server unix:/nowhere/posenc.sock --calls 1 --timeout 200ms");
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_EQ(run.out,
            "posenc-load: UNAVAILABLE: --server: no connection to "
            "unix:/nowhere/posenc.sock within 200ms, or it is not serving\n");
}

}  // namespace
}  // namespace posenc::load
