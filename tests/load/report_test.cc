// Units, the workload's flags, the search for a rate, and reports.

#include "client/tools/load/report.h"

#include <cmath>

#include "client/tools/load/capacity.h"
#include "client/tools/load/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace posenc::load {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(UnitsTest, ParsesDurations) {
  EXPECT_EQ(*ParseDuration("10s"), absl::Seconds(10));
  EXPECT_EQ(*ParseDuration("1.5ms"), absl::Microseconds(1500));
  EXPECT_EQ(*ParseDuration("0s", true), absl::ZeroDuration());
  for (const char* text : {"", "10", "0s", "-1s", "inf", "9000000h", "s"}) {
    EXPECT_EQ(ParseDuration(text).status().code(),
              absl::StatusCode::kInvalidArgument)
        << text;
  }
  EXPECT_EQ(ParseDuration("ten").status().message(),
            "\"ten\"; must be a duration above 0, such as 10s or 250ms");
}

TEST(UnitsTest, ParsesBytes) {
  EXPECT_EQ(*ParseBytes("4096"), 4096);
  EXPECT_EQ(*ParseBytes("64KiB"), 65536);
  EXPECT_EQ(*ParseBytes("64kB"), 64000);
  EXPECT_EQ(*ParseBytes("1.5MiB"), 1572864);
  EXPECT_EQ(*ParseBytes("2GiB"), std::int64_t{1} << 31);
  EXPECT_EQ(*ParseBytes("7B"), 7);
  for (const char* text : {"", "0", "-1", "1.5", "x", "KiB", "1TiB", "1e3",
                           "0.3B", "99999999999GiB", " 1", "inf"}) {
    EXPECT_EQ(ParseBytes(text).status().code(),
              absl::StatusCode::kInvalidArgument)
        << text;
  }
}

TEST(UnitsTest, ParsesNumbers) {
  EXPECT_THAT(*ParseNumbers("1000,2.5", 1e7, ""),
              testing::ElementsAre(1000, 2.5));
  for (const char* text : {"", "0", "-1", "nan", "1,,2", "1e9"}) {
    EXPECT_FALSE(ParseNumbers(text, 1e7, "").ok()) << text;
  }
}

TEST(UnitsTest, WritesThreeDigits) {
  EXPECT_EQ(NanosText(850), "850 ns");
  EXPECT_EQ(NanosText(213400), "213 us");
  EXPECT_EQ(NanosText(999'600), "1 ms");
  EXPECT_EQ(NanosText(1'254'000), "1.25 ms");
  EXPECT_EQ(NanosText(999.9e6), "1 s");
  EXPECT_EQ(NanosText(2.5e9), "2.5 s");
  EXPECT_EQ(BytesText(65536), "64KiB");
  EXPECT_EQ(BytesText(1572864), "1.5MiB");
}

TEST(WorkloadTest, DividesAnRpcsWeightAmongItsSizesAndDtypes) {
  WorkloadOptions options;
  options.mix = *ParseMix("applyrope:6,ResolveRope");
  options.sizes = {4096, 65536};
  options.dtypes = *ParseDtypes("float32,BFLOAT16,float64");
  const auto workload = BuildWorkload(options);
  ASSERT_TRUE(workload.ok()) << workload.status();
  ASSERT_EQ(workload->size(), 7u);
  EXPECT_EQ((*workload)[0].name, "ApplyRope float32 4KiB");
  EXPECT_EQ((*workload)[3].name, "ApplyRope bfloat16 64KiB");
  EXPECT_EQ((*workload)[6].name, "ResolveRope");
  for (int i = 0; i < 6; ++i) EXPECT_EQ((*workload)[i].weight, 1);
  EXPECT_EQ((*workload)[6].weight, 1);
}

TEST(WorkloadTest, TensorsHaveTheRequestedSize) {
  for (const std::int64_t size : {512, 1536, 4096, 65536, 1 << 20}) {
    WorkloadOptions options;
    options.sizes = {size};
    const auto workload = BuildWorkload(options);
    ASSERT_TRUE(workload.ok()) << workload.status();
    v1::ApplyRopeRequest request;
    ASSERT_TRUE(
        request.ParseFromString(BytesOf((*workload)[0].requests[0].message)));
    EXPECT_EQ(request.q().data().size(), static_cast<std::size_t>(size));
    std::int64_t product = 4;
    for (const std::int64_t extent : request.q().shape()) product *= extent;
    EXPECT_EQ(product, size);
  }
}

TEST(WorkloadTest, EqualSeedsGiveEqualBytesAndVariantsDiffer) {
  WorkloadOptions options;
  options.sizes = {4096};
  options.variants = 2;
  const auto bytes = [&](int variant) {
    return BytesOf((*BuildWorkload(options))[0].requests[variant].message);
  };
  const std::string first = bytes(0);
  EXPECT_EQ(first, bytes(0));
  EXPECT_NE(first, bytes(1));
  options.seed = 9;
  EXPECT_NE(first, bytes(0));
}

TEST(WorkloadTest, RefusesWhatItCannotSend) {
  EXPECT_FALSE(ParseMix("Nothing").ok());
  EXPECT_FALSE(ParseMix("ApplyRope:0").ok());
  EXPECT_FALSE(ParseMix("ApplyRope,ApplyRope:2").ok());
  EXPECT_FALSE(ParseMix("").ok());
  EXPECT_FALSE(ParseShapes("1x2x3").ok());
  EXPECT_FALSE(ParseShapes("1x2x3x5").ok());
  EXPECT_FALSE(ParseShapes("1x0x3x4").ok());
  EXPECT_FALSE(ParseShapes("9999999999x9999999999x9999999999x2").ok());
  EXPECT_FALSE(ParseDtypes("int32").ok());
  EXPECT_FALSE(ParseDtypes("float8").ok());
  WorkloadOptions options;
  options.sizes = {1000};
  EXPECT_EQ(BuildWorkload(options).status().message(),
            "--size: \"1000B\"; must be a multiple of 512 bytes, one head of "
            "128 channels in float32");
  options.sizes = {std::int64_t{1} << 31};
  EXPECT_THAT(std::string(BuildWorkload(options).status().message()),
              HasSubstr("does not fit one message"));
}

TEST(WorkloadTest, ComparesMessagesOfAnySlices) {
  const grpc::Slice parts[] = {grpc::Slice("ab"), grpc::Slice("cde")};
  const grpc::ByteBuffer message(parts, 2);
  EXPECT_TRUE(Equals(message, "abcde"));
  EXPECT_FALSE(Equals(message, "abcdE"));
  EXPECT_FALSE(Equals(message, "abcdef"));
  EXPECT_FALSE(Equals(message, "abcd"));
  EXPECT_EQ(BytesOf(message), "abcde");
}

TEST(FindCapacityTest, ComesWithinFivePercentOfTheHighestRateThatHolds) {
  for (const double capacity : {3.0, 990.0, 1000.0, 1700.0, 54321.0}) {
    const Capacity found =
        FindCapacity(1000, 40, [&](double rate) { return rate <= capacity; });
    EXPECT_LE(found.rate, capacity);
    EXPECT_GT(found.failed, capacity);
    EXPECT_GE(found.rate, 0.95 * found.failed);
  }
}

TEST(FindCapacityTest, StopsAfterItsSteps) {
  int calls = 0;
  const Capacity none = FindCapacity(1000, 6, [&](double) {
    ++calls;
    return false;
  });
  EXPECT_EQ(calls, 6);
  EXPECT_EQ(none.rate, 0);
  const Capacity all = FindCapacity(1000, 6, [](double) { return true; });
  EXPECT_EQ(all.rate, 32000);
  EXPECT_EQ(all.failed, 0);
  EXPECT_EQ(all.steps, 6);
}

// Two cases, 1000 calls of 1 to 1000 us, in 2 s.
Json SampleStep(const std::string& label, double rate) {
  std::vector<Case> workload(2);
  for (Case& one : workload) {
    one.name = "Apply <" + label + ">";
    one.requests.emplace_back().bytes = 100;
  }
  StepResult result;
  result.rate = rate;
  result.seconds = 2;
  result.cases.resize(2);
  for (int i = 1; i <= 1000; ++i) {
    result.total.latency.Record(i * 1000);
    result.cases[i % 2].Record(i * 1000);
  }
  result.total.ok = 1000;
  result.total.bytes_sent = 3'000'000'000;
  result.total.bytes_received = 1'000'000'000;
  result.total.errors["UNAVAILABLE"] = 25;
  result.total.failed.Record(5'000'000, 25);
  result.unsent = 15;
  result.total.verified = 100;
  Json series = Json::array();
  Interval interval;
  interval.seconds = 0.5;
  interval.start_seconds = 1;
  interval.in_flight = 7;
  interval.counts.ok = 200;
  interval.counts.bytes_sent = 1'000'000'000;
  interval.counts.errors["UNAVAILABLE"] = 3;
  interval.counts.latency.Record(20'000, 200);
  series.push_back(PointJson(interval));
  return StepJson(label, result, workload, std::move(series));
}

Json Sample(double rate) {
  return {{"tool", "posenc-load"},
          {"target", "unix:/x&y"},
          {"capacity", nullptr},
          {"steps", Json::array({SampleStep("1000/s", rate),
                                 SampleStep("2000/s", 2 * rate)})}};
}

// The step of a workload with one case.
Json StepOf(const std::string& label, StepResult result) {
  std::vector<Case> workload(1);
  workload[0].requests.emplace_back();
  result.cases.resize(1);
  return StepJson(label, result, workload, Json::array());
}

TEST(ReportTest, StepHasTheFigures) {
  const Json step = SampleStep("1000/s", 1000);
  EXPECT_EQ(step["rate"], 1000);
  EXPECT_EQ(step["ok"], 1000);
  EXPECT_EQ(step["failed"], 25);
  EXPECT_EQ(step["unsent"], 15);
  EXPECT_EQ(step["errors"], (Json{{"UNAVAILABLE", 25}}));
  EXPECT_NEAR(step["error_rate"].get<double>(), 40.0 / 1040, 1e-6);
  EXPECT_EQ(step["calls_per_second"], 500);
  EXPECT_EQ(step["gbps_sent"], 1.5);
  EXPECT_EQ(step["gbps_received"], 0.5);
  EXPECT_EQ(step["verified"], 100);
  EXPECT_EQ(step["wrong"], 0);
  EXPECT_TRUE(step["first_wrong"].is_null());
  const Json& latency = step["latency_us"];
  EXPECT_EQ(latency["min"], 1);
  EXPECT_EQ(latency["mean"], 500.5);
  EXPECT_NEAR(latency["p50"].get<double>(), 500, 0.5);
  EXPECT_NEAR(latency["p90"].get<double>(), 900, 0.9);
  EXPECT_NEAR(latency["p99"].get<double>(), 990, 1);
  EXPECT_NEAR(latency["p99.9"].get<double>(), 999, 1);
  EXPECT_EQ(latency["p99.99"], 1000);
  EXPECT_EQ(latency["max"], 1000);
  EXPECT_EQ(latency["percentiles"][0][0], 0);
  EXPECT_EQ(step["failed_latency_us"]["max"], 5000);
  ASSERT_EQ(step["cases"].size(), 2u);
  EXPECT_EQ(step["cases"][0]["ok"], 500);
  EXPECT_EQ(step["cases"][0]["latency_us"]["max"], 1000);
  EXPECT_EQ(step["cases"][1]["latency_us"]["max"], 999);
  const Json& point = step["series"][0];
  EXPECT_EQ(point["start_s"], 1);
  EXPECT_EQ(point["calls_per_second"], 400);
  EXPECT_EQ(point["gbps_sent"], 2);
  EXPECT_EQ(point["errors"], 3);
  EXPECT_EQ(point["in_flight"], 7);
  EXPECT_EQ(point["p99_us"], 20);
}

TEST(ReportTest, ClosedLoopHasNoRateAndNoAnswersHaveNoLatency) {
  const Json step = StepOf("16 in flight", {});
  EXPECT_TRUE(step["rate"].is_null());
  EXPECT_TRUE(step["latency_us"].is_null());
  Json report = Sample(1000);
  report["steps"] = Json::array({step});
  EXPECT_THAT(ReportText(report), HasSubstr("16 in flight"));
}

TEST(ReportTest, TextNamesErrorsAndUnsentCalls) {
  const std::string text = ReportText(Sample(1000));
  EXPECT_THAT(text, HasSubstr("1000/s: 25 x UNAVAILABLE, answered in 5 ms "
                              "(p50), 5 ms (p99)\n"));
  EXPECT_THAT(text,
              HasSubstr("1000/s: 15 calls were due but not sent in time\n"));
  EXPECT_THAT(text,
              HasSubstr("1000/s: 100 answers compared bit for bit, 0 differ"));
}

TEST(ReportTest, SaysWhatTheTesterItselfLeftOut) {
  StepResult result;
  result.rate = 1000;
  result.total.ok = result.total.good = 50;
  result.dropped = 30;
  result.unsent = 20;
  result.limited = 70;
  result.in_flight_limit = 8;
  const Json step = StepOf("1000/s", result);
  EXPECT_EQ(step["failed"], 30);
  EXPECT_EQ(step["dropped"], 30);
  EXPECT_EQ(step["unsent"], 20);
  EXPECT_EQ(step["error_rate"], 0.5);
  EXPECT_EQ(step["good_per_second"], 500);
  Json report = Sample(1000);
  report["steps"] = Json::array({step});
  const std::string text = ReportText(report);
  EXPECT_THAT(text, HasSubstr("1000/s: 30 calls were dropped: their deadline "
                              "had passed before they could be sent\n"));
  EXPECT_THAT(text, HasSubstr("1000/s: 70 calls were held back by 8 calls in "
                              "flight; raise --max-in-flight"));
}

TEST(ReportTest, OverloadIsATableAndAChart) {
  StepResult result;
  result.rate = 2000;
  result.total.ok = 900;
  result.total.good = 890;
  result.total.latency.Record(10'000'000, 900);
  result.total.errors["RESOURCE_EXHAUSTED"] = 1000;
  result.total.refused.Record(2'000'000, 1000);
  result.total.errors["DEADLINE_EXCEEDED"] = 50;
  result.total.errors["INTERNAL"] = 3;
  result.dropped = 47;
  Json report = Sample(1000);
  report["settings"] = {{"timeout_s", 1.0}};
  report["peak"] = 1000;
  report["overload"] = Json::array({OverloadJson(2, 1000, result)});
  const Json& point = report["overload"][0];
  EXPECT_EQ(point["multiple"], 2);
  EXPECT_EQ(point["due"], 2000);
  EXPECT_EQ(point["good_per_second"], 890);
  EXPECT_EQ(point["good_of_peak"], 0.89);
  EXPECT_EQ(point["late"], 10);
  EXPECT_EQ(point["refused"], 1000);
  EXPECT_EQ(point["expired"], 50);
  EXPECT_EQ(point["dropped"], 47);
  EXPECT_EQ(point["other"], 3);
  EXPECT_NEAR(point["refused_p99_us"].get<double>(), 2000, 2);
  EXPECT_THAT(
      ReportText(report),
      testing::ContainsRegex("2x +2000 +890 +0\\.89 +890 +1000 +50 +47"));
}

TEST(ReportTest, WhatTheTesterCouldNotDoIsNoFigureOfTheServer) {
  StepResult result;
  result.rate = 2000;
  result.total.ok = result.total.good = 1000;
  result.dropped = 1000;
  EXPECT_FALSE(result.TesterLimited());
  result.sent_late = 20;  // one in a hundred
  EXPECT_FALSE(result.TesterLimited());
  result.sent_late = 21;
  EXPECT_TRUE(result.TesterLimited());
  result.sent_late = 0;
  result.busiest_thread = 0.97;
  EXPECT_TRUE(result.TesterLimited());
  Json report = Sample(1000);
  report["settings"] = {{"timeout_s", 1.0}};
  report["peak"] = 1000;
  report["steps"] = Json::array({StepOf("2000/s", result)});
  report["overload"] = Json::array({OverloadJson(2, 1000, result)});
  EXPECT_TRUE(report["overload"][0]["good_of_peak"].is_null());
  EXPECT_EQ(report["overload"][0]["tester_limited"], true);
  EXPECT_THAT(ReportText(report),
              AllOf(HasSubstr("2000/s: this is a figure of the tester, not of "
                              "the server: 0 calls were sent more than 10 ms "
                              "late, and its busiest thread used 97 % of a "
                              "core"),
                    testing::ContainsRegex("2x +2000 +1000 +- +1000")));
  // If the server answered all calls, the tester has offered all calls.
  result.dropped = 0;
  EXPECT_FALSE(result.TesterLimited());
}

TEST(PageTest, HoldsItsReportAndLoadsNothing) {
  Json report = Sample(1000);
  report["steps"][0]["label"] = "a</script>";
  const std::string page = ReportPage(report);
  EXPECT_THAT(page, testing::StartsWith("<!doctype html>"));
  EXPECT_THAT(page, testing::EndsWith("</body></html>\n"));
  const std::string before = "const REPORT = ";
  const std::size_t start = page.find(before) + before.size();
  const std::string json = page.substr(start, page.find(";\n", start) - start);
  EXPECT_EQ(Json::parse(json, nullptr, false), report);
  EXPECT_THAT(json, Not(HasSubstr("<")));
  for (const char* external :
       {"https:", "src=", "href=", "@import", "url(", "fetch("}) {
    EXPECT_THAT(page, Not(HasSubstr(external)));
  }
}

}  // namespace
}  // namespace posenc::load
