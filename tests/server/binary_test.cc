// posencd as a process: flags, ready file, signals, exit codes, its log.

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "server/base/machine.h"
#include "server/base/version.h"
#include "tests/fixtures/core/instruction_sets.h"
#include "tests/fixtures/eventually.h"
#include "tests/fixtures/http2.h"
#include "tests/fixtures/posencd.h"
#include "tests/fixtures/server.h"

namespace posenc::server {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// Returns a server's information about itself.
v1::GetServerInfoResponse Info(const std::string& address) {
  auto stub = v1::PositionalEncodingService::NewStub(Connect(address));
  grpc::ClientContext context;
  context.set_deadline(Deadline());
  v1::GetServerInfoResponse info;
  const grpc::Status status =
      stub->GetServerInfo(&context, v1::GetServerInfoRequest(), &info);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return info;
}

TEST_F(BinaryTest, ServesUntilSigtermAndRemovesItsFiles) {
  const char* const baseline = reference::kInstructionSets[0];
  Process process({"--listen", "127.0.0.1:0", "--listen", "unix:" + socket(),
                   "--ready-file", ready_file(), "--max-request-bytes", "64MiB",
                   "--max-response-bytes", "12345", "--threads", "1",
                   "--keepalive-min-interval", "90s"},
                  absl::StrCat("POSENC_FORCE_ISA=", baseline));
  const std::vector<std::string> addresses = AwaitReady();
  ASSERT_EQ(addresses.size(), 2u);
  EXPECT_THAT(process.ReadLine(),
              HasSubstr(absl::StrCat(
                  "\"msg\":\"posencd ", kVersion, " listening on ",
                  addresses[0], ", unix:", socket(), "; instruction set ",
                  baseline, "\",\"threads\":1,\"usable_cpus\":", UsableCpus(),
                  ",\"keepalive_min_interval\":\"1m30s\"}")));
  for (const std::string& address : addresses) {
    const v1::GetServerInfoResponse info = Info(address);
    EXPECT_EQ(info.instruction_set(), baseline);
    EXPECT_EQ(info.limits().max_request_bytes(), 64 << 20);
    EXPECT_EQ(info.limits().max_response_bytes(), 12345);
  }
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0);
  EXPECT_NE(access(ready_file().c_str(), F_OK), 0);
  EXPECT_NE(access(socket().c_str(), F_OK), 0);
}

TEST_F(BinaryTest, SigintStopsItToo) {
  Process process(Flags());
  ASSERT_EQ(AwaitReady().size(), 1u);
  process.Signal(SIGINT);
  EXPECT_EQ(process.Wait(), 0);
}

TEST_F(BinaryTest, EndsWithStandardInputIfAskedTo) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  Process process(Flags({"--exit-with-stdin"}), "", Process::Stdout::kPipe,
                  ends[0]);
  close(ends[0]);
  const std::string address = AwaitAddress();
  EXPECT_EQ(write(ends[1], "ignored", 7), 7);
  EXPECT_TRUE(Info(address).has_limits());
  close(ends[1]);
  EXPECT_EQ(process.Wait(), 0);
  EXPECT_NE(access(ready_file().c_str(), F_OK), 0);
}

TEST_F(BinaryTest, DoesNotStartWithoutTheStandardInputThatShallEndIt) {
  Process process({"--listen", "127.0.0.1:0", "--exit-with-stdin"}, "",
                  Process::Stdout::kPipe, Process::kClosedInput);
  EXPECT_THAT(process.ReadLine(), HasSubstr("standard input is closed"));
  EXPECT_EQ(process.Wait(), 2);
}

TEST_F(BinaryTest, ASecondSignalEndsTheDrainAtOnce) {
  Process process(
      Flags({"--drain-timeout", "10m", "--max-response-bytes", "1GiB"}));
  const std::string address = AwaitAddress();
  // A response that its client does not read keeps the drain from ending.
  v1::BuildTableRequest request;
  request.mutable_rope()->mutable_spec()->set_pairing(v1::PAIRING_HALF_SPLIT);
  request.mutable_rope()->mutable_spec()->set_rotary_dim(128);
  request.mutable_positions()->set_start(0);
  request.set_rows(std::int64_t{1} << 17);
  RawCall slow(Connect(address),
               "/posenc.v1.PositionalEncodingService/BuildTable");
  slow.WriteLast(request.SerializeAsString());
  slow.ReadHeaders();
  RawCall watch(Connect(address), "/grpc.health.v1.Health/Watch");
  watch.WriteLast("");
  std::string health;
  ASSERT_TRUE(watch.Read(&health));
  process.Signal(SIGTERM);
  ASSERT_TRUE(watch.Read(&health));  // draining
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 128 + SIGTERM);
  EXPECT_NE(access(ready_file().c_str(), F_OK), 0);
}

TEST_F(BinaryTest, BadFlagsEndInOneLineAndExitCode2) {
  const std::vector<std::vector<std::string>> cases = {
      {"--no-such-flag"},
      {"--max-request-bytes", "64MB"},
      {"--max-connection-age", "1h30"},
      {"--listen", "0.0.0.0:0"},
      {"--listen"},
  };
  for (const std::vector<std::string>& arguments : cases) {
    SCOPED_TRACE(arguments[0] + " " + arguments.back());
    Process process(arguments);
    const std::string line = process.ReadLine();
    EXPECT_THAT(line, AllOf(StartsWith("posencd: "), HasSubstr(arguments[0])));
    EXPECT_EQ(process.ReadAll(), "");
    EXPECT_EQ(process.Wait(), 2);
  }
}

TEST_F(BinaryTest, TheCheckRefusesWhatTheStartRefuses) {
  struct Case {
    std::vector<std::string> arguments;
    std::string environment, error;
  };
  const std::vector<Case> cases = {
      {{}, "POSENC_FORCE_ISA=avx10", "posencd: POSENC_FORCE_ISA: "},
      {{"--ready-file", "/nonexistent/ready"},
       "",
       "posencd: --ready-file: cannot write /nonexistent/ready: No such file "
       "or directory (command line)"},
      {{},
       "POSENC_READY_FILE=/proc/ready",
       "posencd: --ready-file: cannot write /proc/ready: "},
      {{}, "POSENC_OTLP_ENDPOINT=collector:4317", "posencd: --otlp-endpoint: "},
      {{"--listen", "127.0.0.1:7", "--listen", "127.0.0.1:7"},
       "",
       "posencd: --listen: 127.0.0.1:7: was given more than once"},
      {{"--shared-memory-prefix", "/dev/nosuch/x"},
       "",
       "posencd: --shared-memory-prefix: '/dev/nosuch/x' has a directory that "
       "cannot be used, /dev/nosuch/: No such file or directory"},
      {{"--shared-memory-prefix", "/proc/x"},
       "",
       "posencd: --shared-memory-prefix: '/proc/x' has a directory that is not "
       "on tmpfs or hugetlbfs, /proc/"},
      {{},
       "POSENC_SHARED_MEMORY_FROM=loopback",
       "posencd: --shared-memory-from: is of no use without "
       "--shared-memory-prefix"},
  };
  for (const auto& [arguments, environment, error] : cases) {
    SCOPED_TRACE(error);
    for (const bool check : {false, true}) {
      std::vector<std::string> flags = arguments;
      if (flags.empty() || flags[0] != "--listen") {
        flags.insert(flags.end(), {"--listen", "127.0.0.1:0"});
      }
      if (check) flags.emplace_back("--check-config");
      Process process(flags, environment);
      EXPECT_THAT(process.ReadLine(), StartsWith(error));
      EXPECT_EQ(process.ReadAll(), "");
      EXPECT_EQ(process.Wait(), 2);
    }
  }
}

TEST_F(BinaryTest, VersionAndHelpSucceed) {
  Process version({"--version"});
  EXPECT_EQ(version.ReadLine(), absl::StrCat("posencd ", kVersion, "\n"));
  EXPECT_THAT(version.ReadLine(),
              AllOf(HasSubstr("gRPC"), HasSubstr("compiler"),
                    HasSubstr("instruction set")));
  EXPECT_EQ(version.Wait(), 0);
  Process help({"--help"});
  EXPECT_THAT(help.ReadAll(),
              AllOf(HasSubstr("--listen"), HasSubstr("127.0.0.1:50051")));
  EXPECT_EQ(help.Wait(), 0);
}

TEST_F(BinaryTest, AnAddressThatCannotBeBoundIsExitCode2) {
  Process first(Flags());
  const std::string address = AwaitAddress();
  Process second({"--listen", address});
  EXPECT_EQ(second.Wait(), 2);
  EXPECT_EQ(second.ReadAll(),
            absl::StrCat("posencd: --listen: cannot listen on ", address,
                         ": Address already in use\n"));

  Process third({"--listen", "unix:/nonexistent/posenc.sock"});
  EXPECT_EQ(third.Wait(), 2);
  EXPECT_EQ(
      third.ReadAll(),
      "posencd: --listen: cannot listen on unix:/nonexistent/posenc.sock: "
      "/nonexistent/: No such file or directory\n");
}

TEST_F(BinaryTest, FlagsOverrideTheEnvironment) {
  Process wrong({}, "POSENC_MAX_WAITING=-1");
  EXPECT_THAT(wrong.ReadLine(), HasSubstr("--max-waiting: -1"));
  EXPECT_EQ(wrong.Wait(), 2);
  Process right(Flags({"--max-waiting", "1"}), "POSENC_MAX_WAITING=-1");
  EXPECT_EQ(AwaitReady().size(), 1u);
}

TEST_F(BinaryTest, ProbeTellsHealthByItsExitCode) {
  Process server(Flags());
  const std::string address = AwaitAddress();
  // The probe waits for only a second, which may be too short on a busy
  // machine.
  EXPECT_TRUE(test::Eventually([&] {
    return Process({"--probe", address}).Wait() == 0;
  }));
  EXPECT_TRUE(test::Eventually([&] {
    return Process({"--probe", address, "--probe-service", "posenc.liveness"})
               .Wait() == 0;
  }));
  Process unknown({"--probe", address, "--probe-service", "nobody"});
  EXPECT_THAT(unknown.ReadLine(), HasSubstr(address));
  EXPECT_EQ(unknown.Wait(), 1);
  Process absent({"--probe", "unix:/nonexistent/posenc.sock"});
  EXPECT_EQ(absent.Wait(), 1);
}

TEST_F(BinaryTest, LimitsBelowABudgetAreSaidWithBothNumbers) {
  Process process({"--listen", "127.0.0.1:0", "--in-flight-bytes", "1048576GiB",
                   "--ready-file", ready_file()});
  EXPECT_THAT(process.ReadLine(),
              AllOf(HasSubstr("\"severity\":\"WARNING\""),
                    HasSubstr(absl::StrCat(
                        "--in-flight-bytes: ", std::int64_t{1} << 50,
                        " bytes, but the memory limit is ", UsableMemory(),
                        "; a full server would be killed"))));
  EXPECT_EQ(AwaitReady().size(), 1u);
}

TEST_F(BinaryTest, TheFileConfiguresIt) {
  WriteConfig("listen = \"127.0.0.1:0\"\nmax-response-bytes = 12345\n");
  Process process({"--config", config_file(), "--ready-file", ready_file()});
  const std::string address = AwaitAddress();
  EXPECT_EQ(Info(address).limits().max_response_bytes(), 12345);
}

TEST_F(BinaryTest, TheConfigurationIsPrintedAndChecked) {
  WriteConfig("threads = 2\n");
  Process print({"--config", config_file(), "--print-config"});
  EXPECT_THAT(print.ReadAll(),
              HasSubstr("\nthreads = 2  # " + config_file() + ":1\n"));
  EXPECT_EQ(print.Wait(), 0);
  Process valid({"--config", config_file(), "--check-config"});
  EXPECT_EQ(valid.ReadAll(), "configuration is valid\n");
  EXPECT_EQ(valid.Wait(), 0);
  WriteConfig("threads = 2\n\nthread = 3\n");
  Process wrong({"--config", config_file(), "--check-config"});
  EXPECT_EQ(wrong.ReadAll(), "posencd: --thread: there is no such key (" +
                                 config_file() + ":3)\n");
  EXPECT_EQ(wrong.Wait(), 2);
  Process apart({"--in-flight-bytes", "1MiB", "--check-config"});
  EXPECT_THAT(apart.ReadAll(), AllOf(StartsWith("posencd: --in-flight-bytes: "),
                                     EndsWith(" (command line)\n")));
  EXPECT_EQ(apart.Wait(), 2);
}

TEST_F(BinaryTest, VariablesOfKubernetesAreAWarning) {
  Process process(Flags(), "POSENC_PORT=tcp://10.0.0.1:50051");
  EXPECT_EQ(AwaitReady().size(), 1u);
  EXPECT_THAT(process.ReadLine(), AllOf(HasSubstr("\"severity\":\"WARNING\""),
                                        HasSubstr("POSENC_PORT is")));
}

TEST_F(BinaryTest, CallsAreLoggedWithTheirIds) {
  Process process(Flags({"--log-calls", "1"}));
  const std::string address = AwaitAddress();
  EXPECT_THAT(process.ReadLine(), HasSubstr("listening on"));
  auto stub = v1::PositionalEncodingService::NewStub(Connect(address));
  grpc::ClientContext context;
  context.set_deadline(Deadline());
  context.AddMetadata("x-request-id", "a\"b");
  context.AddMetadata(
      "traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
  v1::GetServerInfoResponse info;
  EXPECT_TRUE(
      stub->GetServerInfo(&context, v1::GetServerInfoRequest(), &info).ok());
  EXPECT_THAT(
      process.ReadLine(),
      AllOf(HasSubstr("\"rpc.method\":\"GetServerInfo\""),
            HasSubstr("\"grpc.code\":\"OK\""),
            HasSubstr("\"peer\":\"ipv4:127.0.0.1:"),
            HasSubstr("\"request_id\":\"a\\\"b\""),
            HasSubstr("\"trace_id\":\"0af7651916cd43dd8448eb211c80319c\"")));
}

TEST_F(BinaryTest, SighupAppliesReloadableKeysAndLogsThem) {
  WriteConfig("max-waiting = 5\nlog-level = \"error\"\n");
  Process process(
      Flags({"--config", config_file(), "--default-deadline", "7m"}));
  ASSERT_EQ(AwaitReady().size(), 1u);
  WriteConfig(
      "max-waiting = 6\nthreads = 1\ndefault-deadline = \"8m\"\n"
      "log-level = \"info\"\n");
  process.Signal(SIGHUP);
  // The flag still overrides the file.
  EXPECT_THAT(process.ReadLine(), AllOf(HasSubstr("configuration reloaded"),
                                        HasSubstr("\"max-waiting\":\"5 -> 6\""),
                                        HasSubstr("log-level"),
                                        Not(HasSubstr("default-deadline"))));
  EXPECT_THAT(process.ReadLine(),
              AllOf(HasSubstr("restart"), HasSubstr("\"keys\":\"threads\"")));
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0);
}

TEST_F(BinaryTest, TheAdminPortTellsReloadedValuesWithTheirSource) {
  WriteConfig("");
  Process process(Flags({"--config", config_file(), "--admin", "127.0.0.1:0"}));
  ASSERT_EQ(AwaitReady().size(), 1u);
  EXPECT_THAT(process.ReadLine(), HasSubstr("listening on"));
  const std::string line = process.ReadLine();
  const std::size_t at = line.find("127.0.0.1:");
  ASSERT_NE(at, std::string::npos) << line;
  const std::string address = line.substr(at, line.find('"', at) - at);
  WriteConfig("max-waiting = 6\n");
  process.Signal(SIGHUP);
  EXPECT_THAT(process.ReadLine(), HasSubstr("configuration reloaded"));
  std::string page;
  EXPECT_TRUE(test::Eventually([&] {
    page = http2::Socket(address).Ask("GET /config HTTP/1.0\r\n\r\n");
    return absl::StrContains(page, "\nmax-waiting = 6  # ");
  }));
  EXPECT_THAT(page, HasSubstr(absl::StrCat("\nmax-waiting = 6  # ",
                                           config_file(), ":1\n")));
}

TEST_F(BinaryTest, AWrongFileAtSighupChangesNothing) {
  WriteConfig("max-waiting = 5\n");
  Process process(Flags({"--config", config_file()}));
  ASSERT_EQ(AwaitReady().size(), 1u);
  EXPECT_THAT(process.ReadLine(), HasSubstr("listening on"));
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"max-waiting = 6\nlog-calls = 2\n", "posenc.toml:2"},
      {"max-waiting = 6\nin-flight-bytes = 1\n", "posenc.toml:2"},
      {"[", "posenc.toml:1"},
  };
  for (const auto& [text, source] : wrong) {
    WriteConfig(text);
    process.Signal(SIGHUP);
    EXPECT_THAT(
        process.ReadLine(),
        AllOf(HasSubstr("\"severity\":\"ERROR\""),
              HasSubstr("configuration not reloaded"), HasSubstr(source)));
  }
  unlink(config_file().c_str());
  process.Signal(SIGHUP);
  EXPECT_THAT(process.ReadLine(), HasSubstr("No such file"));
  // The value is still 5, because 6 had no effect.
  WriteConfig("max-waiting = 7\n");
  process.Signal(SIGHUP);
  EXPECT_THAT(process.ReadLine(), HasSubstr("\"max-waiting\":\"5 -> 7\""));
}

TEST_F(BinaryTest, ServesAndDrainsWithoutAReaderOfStdout) {
  for (const Process::Stdout out :
       {Process::Stdout::kFullPipe, Process::Stdout::kNobodyReads,
        Process::Stdout::kClosed, Process::Stdout::kFullDisk}) {
    SCOPED_TRACE(static_cast<int>(out));
    Process process(Flags({"--log-calls", "1"}), "", out);
    const std::string address = AwaitAddress();
    for (int i = 0; i < 10; ++i) Info(address);
    process.Signal(SIGHUP);
    Info(address);
    process.Signal(SIGTERM);
    EXPECT_EQ(process.Wait(), 0);
    EXPECT_EQ(process.ReadAll(), "");  // nothing on stderr
  }
}

TEST_F(BinaryTest, TheOldestConnectionsAreToldToConnectAnew) {
  Process server(Flags({"--max-connection-age", "100ms"}));
  const std::string address = AwaitAddress();
  const auto channel = Connect(address);
  ASSERT_TRUE(channel->WaitForConnected(Deadline()));
  // The channel becomes idle, and disconnects, once it got GOAWAY.
  EXPECT_TRUE(channel->WaitForStateChange(GRPC_CHANNEL_READY, Deadline()));
}

// The client reads as fast as the server writes, so the server's only loop
// always has a ready event.
TEST_F(BinaryTest, AStreamOfSmallMessagesDoesNotKeepOthersWaiting) {
  const Process process({"--listen", "unix:" + socket(), "--ready-file",
                         ready_file(), "--threads", "2"});
  const std::string address = AwaitAddress();
  v1::BuildBiasRequest bias;
  bias.mutable_bias()->mutable_alibi()->set_heads(1);
  bias.set_query_length(1);
  bias.set_key_length(std::numeric_limits<std::int32_t>::max());
  bias.set_query_tile(1);
  bias.set_key_tile(1);
  http2::Socket stream(address);
  stream.Send(
      http2::kOpenWindows +
      http2::CallHeaders("/posenc.v1.PositionalEncodingService/BuildBias", 1) +
      http2::LastMessage(1, bias.SerializeAsString()));
  std::atomic<std::int64_t> read{0};
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    char some[4096];
    ssize_t size = 0;
    while (!stop.load() &&
           (size = recv(stream.fd(), some, sizeof(some), 0)) > 0) {
      read += size;
    }
  });
  EXPECT_TRUE(test::Eventually([&] { return read.load() > 1 << 16; }));
  for (int i = 0; i < 10; ++i) Info(address);
  stop.store(true);
  reader.join();
}

}  // namespace
}  // namespace posenc::server
