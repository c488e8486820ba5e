// The log's lines, and a descriptor that accepts no bytes.

#include "server/log/log.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "nlohmann/json.hpp"
#include "posenc/compat.h"
#include "server/log/call_log.h"
#include "server/log/grpc_log.h"
#include "server/log/rate_limit.h"

namespace posenc::server {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr absl::Duration kPatience = absl::Seconds(60);

// Returns the message of a line, as JSON.
std::string Escaped(const std::string& text) {
  const std::string line = FormatLogLine(LogFormat::kText, absl::UnixEpoch(),
                                         LogLevel::kInfo, text, {});
  const std::size_t begin = line.find('"');
  return line.substr(begin, line.size() - begin - 1);
}

TEST(LogLineTest, AnyBytesAreJsonOfAsciiWithoutControls) {
  // The texts are every pair of bytes, followed by an ASCII byte.
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      const std::string text = {static_cast<char>(first),
                                static_cast<char>(second), 'x'};
      const std::string escaped = Escaped(text);
      ASSERT_TRUE(json::accept(escaped)) << first << " " << second;
      for (const char c : escaped) {
        ASSERT_TRUE(c >= 0x20 && c < 0x7F) << first << " " << second;
      }
    }
  }
}

TEST(LogLineTest, ValidTextReadsBackToTheSame) {
  for (const std::string text :
       {"", "plain", "quote \" and \\", "tab\tline\nbell\a", "\x7f", "\xC2\x80",
        "\xC3\xA9", "\xE2\x82\xAC", "\xED\x9F\xBF", "\xEE\x80\x80",
        "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_EQ(json::parse(Escaped(text)), text);
  }
  EXPECT_EQ(json::parse(Escaped(std::string("a\0b", 3))),
            std::string("a\0b", 3));
}

TEST(LogLineTest, InvalidUtf8IsReplaced) {
  const std::string mark = "\xEF\xBF\xBD";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"a\xFFz", "a" + mark + "z"},
      {"\xC0\xAF", mark + mark},                        // overlong
      {"\xE0\x80\xAF", mark + mark + mark},             // overlong
      {"\xED\xA0\x80", mark + mark + mark},             // a surrogate
      {"\xF4\x90\x80\x80", mark + mark + mark + mark},  // beyond Unicode
      {"\xE2\x82", mark},                               // cut off
  };
  for (const auto& [text, shown] : cases) {
    EXPECT_EQ(json::parse(Escaped(text)), shown);
  }
}

TEST(LogLineTest, LongTextsAreCutBetweenCharacters) {
  const std::string long_text(1023, 'a');
  EXPECT_EQ(Escaped(long_text + "bc"), "\"" + long_text + "b...\"");
  EXPECT_EQ(Escaped(long_text + "b"), "\"" + long_text + "b\"");
  EXPECT_EQ(Escaped(long_text + "\xE2\x82\xAC"), "\"" + long_text + "...\"");
}

TEST(LogLineTest, JsonHasTimeSeverityMessageAndFields) {
  const std::string line =
      FormatLogLine(LogFormat::kJson, absl::FromUnixMicros(1234567),
                    LogLevel::kWarning, "a \"message\"",
                    {{"text", absl::string_view("x\ny")},
                     {"count", std::int64_t{5}},
                     {"seconds", 0.25}});
  EXPECT_EQ(line,
            "{\"time\":\"1970-01-01T00:00:01.234567Z\",\"severity\":"
            "\"WARNING\",\"msg\":\"a \\\"message\\\"\",\"text\":\"x\\ny\","
            "\"count\":5,\"seconds\":0.25}\n");
  EXPECT_TRUE(json::accept(line));
}

TEST(LogLineTest, TextIsOneLineToo) {
  EXPECT_EQ(FormatLogLine(LogFormat::kText, absl::UnixEpoch(), LogLevel::kInfo,
                          "a\nb", {{"peer", absl::string_view("c d")}}),
            "1970-01-01T00:00:00.000000Z INFO \"a\\nb\" peer=\"c d\"\n");
}

// A log that writes into a pipe.
class LogTest : public testing::Test {
 protected:
  LogTest() {
    signal(SIGPIPE, SIG_IGN);
    EXPECT_EQ(pipe2(ends_, O_CLOEXEC), 0);
    log_ = std::make_shared<Log>(ends_[1], LogLevel::kInfo, LogFormat::kJson);
  }
  ~LogTest() override {
    CloseReader();
    log_.reset();
    close(ends_[1]);
  }
  void CloseReader() {
    if (ends_[0] >= 0) close(ends_[0]);
    ends_[0] = -1;
  }
  // Returns the next line as JSON.
  json Read() {
    std::string line;
    pollfd poller = {ends_[0], POLLIN, 0};
    char c = 0;
    while (c != '\n' && poll(&poller, 1, 60000) == 1 &&
           read(ends_[0], &c, 1) == 1) {
      line += c;
    }
    return json::parse(line, nullptr, false);
  }
  bool NothingToRead() {
    EXPECT_TRUE(log_->Flush(kPatience));
    pollfd poller = {ends_[0], POLLIN, 0};
    return poll(&poller, 1, 0) == 0;
  }

  int ends_[2];
  std::shared_ptr<Log> log_;
};

TEST_F(LogTest, LinesComeInTheirOrder) {
  for (std::int64_t i = 0; i < 100; ++i) {
    log_->Write(LogLevel::kInfo, "line", {{"i", i}});
  }
  for (std::int64_t i = 0; i < 100; ++i) EXPECT_EQ(Read()["i"], i);
}

TEST_F(LogTest, TheLevelMayChangeWhileItRuns) {
  log_->Write(LogLevel::kDebug, "too low");
  EXPECT_TRUE(NothingToRead());
  log_->set_level(LogLevel::kDebug);
  log_->Write(LogLevel::kDebug, "now");
  EXPECT_EQ(Read()["msg"], "now");
  log_->set_level(LogLevel::kError);
  log_->Write(LogLevel::kWarning, "too low");
  EXPECT_TRUE(NothingToRead());
}

TEST_F(LogTest, AReaderThatStopsLosesLinesAndIsToldHowMany) {
  // More than the queue and the pipe can hold.
  constexpr std::int64_t kLines = 5000;
  const std::string filler(1000, 'x');
  for (std::int64_t i = 0; i < kLines; ++i) {
    log_->Write(LogLevel::kInfo, filler);
  }
  std::int64_t seen = 0, told = 0;
  while (seen + told < kLines) {
    const json line = Read();
    ASSERT_FALSE(line.is_discarded());
    if (line["msg"] == filler) {
      ++seen;
    } else {
      told += line["dropped"].get<std::int64_t>();
    }
  }
  EXPECT_EQ(seen + told, kLines);
  EXPECT_GT(told, 0);
  log_->Write(LogLevel::kInfo, "after");
  EXPECT_EQ(Read()["msg"], "after");
}

TEST_F(LogTest, WithoutAReaderLinesAreDropped) {
  CloseReader();
  for (int i = 0; i < 100; ++i) log_->Write(LogLevel::kInfo, "nobody reads");
  EXPECT_TRUE(log_->Flush(kPatience));
}

TEST_F(LogTest, AReaderThatNeverReadsDoesNotKeepTheLogFromEnding) {
  const std::string filler(1000, 'x');
  for (int i = 0; i < 5000; ++i) log_->Write(LogLevel::kInfo, filler);
  EXPECT_FALSE(log_->Flush(absl::Milliseconds(1)));
  log_.reset();
}

TEST_F(LogTest, ManyThreadsWriteWholeLines) {
  constexpr int kThreads = 8, kLines = 200;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([this] {
      for (int i = 0; i < kLines; ++i) log_->Write(LogLevel::kInfo, "line");
    });
  }
  for (int i = 0; i < kThreads * kLines; ++i) {
    EXPECT_EQ(Read()["msg"], "line");
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(FullDiskTest, LinesAreDropped) {
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(full, 0);
  Log log(full, LogLevel::kInfo, LogFormat::kJson);
  for (int i = 0; i < 100; ++i) log.Write(LogLevel::kInfo, "line");
  EXPECT_TRUE(log.Flush(kPatience));
  close(full);
}

TEST(FullDiskTest, ALineThatWasTornDoesNotSpoilTheNext) {
  signal(SIGXFSZ, SIG_IGN);
  char name[] = "/tmp/posenc-log-XXXXXX";
  const int file = mkostemp(name, O_CLOEXEC);
  ASSERT_GE(file, 0);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  {
    Log log(file, LogLevel::kInfo, LogFormat::kJson);
    // The limit stops writing in the middle of the line.
    const rlimit small = {100, before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    log.Write(LogLevel::kInfo, std::string(500, 'x'));
    EXPECT_TRUE(log.Flush(kPatience));
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    log.Write(LogLevel::kInfo, "after");
    EXPECT_TRUE(log.Flush(kPatience));
  }
  std::string text(4096, '\0');
  text.resize(pread(file, text.data(), text.size(), 0));
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  ASSERT_EQ(lines.size(), 4u) << text;
  EXPECT_EQ(lines[0].size(), 100u);
  EXPECT_EQ(json::parse(lines[1])["msg"], "after");
  EXPECT_EQ(json::parse(lines[2])["dropped"], 1);
  close(file);
  unlink(name);
}

TEST_F(LogTest, GrpcsLinesAreLogged) {
  SendGrpcLogTo(log_);
  for (int i = 0; i < 50; ++i) {
    compat::LogError("a/b/place.cc", 7, absl::StrCat("peer ", i).c_str());
  }
  compat::LogError("a/b/other.cc", 8, "other");
  SilenceGrpcLog();
  const json first = Read();
  EXPECT_EQ(first["msg"], "peer 0");
  EXPECT_EQ(first["severity"], "ERROR");
  EXPECT_EQ(first["logger"], "grpc");
  EXPECT_EQ(first["source"], "place.cc:7");
  // Many lines from one place do not suppress the lines of other places.
  int lines = 1;
  while (Read()["msg"] != "other") ++lines;
  EXPECT_LT(lines, 50);
}

TEST(RateLimitTest, AllowsABurstAndThenAFixedRate) {
  RateLimit limit(2, 1);
  const absl::Time start = absl::FromUnixSeconds(1000);
  EXPECT_EQ(limit.Allow(start), 0);
  EXPECT_EQ(limit.Allow(start), 0);
  EXPECT_EQ(limit.Allow(start), std::nullopt);
  EXPECT_EQ(limit.Allow(start), std::nullopt);
  EXPECT_EQ(limit.Allow(start + absl::Seconds(1)), 2);
  EXPECT_EQ(limit.Allow(start + absl::Seconds(1)), std::nullopt);
  // The clock goes back.
  EXPECT_EQ(limit.Allow(start), std::nullopt);
  // Lines that were counted before are not counted again.
  EXPECT_EQ(limit.Allow(start + absl::Seconds(1)), 2);
}

using CallLogTest = LogTest;

CallRecord RecordOf(grpc::StatusCode code, absl::string_view reason = "") {
  CallRecord record;
  record.service = "posenc.v1.PositionalEncodingService";
  record.method = "ApplyRope";
  record.code = code;
  record.reason = reason;
  record.handling = absl::Milliseconds(250);
  record.bytes_received = 10;
  record.bytes_sent = 20;
  record.peer = "ipv4:10.0.0.7:40123";
  return record;
}

TEST_F(CallLogTest, ALineHasTheFieldsOfItsCall) {
  CallLog calls(log_, 1);
  CallRecord record = RecordOf(grpc::StatusCode::OK);
  record.caller = "batch";
  record.request_id = "id \xFF\n\"";
  record.traceparent =
      "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  calls.Finished(record);
  const json line = Read();
  EXPECT_EQ(line["severity"], "INFO");
  EXPECT_EQ(line["rpc.service"], "posenc.v1.PositionalEncodingService");
  EXPECT_EQ(line["rpc.method"], "ApplyRope");
  EXPECT_EQ(line["grpc.code"], "OK");
  EXPECT_EQ(line["duration"], 0.25);
  EXPECT_EQ(line["bytes_received"], 10);
  EXPECT_EQ(line["bytes_sent"], 20);
  EXPECT_EQ(line["peer"], "ipv4:10.0.0.7:40123");
  EXPECT_EQ(line["caller"], "batch");
  EXPECT_EQ(line["request_id"], "id \xEF\xBF\xBD\n\"");
  EXPECT_EQ(line["trace_id"], "0af7651916cd43dd8448eb211c80319c");
  EXPECT_FALSE(line.contains("reason"));
}

TEST_F(CallLogTest, SuccessIsSampledEvenly) {
  CallLog calls(log_, 0);
  for (int i = 0; i < 10; ++i) calls.Finished(RecordOf(grpc::StatusCode::OK));
  EXPECT_TRUE(NothingToRead());
  calls.set_fraction(0.25);
  for (int i = 0; i < 100; ++i) calls.Finished(RecordOf(grpc::StatusCode::OK));
  log_->Write(LogLevel::kInfo, "end");
  int lines = 0;
  while (Read()["msg"] == "call") ++lines;
  EXPECT_EQ(lines, 25);
}

TEST_F(CallLogTest, TheServersFailuresAreInfoAndTheClientsDebug) {
  CallLog calls(log_, 0);
  for (const grpc::StatusCode code :
       {grpc::StatusCode::INVALID_ARGUMENT, grpc::StatusCode::CANCELLED,
        grpc::StatusCode::UNAUTHENTICATED, grpc::StatusCode::UNIMPLEMENTED}) {
    calls.Finished(RecordOf(code));
  }
  calls.Finished(RecordOf(grpc::StatusCode::RESOURCE_EXHAUSTED,
                          "ERROR_REASON_MESSAGE_TOO_LARGE"));
  EXPECT_TRUE(NothingToRead());
  calls.Finished(RecordOf(grpc::StatusCode::INTERNAL));
  EXPECT_EQ(Read()["grpc.code"], "INTERNAL");
  calls.Finished(RecordOf(grpc::StatusCode::RESOURCE_EXHAUSTED,
                          "ERROR_REASON_OVERLOADED"));
  EXPECT_EQ(Read()["reason"], "ERROR_REASON_OVERLOADED");
  log_->set_level(LogLevel::kDebug);
  calls.Finished(RecordOf(grpc::StatusCode::INVALID_ARGUMENT));
  EXPECT_EQ(Read()["severity"], "DEBUG");
}

TEST_F(CallLogTest, AFloodOfRefusalsIsNotAFloodOfLines) {
  CallLog calls(log_, 0);
  for (int i = 0; i < 2000; ++i) {
    calls.Finished(RecordOf(grpc::StatusCode::RESOURCE_EXHAUSTED,
                            "ERROR_REASON_OVERLOADED"));
  }
  log_->Write(LogLevel::kInfo, "end");
  int lines = 0;
  while (Read()["msg"] == "call") ++lines;
  EXPECT_GE(lines, 100);
  EXPECT_LT(lines, 2000);
}

}  // namespace
}  // namespace posenc::server
