#include "client/tools/load/report.h"

#include <algorithm>
#include <cmath>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "client/tools/load/units.h"

namespace posenc::load {
namespace {

// The curve of percentiles p has four points for each halving of 1 - p. It ends
// at this value of 1 - p (p99.9999), or where 1 - p is the share of one call,
// because all later points would be the maximum.
constexpr double kLastTail = 1e-6;

double Micros(std::int64_t nanos) { return static_cast<double>(nanos) / 1e3; }

double MicrosAt(const Histogram& histogram, double percentile) {
  return Micros(histogram.Percentile(percentile));
}

// Rounds to six significant digits, more than a measurement has.
double Rounded(double value) {
  if (value == 0 || !std::isfinite(value)) return 0;
  const double scale =
      std::pow(10.0, 5 - std::floor(std::log10(std::fabs(value))));
  return std::round(value * scale) / scale;
}

// Rates of answered calls and their bytes.
struct Rates {
  Rates(const Counts& counts, double seconds) {
    seconds = std::max(seconds, 1e-9);
    calls = static_cast<double>(counts.ok) / seconds;
    gbps_sent = static_cast<double>(counts.bytes_sent) / seconds / 1e9;
    gbps_received = static_cast<double>(counts.bytes_received) / seconds / 1e9;
  }
  double calls, gbps_sent, gbps_received;
};

double Number(const Json& of, const char* key) {
  return of.at(key).get<double>();
}

std::int64_t Count(const Json& of, const char* key) {
  return of.at(key).get<std::int64_t>();
}

std::string Text(const Json& of, const char* key) {
  return of.at(key).get<std::string>();
}

// Returns a number of LatencyJson() as text, or "-" for null.
std::string LatencyCell(const Json& latency, const char* key) {
  return latency.is_null() ? "-" : NanosText(Number(latency, key) * 1e3);
}

constexpr const char* kFigures[] = {"mean",  "p50",    "p90", "p99",
                                    "p99.9", "p99.99", "max"};

// Returns {"p50": 210.5, ..., "percentiles": [[0, 100.1], ...]}, in
// microseconds; null if nothing was recorded.
Json LatencyJson(const Histogram& histogram) {
  if (histogram.count() == 0) return nullptr;
  const auto at = [&](double percentile) {
    return MicrosAt(histogram, percentile);
  };
  Json json = {{"min", Micros(histogram.min())},
               {"mean", Micros(std::llround(histogram.Mean()))},
               {"p50", at(50)},
               {"p90", at(90)},
               {"p99", at(99)},
               {"p99.9", at(99.9)},
               {"p99.99", at(99.99)},
               {"max", Micros(histogram.max())}};
  Json curve = Json::array();
  const double last =
      std::max(kLastTail, 1.0 / static_cast<double>(histogram.count()));
  for (int i = 0;; ++i) {
    const double tail = std::exp2(-i / 4.0);
    if (tail < last) break;
    const double percentile = 100 * (1 - tail);
    curve.push_back({std::round(percentile * 1e8) / 1e8, at(percentile)});
  }
  json["percentiles"] = std::move(curve);
  return json;
}

}  // namespace

Json PointJson(const Interval& interval) {
  const Counts& counts = interval.counts;
  const Rates rates(counts, interval.seconds);
  return {{"start_s", Rounded(interval.start_seconds)},
          {"seconds", Rounded(interval.seconds)},
          {"calls_per_second", Rounded(rates.calls)},
          {"gbps_sent", Rounded(rates.gbps_sent)},
          {"gbps_received", Rounded(rates.gbps_received)},
          {"errors", counts.Failed()},
          {"in_flight", interval.in_flight},
          {"p50_us", MicrosAt(counts.latency, 50)},
          {"p99_us", MicrosAt(counts.latency, 99)},
          {"max_us", Micros(counts.latency.max())}};
}

Json StepJson(const std::string& label, const StepResult& result,
              const std::vector<Case>& workload, Json series) {
  const Counts& total = result.total;
  const Rates rates(total, result.seconds);
  Json errors = Json::object();
  for (const auto& [code, count] : total.errors) errors[code] = count;
  Json cases = Json::array();
  for (std::size_t i = 0; i < workload.size(); ++i) {
    cases.push_back({{"name", workload[i].name},
                     {"request_bytes", workload[i].requests[0].bytes},
                     {"ok", result.cases[i].count()},
                     {"latency_us", LatencyJson(result.cases[i])}});
  }
  return {{"label", label},
          {"rate", result.rate > 0 ? Json(result.rate) : Json(nullptr)},
          {"seconds", Rounded(result.seconds)},
          {"ok", total.ok},
          {"failed", result.Failed()},
          {"unsent", result.unsent},
          {"dropped", result.dropped},
          {"good", total.good},
          {"good_per_second", Rounded(result.GoodPerSecond())},
          {"limited", result.limited},
          {"in_flight_limit", result.in_flight_limit},
          {"sent_late", result.sent_late},
          {"busiest_thread", Rounded(result.busiest_thread)},
          {"tester_limited", result.TesterLimited()},
          {"errors", errors},
          {"error_rate", Rounded(result.ErrorRate())},
          {"verified", total.verified},
          {"wrong", total.wrong},
          {"first_wrong",
           total.wrong > 0 ? Json(total.first_wrong) : Json(nullptr)},
          {"calls_per_second", Rounded(rates.calls)},
          {"gbps_sent", Rounded(rates.gbps_sent)},
          {"gbps_received", Rounded(rates.gbps_received)},
          {"latency_us", LatencyJson(total.latency)},
          {"failed_latency_us", LatencyJson(total.failed)},
          {"refused_latency_us", LatencyJson(total.refused)},
          {"send_delay_us", LatencyJson(result.send_delay)},
          {"cases", std::move(cases)},
          {"series", std::move(series)}};
}

Json OverloadJson(double multiple, double peak, const StepResult& result) {
  const Counts& total = result.total;
  const auto count = [&](const char* code) {
    const auto found = total.errors.find(code);
    return found == total.errors.end() ? 0 : found->second;
  };
  const auto expired = count("DEADLINE_EXCEEDED");
  const auto at = [](const Histogram& histogram, double percentile) {
    return histogram.count() == 0 ? Json()
                                  : Json(MicrosAt(histogram, percentile));
  };
  const double good = result.GoodPerSecond();
  const bool servers = peak > 0 && !result.TesterLimited();
  return {{"multiple", multiple},
          {"offered_per_second", Rounded(result.rate)},
          {"good_per_second", Rounded(good)},
          {"good_of_peak", servers ? Json(Rounded(good / peak)) : Json()},
          {"due", result.Calls()},
          {"good", total.good},
          {"late", total.ok - total.good},
          {"refused", total.refused.count()},
          {"expired", expired},
          {"dropped", result.dropped},
          {"unsent", result.unsent},
          {"other", total.Failed() - total.refused.count() - expired},
          {"limited", result.limited},
          {"sent_late", result.sent_late},
          {"busiest_thread", Rounded(result.busiest_thread)},
          {"tester_limited", result.TesterLimited()},
          {"good_p50_us", at(total.latency, 50)},
          {"good_p99_us", at(total.latency, 99)},
          {"refused_p50_us", at(total.refused, 50)},
          {"refused_p99_us", at(total.refused, 99)}};
}

std::string ProgressLine(const std::string& label, const Interval& interval) {
  const Counts& counts = interval.counts;
  const Rates rates(counts, interval.seconds);
  return absl::StrFormat(
      "%-12s %4.0f s %9.0f calls/s  %6.3f GB/s out %6.3f in  p50 %7s  "
      "p99 %7s  in flight %d  errors %d",
      label, interval.start_seconds + interval.seconds, rates.calls,
      rates.gbps_sent, rates.gbps_received,
      NanosText(static_cast<double>(counts.latency.Percentile(50))),
      NanosText(static_cast<double>(counts.latency.Percentile(99))),
      interval.in_flight, counts.Failed() + counts.wrong);
}

namespace {

// A column of the table of overloads: the key of its number, and the digits
// after the point.
struct Column {
  const char* title;
  const char* key;
  int digits;
};
constexpr int kLatency = -1;  // microseconds, shown with their unit
constexpr Column kOverload[] = {{"calls/s", "offered_per_second", 0},
                                {"good/s", "good_per_second", 0},
                                {"of peak", "good_of_peak", 2},
                                {"good", "good", 0},
                                {"refused", "refused", 0},
                                {"expired", "expired", 0},
                                {"dropped", "dropped", 0},
                                {"unsent", "unsent", 0},
                                {"other", "other", 0},
                                {"good p50", "good_p50_us", kLatency},
                                {"good p99", "good_p99_us", kLatency},
                                {"ref. p50", "refused_p50_us", kLatency},
                                {"ref. p99", "refused_p99_us", kLatency}};

std::string OverloadText(const Json& report) {
  if (!report.contains("overload") || !report.at("overload").is_array()) {
    return "";
  }
  std::string text = absl::StrFormat(
      "\ngoodput against offered load; peak %.0f calls/s, deadline %g s, at "
      "most %d calls in flight\n",
      Number(report, "peak"),
      report.at("settings").at("timeout_s").get<double>(),
      report.at("settings").value("max_in_flight", 0));
  absl::StrAppendFormat(&text, "%-12s", "offered");
  for (const Column& column : kOverload) {
    absl::StrAppendFormat(&text, "%11s", column.title);
  }
  for (const Json& point : report.at("overload")) {
    absl::StrAppendFormat(&text, "\n%-12s",
                          absl::StrFormat("%gx", Number(point, "multiple")));
    for (const auto& [title, key, digits] : kOverload) {
      absl::StrAppendFormat(
          &text, "%11s",
          point.at(key).is_null() ? "-"
          : digits == kLatency
              ? NanosText(Number(point, key) * 1e3)
              : absl::StrFormat("%.*f", digits, Number(point, key)));
    }
  }
  return text + "\n";
}

}  // namespace

std::string ReportText(const Json& report) {
  const Json& steps = report.at("steps");
  int width = 12;
  for (const Json& step : steps) {
    for (const Json& one : step.at("cases")) {
      width = std::max(width, static_cast<int>(Text(one, "name").size()) + 2);
    }
  }
  std::string text(static_cast<std::size_t>(width), ' ');
  for (const char* title : {"calls/s", "GB/s out", "GB/s in", "mean", "p50",
                            "p90", "p99", "p99.9", "p99.99", "max", "errors"}) {
    absl::StrAppendFormat(&text, "%11s", title);
  }
  text += "\n";
  const auto latencies = [](const Json& latency) {
    std::string cells;
    for (const char* key : kFigures) {
      absl::StrAppendFormat(&cells, "%11s", LatencyCell(latency, key));
    }
    return cells;
  };
  for (const Json& step : steps) {
    absl::StrAppendFormat(
        &text, "%-*s%11.0f%11.3f%11.3f%s%11d\n", width, Text(step, "label"),
        Number(step, "calls_per_second"), Number(step, "gbps_sent"),
        Number(step, "gbps_received"), latencies(step.at("latency_us")),
        Count(step, "failed") + Count(step, "unsent"));
    if (step.at("cases").size() > 1) {
      for (const Json& one : step.at("cases")) {
        absl::StrAppendFormat(&text, "  %-*s%11s%11s%11s%s\n", width - 2,
                              Text(one, "name"),
                              absl::StrCat(Count(one, "ok"), " ok"), "", "",
                              latencies(one.at("latency_us")));
      }
    }
  }
  for (const Json& step : steps) {
    const auto tell = [&](const auto&... parts) {
      absl::StrAppend(&text, Text(step, "label"), ": ", parts..., "\n");
    };
    const Json& failed = step.at("failed_latency_us");
    for (const auto& [code, count] : step.at("errors").items()) {
      tell(count.get<std::int64_t>(), " x ", code, ", answered in ",
           LatencyCell(failed, "p50"), " (p50), ", LatencyCell(failed, "p99"),
           " (p99)");
    }
    if (Count(step, "unsent") > 0) {
      tell(Count(step, "unsent"), " calls were due but not sent in time");
    }
    // Reports the tester's own limits, which could be mistaken for limits of
    // the server.
    if (Count(step, "dropped") > 0) {
      tell(Count(step, "dropped"),
           " calls were dropped: their deadline had passed before they could "
           "be sent");
    }
    if (Count(step, "limited") > 0) {
      tell(Count(step, "limited"), " calls were held back by ",
           Count(step, "in_flight_limit"),
           " calls in flight; raise --max-in-flight to offer the whole load");
    }
    if (step.at("tester_limited").get<bool>()) {
      tell(absl::StrFormat(
          "this is a figure of the tester, not of the server: %d calls were "
          "sent more than 10 ms late, and its busiest thread used %.0f %% of a "
          "core; offer less, raise --threads and --connections, or give it a "
          "machine of its own",
          Count(step, "sent_late"), 100 * Number(step, "busiest_thread")));
    }
    if (Count(step, "verified") > 0) {
      tell(Count(step, "verified"), " answers compared bit for bit, ",
           Count(step, "wrong"), " differ");
    }
    if (!step.at("first_wrong").is_null()) tell(Text(step, "first_wrong"));
  }
  if (report.contains("capacity") && !report.at("capacity").is_null()) {
    const Json& capacity = report.at("capacity");
    absl::StrAppendFormat(&text, "capacity: %.0f calls/s with p99 under %s\n",
                          Number(capacity, "calls_per_second"),
                          NanosText(Number(capacity, "p99_bound_us") * 1e3));
  }
  return text + OverloadText(report);
}

namespace {

constexpr absl::string_view kPage =
#include "page_html.inc"
    ;

}  // namespace

// Escapes every <, so that no text in a report can end the script.
std::string ReportPage(const Json& report) {
  const std::string json = absl::StrReplaceAll(
      report.dump(-1, ' ', false, Json::error_handler_t::replace),
      {{"<", "\\u003c"}});
  return absl::StrReplaceAll(
      kPage,
      {{"const REPORT = null;", absl::StrCat("const REPORT = ", json, ";")}});
}

absl::Status WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, ": cannot be written"));
  }
  return absl::OkStatus();
}

}  // namespace posenc::load
