// /metrics about calls, server and process.

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "posenc/v1/service.pb.h"
#include "server/base/version.h"
#include "server/metrics/exposition.h"

namespace posenc::server {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

CallRecord Record(absl::string_view method,
                  grpc::StatusCode code = grpc::StatusCode::OK) {
  CallRecord record;
  record.method = method;
  record.code = code;
  record.handling = absl::Milliseconds(3);
  return record;
}

std::string Text(const CallMetrics& calls, const ServerStatus& status = {}) {
  return MetricsText(calls, status, "avx2");
}

// Returns the lines of a text with this prefix.
std::vector<std::string> Lines(const std::string& text,
                               absl::string_view prefix) {
  std::vector<std::string> lines;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::StartsWith(line, prefix)) lines.emplace_back(line);
  }
  return lines;
}

std::string Series(absl::string_view name, absl::string_view method,
                   absl::string_view type, absl::string_view more = "") {
  return absl::StrCat(
      name, "{", more, "grpc_method=\"", method,
      "\",grpc_service=\"posenc.v1.PositionalEncodingService\",grpc_type=\"",
      type, "\"} ");
}

TEST(CallMetrics, EverySeriesIsThereFromTheStart) {
  const CallMetrics calls;
  const std::string text = Text(calls);
  const auto* const service =
      v1::GetServerInfoRequest::descriptor()->file()->service(0);
  ASSERT_EQ(service->method_count(), 15);
  EXPECT_EQ(Lines(text, "grpc_server_started_total{").size(), 16);
  EXPECT_EQ(Lines(text, "grpc_server_handled_total{").size(), 16 * 17);
  EXPECT_EQ(Lines(text, "posenc_refused_total{").size(), 6);
  for (int i = 0; i < service->method_count(); ++i) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat(
                          "grpc_method=\"", service->method(i)->name(), "\"")));
  }
  EXPECT_THAT(text, HasSubstr(Series("grpc_server_started_total", "ApplyRope",
                                     "unary") +
                              "0\n"));
  EXPECT_THAT(text, HasSubstr(Series("grpc_server_started_total",
                                     "ApplyRopeStream", "bidi_stream") +
                              "0\n"));
  EXPECT_THAT(text, HasSubstr(Series("grpc_server_started_total", "BuildBias",
                                     "server_stream") +
                              "0\n"));
}

TEST(CallMetrics, CountsACall) {
  CallMetrics calls;
  CallRecord record = Record("ApplyRope");
  record.messages_received = record.messages_sent = 1;
  record.bytes_received = 1000;
  record.bytes_sent = 2000;
  record.waited = absl::Milliseconds(2);
  record.computing = absl::Milliseconds(1);
  calls.Started("ApplyRope");
  calls.Finished(record);
  const std::string text = Text(calls);
  const auto series = [](absl::string_view name, absl::string_view more = "") {
    return Series(name, "ApplyRope", "unary", more);
  };
  EXPECT_THAT(text, HasSubstr(series("grpc_server_started_total") + "1\n"));
  EXPECT_THAT(
      text, HasSubstr(series("grpc_server_handled_total", "grpc_code=\"OK\",") +
                      "1\n"));
  EXPECT_THAT(text,
              HasSubstr(series("grpc_server_msg_received_total") + "1\n"));
  EXPECT_THAT(text, HasSubstr(series("grpc_server_msg_sent_total") + "1\n"));
  EXPECT_THAT(text,
              HasSubstr(series("grpc_server_handling_seconds_count") + "1\n"));
  EXPECT_THAT(
      text, HasSubstr(series("grpc_server_handling_seconds_sum") + "0.003\n"));
  EXPECT_THAT(text,
              HasSubstr("posenc_bytes_total{direction=\"received\"} 1000\n"));
  EXPECT_THAT(text, HasSubstr("posenc_bytes_total{direction=\"sent\"} 2000\n"));
  EXPECT_THAT(text, HasSubstr("posenc_waited_seconds_count 1\n"));
  EXPECT_THAT(text, HasSubstr("posenc_waited_seconds_sum 0.002\n"));
  EXPECT_THAT(text, HasSubstr("posenc_compute_seconds_count 1\n"));
}

TEST(CallMetrics, PeersCannotMakeSeries) {
  CallMetrics calls;
  const std::string before = Text(calls);
  for (const char* name : {"", "NoSuchMethod", "applyrope", "x\"} 1\ny{"}) {
    calls.Started(name);
    calls.Finished(Record(name, grpc::StatusCode::UNIMPLEMENTED));
  }
  const std::string text = Text(calls);
  EXPECT_THAT(
      text, HasSubstr(Series("grpc_server_started_total", "unknown", "unary") +
                      "4\n"));
  EXPECT_EQ(Lines(text, "grpc_").size(), Lines(before, "grpc_").size());
}

TEST(CallMetrics, ACodeThatGrpcLacksCountsAsUnknown) {
  CallMetrics calls;
  calls.Finished(Record("ApplyRope", static_cast<grpc::StatusCode>(20)));
  calls.Finished(Record("ApplyRope", grpc::StatusCode::DO_NOT_USE));
  EXPECT_THAT(Text(calls),
              HasSubstr(Series("grpc_server_handled_total", "ApplyRope",
                               "unary", "grpc_code=\"Unknown\",") +
                        "2\n"));
}

TEST(CallMetrics, CountsRefusalsByReason) {
  CallMetrics calls;
  CallRecord overloaded =
      Record("ApplyRope", grpc::StatusCode::RESOURCE_EXHAUSTED);
  overloaded.reason = "ERROR_REASON_OVERLOADED";
  calls.Finished(overloaded);
  CallRecord draining = Record("ApplyRope", grpc::StatusCode::UNAVAILABLE);
  draining.reason = "ERROR_REASON_DRAINING";
  calls.Finished(draining);
  CallRecord strange = Record("ApplyRope", grpc::StatusCode::UNAVAILABLE);
  strange.reason = "ERROR_REASON_FROM_LATER";
  calls.Finished(strange);
  calls.Finished(Record("ApplyRope", grpc::StatusCode::UNAUTHENTICATED));
  calls.Finished(Record("ApplyRope", grpc::StatusCode::INVALID_ARGUMENT));
  calls.Finished(Record("ApplyRope"));
  EXPECT_THAT(Lines(Text(calls), "posenc_refused_total{"),
              testing::UnorderedElementsAre(
                  "posenc_refused_total{reason=\"overloaded\"} 1",
                  "posenc_refused_total{reason=\"draining\"} 1",
                  "posenc_refused_total{reason=\"message_too_large\"} 0",
                  "posenc_refused_total{reason=\"unauthenticated\"} 1",
                  "posenc_refused_total{reason=\"permission_denied\"} 0",
                  "posenc_refused_total{reason=\"other\"} 1"));
}

TEST(CallMetrics, CallsRefusedAtTheHeadersDoNotCountAsWaiting) {
  CallMetrics calls;
  calls.Finished(Record("ApplyRope", grpc::StatusCode::RESOURCE_EXHAUSTED));
  EXPECT_THAT(Text(calls), HasSubstr("posenc_waited_seconds_count 0\n"));
  EXPECT_THAT(Text(calls), HasSubstr("posenc_compute_seconds_count 0\n"));
}

TEST(CallMetrics, ThreadsLoseNoCount) {
  constexpr int kThreads = 4, kCalls = 2000;
  CallMetrics calls;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&calls] {
      for (int call = 0; call < kCalls; ++call) {
        calls.Started("ApplyRope");
        calls.Finished(Record("ApplyRope"));
      }
    });
  }
  const std::string meanwhile = Text(calls);
  EXPECT_THAT(meanwhile, HasSubstr("grpc_server_started_total"));
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(Text(calls),
              HasSubstr(Series("grpc_server_handling_seconds_count",
                               "ApplyRope", "unary") +
                        "8000\n"));
}

TEST(MetricsText, TellsTheStatus) {
  ServerStatus status;
  status.ready = false;
  status.budget_bytes = 1 << 20;
  status.claimed_bytes = 7;
  status.connections_refused = {{"limit", 3}, {"peer_limit", 0}};
  status.calls_limit = 5;
  status.token_reload_errors = 3;
  const std::string text = Text(CallMetrics(), status);
  for (const char* const line :
       {"posenc_budget_bytes 1048576\n", "posenc_claimed_bytes 7\n",
        "posenc_draining 1\n",
        "posenc_connections_refused_total{reason=\"limit\"} 3\n",
        "posenc_calls_limit 5\n", "posenc_token_reload_errors_total 3\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_THAT(text, Not(HasSubstr("posenc_tls_not_after_seconds")));
  status.tls_not_after = absl::FromUnixSeconds(1900000000);
  EXPECT_THAT(Text(CallMetrics(), status),
              HasSubstr("posenc_tls_not_after_seconds 1900000000\n"));
}

TEST(MetricsText, NamesTheBuild) {
  EXPECT_THAT(Lines(Text(CallMetrics()), "posenc_build_info{"),
              Contains(AllOf(HasSubstr("isa=\"avx2\""), HasSubstr("grpc=\"1."),
                             HasSubstr(absl::StrCat("version=\"", kVersion)))));
}

TEST(MetricsText, EveryFamilyHasItsHelpAndType) {
  const std::string text = Text(CallMetrics());
  for (const std::string& line : Lines(text, "")) {
    if (line.empty() || line[0] == '#') continue;
    EXPECT_TRUE(absl::StartsWith(line, "grpc_server_") ||
                absl::StartsWith(line, "posenc_") ||
                absl::StartsWith(line, "process_"))
        << line;
  }
  EXPECT_EQ(Lines(text, "# HELP ").size(), Lines(text, "# TYPE ").size());
}

TEST(MetricsText, HasWhatTheKernelCounts) {
  const std::string text = Text(CallMetrics());
  const auto number = [&text](absl::string_view name) {
    double value = -1;
    for (const std::string& line : Lines(text, absl::StrCat(name, " "))) {
      EXPECT_TRUE(absl::SimpleAtod(line.substr(name.size() + 1), &value));
    }
    return value;
  };
  EXPECT_GT(number("process_resident_memory_bytes"), 1 << 20);
  EXPECT_GT(number("process_virtual_memory_bytes"),
            number("process_resident_memory_bytes"));
  EXPECT_GE(number("process_threads"), 1);
  EXPECT_GE(number("process_open_fds"), 3);
  EXPECT_GE(number("process_max_fds"), number("process_open_fds"));
  const double now = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  EXPECT_LE(number("process_start_time_seconds"), now + 1);
  EXPECT_GT(number("process_start_time_seconds"), now - 86400);
}

}  // namespace
}  // namespace posenc::server
