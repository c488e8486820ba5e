#include "client/load/page.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "client/load/svg.h"
#include "client/load/units.h"

namespace posenc::load {
namespace {

// Points of a curve over time: a chart is 640 units wide, so that more would
// make the page larger and nothing clearer.
constexpr std::size_t kMaxPoints = 300;
// Columns of latencies, by their names in the report.
constexpr const char* kLatencies[] = {"mean",  "p50",    "p90", "p99",
                                      "p99.9", "p99.99", "max"};

constexpr char kHead[] = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>posenc-load</title>
<style>
:root{--bg:#f7f8fa;--card:#fff;--text:#1c2430;--soft:#667085;--line:#e4e7ec;
--c0:#2563eb;--c1:#ea580c;--c2:#059669;--c3:#9333ea;--c4:#dc2626;--c5:#0891b2}
@media(prefers-color-scheme:dark){:root{--bg:#12161c;--card:#1b212a;
--text:#e6e9ee;--soft:#97a1b0;--line:#2d3643;--c0:#6ea8fe;--c1:#fd9a57;
--c2:#4cc38a;--c3:#c084fc;--c4:#f87171;--c5:#4dc4dc}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1180px;padding:28px 20px 60px;background:var(--bg);
color:var(--text);font:15px/1.5 system-ui,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
h1{font-size:24px;margin:0}h2{font-size:17px;margin:34px 0 10px}
.sub{color:var(--soft);margin:2px 0 20px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px}
.tile,figure,.card{background:var(--card);border:1px solid var(--line);border-radius:10px}
.tile{padding:12px 16px}.tile b{display:block;font-size:22px;white-space:nowrap;font-weight:600;
font-variant-numeric:tabular-nums}.tile span{color:var(--soft);font-size:13px}
.bad b,td.bad{color:var(--c4)}td.good{color:var(--c2)}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(460px,1fr));gap:14px}
figure{margin:0;padding:14px 16px 10px}figcaption{font-weight:600;margin-bottom:6px}
figure>svg{width:100%;height:auto;display:block}
.grid{stroke:var(--line);stroke-width:1}
text{fill:var(--soft);font-size:12px}
.ty{text-anchor:end}.tx,.label{text-anchor:middle}
.line{fill:none;stroke-width:2;stroke-linejoin:round}.dashed{stroke-dasharray:5 4}
.c0{stroke:var(--c0)}.c1{stroke:var(--c1)}.c2{stroke:var(--c2)}
.c3{stroke:var(--c3)}.c4{stroke:var(--c4)}.c5{stroke:var(--c5)}
.f0{fill:var(--c0)}.f1{fill:var(--c1)}.f2{fill:var(--c2)}
.f3{fill:var(--c3)}.f4{fill:var(--c4)}.f5{fill:var(--c5)}
.legend{display:flex;flex-wrap:wrap;gap:4px 16px;color:var(--soft);font-size:13px;padding-top:4px}
.legend svg{width:22px;height:8px;margin-right:6px;vertical-align:middle}
.card{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:14px}
th,td{padding:7px 9px;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th{color:var(--soft);font-weight:500}th:first-child,td:first-child{text-align:left}
tr:last-child td{border-bottom:0}tr.part td:first-child{padding-left:28px}
tr.part td{color:var(--soft)}
pre{margin:0;padding:14px 16px;overflow-x:auto;font-size:13px}
</style></head><body>
)";

// Latencies in the report are in microseconds.
std::string Micros(double micros) {
  return absl::StrReplaceAll(NanosText(micros * 1e3), {{" us", " \u00b5s"}});
}

std::string Count(double value) {
  if (value >= 1e6) return absl::StrFormat("%.4gM", value / 1e6);
  if (value >= 1e4) return absl::StrFormat("%.4gk", value / 1e3);
  return absl::StrFormat("%.4g", value);
}

std::string LatencyOf(const Json& latency, const char* key) {
  return latency.is_null() || latency.at(key).is_null()
             ? "\u2013"
             : Micros(latency.at(key).get<double>());
}

std::string Tile(const std::string& value, const std::string& name,
                 bool bad = false) {
  return absl::StrCat("<div class=\"tile", bad ? " bad" : "", "\"><b>",
                      EscapeHtml(value), "</b><span>", EscapeHtml(name),
                      "</span></div>\n");
}

std::string Cell(const std::string& text, const char* kind = "") {
  return absl::StrCat("<td", *kind ? absl::StrCat(" class=\"", kind, "\"") : "",
                      ">", EscapeHtml(text), "</td>");
}

// Latency by percentile p, over -log10(1 - p): every nine has the same width.
Line Curve(const std::string& name, const Json& latency, int color,
           bool dashed = false) {
  Line line{name, {}, color, dashed, false};
  if (latency.is_null()) return line;
  for (const Json& point : latency.at("percentiles")) {
    const double tail = 1 - point.at(0).get<double>() / 100;
    if (tail <= 0) continue;
    line.points.emplace_back(-std::log10(tail), point.at(1).get<double>());
  }
  return line;
}

std::string CurveChart(const std::string& title,
                       const std::vector<Line>& lines) {
  Axis x{"percentile"};
  const double half = std::log10(2.0);
  x.ticks = {{0, "0"},      {half, "50 %"}, {1, "90 %"},     {2, "99 %"},
             {3, "99.9 %"}, {4, "99.99 %"}, {5, "99.999 %"}, {6, "99.9999 %"}};
  Axis y{"latency", true};
  y.text = Micros;
  return Chart(title, x, y, lines);
}

// The figures of every second, over the time of the run; steps follow each
// other.
struct Series {
  Line calls{"calls/s", {}, 0};
  Line errors{"failed calls/s", {}, 4, true};
  Line p50{"p50", {}, 0};
  Line p99{"p99", {}, 1};
  Line max{"max", {}, 4, true};
};

Series SeriesOf(const Json& report) {
  Series out;
  std::size_t points = 0;
  for (const Json& step : report.at("steps")) {
    points += step.at("series").size();
  }
  const std::size_t stride = points / kMaxPoints + 1;
  double offset = 0;
  for (const Json& step : report.at("steps")) {
    const Json& series = step.at("series");
    double end = 0;
    for (std::size_t i = 0; i < series.size(); i += stride) {
      // Points are merged into one by the mean of rates and medians and by the
      // greatest of p99 and max: a peak must not vanish.
      double seconds = 0, calls = 0, errors = 0, p50 = 0, p99 = 0, max = 0;
      const std::size_t last = std::min(i + stride, series.size());
      for (std::size_t j = i; j < last; ++j) {
        const Json& point = series[j];
        const double length = point.at("seconds").get<double>();
        seconds += length;
        calls += point.at("calls_per_second").get<double>() * length;
        errors += point.at("errors").get<double>();
        p50 += point.at("p50_us").get<double>() * length;
        p99 = std::max(p99, point.at("p99_us").get<double>());
        max = std::max(max, point.at("max_us").get<double>());
        end = point.at("start_s").get<double>() + length;
      }
      if (seconds <= 0) continue;
      const double t = offset + end;
      out.calls.points.emplace_back(t, calls / seconds);
      out.errors.points.emplace_back(t, errors / seconds);
      out.p50.points.emplace_back(t, p50 / seconds);
      out.p99.points.emplace_back(t, p99);
      out.max.points.emplace_back(t, max);
    }
    offset += end;
  }
  for (Line* line : {&out.calls, &out.errors, &out.p50, &out.p99, &out.max}) {
    line->marks = points < 40;
  }
  return out;
}

std::string StepsTable(const Json& report) {
  std::string out =
      "<div class=\"card\"><table><tr><th></th><th>calls/s</th>"
      "<th>GB/s out</th><th>GB/s in</th>";
  for (const char* key : kLatencies)
    absl::StrAppend(&out, "<th>", key, "</th>");
  out +=
      "<th>ok</th><th>failed</th><th>dropped</th><th>unsent</th>"
      "<th>limited</th><th>checked</th>"
      "<th>wrong</th></tr>\n";
  for (const Json& step : report.at("steps")) {
    const auto count = [&](const char* key, bool bad) {
      // Reports of older versions lack some of them.
      const auto value = step.value(key, std::int64_t{0});
      return Cell(absl::StrCat(value), bad && value ? "bad" : "");
    };
    absl::StrAppend(
        &out, "<tr>", Cell(step.at("label").get<std::string>()),
        Cell(
            absl::StrFormat("%.0f", step.at("calls_per_second").get<double>())),
        Cell(absl::StrFormat("%.3f", step.at("gbps_sent").get<double>())),
        Cell(absl::StrFormat("%.3f", step.at("gbps_received").get<double>())));
    for (const char* key : kLatencies) {
      out += Cell(LatencyOf(step.at("latency_us"), key));
    }
    absl::StrAppend(&out, count("ok", false), count("failed", true),
                    count("dropped", true), count("unsent", true),
                    count("limited", true), count("verified", false),
                    count("wrong", true), "</tr>\n");
    if (step.at("cases").size() < 2) continue;
    for (const Json& one : step.at("cases")) {
      absl::StrAppend(&out, "<tr class=\"part\">",
                      Cell(one.at("name").get<std::string>()), Cell(""),
                      Cell(""), Cell(""));
      for (const char* key : kLatencies) {
        out += Cell(LatencyOf(one.at("latency_us"), key));
      }
      absl::StrAppend(
          &out, Cell(absl::StrCat(one.at("ok").get<std::int64_t>())), Cell(""),
          Cell(""), Cell(""), Cell(""), Cell(""), Cell(""), "</tr>\n");
    }
  }
  return out + "</table></div>\n";
}

std::string ErrorsTable(const Json& report) {
  std::string rows;
  for (const Json& step : report.at("steps")) {
    for (const auto& [code, count] : step.at("errors").items()) {
      absl::StrAppend(&rows, "<tr>", Cell(step.at("label").get<std::string>()),
                      Cell(code), Cell(absl::StrCat(count.get<std::int64_t>())),
                      Cell(LatencyOf(step.at("failed_latency_us"), "p50")),
                      Cell(LatencyOf(step.at("failed_latency_us"), "p99")),
                      "</tr>\n");
    }
  }
  if (rows.empty()) return "";
  return absl::StrCat(
      "<h2>Errors</h2><div class=\"card\"><table><tr><th>step</th><th>code</th>"
      "<th>calls</th><th>p50 of all failed</th><th>p99 of all failed</th></tr>",
      rows, "</table></div>\n");
}

std::string StepsChart(const Json& report) {
  Line p50{"p50", {}, 0, false, true};
  Line p99{"p99", {}, 1, false, true};
  Line p999{"p99.9", {}, 4, true, true};
  const auto is_open = [](const Json& step) {
    return !step.at("rate").is_null();
  };
  const Json& steps = report.at("steps");
  // A search starts with a closed loop, which has no rate to stand at.
  const bool any_open = std::any_of(steps.begin(), steps.end(), is_open);
  for (const Json& step : steps) {
    if (step.at("latency_us").is_null()) continue;
    if (any_open && !is_open(step)) continue;
    const double x =
        step.at(any_open ? "rate" : "calls_per_second").get<double>();
    const Json& latency = step.at("latency_us");
    p50.points.emplace_back(x, latency.at("p50").get<double>());
    p99.points.emplace_back(x, latency.at("p99").get<double>());
    p999.points.emplace_back(x, latency.at("p99.9").get<double>());
  }
  // The steps of a search are not in the order of their rates.
  for (Line* line : {&p50, &p99, &p999}) {
    std::sort(line->points.begin(), line->points.end());
  }
  Axis x{any_open ? "calls per second offered" : "calls per second reached"};
  x.text = Count;
  Axis y{"latency", true};
  y.text = Micros;
  return Chart("Latency by rate", x, y, {p50, p99, p999});
}

std::string AchievedChart(const Json& report) {
  Line offered{"offered", {}, 5, true};
  Line achieved{"answered", {}, 2, false, true};
  for (const Json& step : report.at("steps")) {
    if (step.at("rate").is_null()) continue;
    const double rate = step.at("rate").get<double>();
    offered.points.emplace_back(rate, rate);
    achieved.points.emplace_back(rate,
                                 step.at("calls_per_second").get<double>());
  }
  std::sort(offered.points.begin(), offered.points.end());
  std::sort(achieved.points.begin(), achieved.points.end());
  if (offered.points.size() < 2) return "";
  Axis x{"calls per second offered"};
  x.text = Count;
  Axis y{"calls per second"};
  y.from_zero = true;
  y.text = Count;
  return Chart("Throughput by rate", x, y, {offered, achieved});
}

bool HasOverload(const Json& report) {
  return report.contains("overload") && report["overload"].is_array() &&
         !report["overload"].empty();
}

// Goodput against offered load: a server that sheds keeps its peak, one that
// does not falls to nothing.
std::string OverloadChart(const Json& report) {
  Line good{"good", {}, 2, false, true};
  Line refused{"refused", {}, 1, true, true};
  Line lost{"expired or dropped", {}, 4, true, true};
  Line peak{"peak", {}, 5, true};
  for (const Json& point : report.at("overload")) {
    const double offered = point.at("offered_per_second").get<double>();
    const double due = std::max(point.at("due").get<double>(), 1.0);
    const auto rate = [&](const char* key) {
      return offered * point.at(key).get<double>() / due;
    };
    // Such a point is none of the server's.
    if (point.value("tester_limited", false)) continue;
    good.points.emplace_back(offered,
                             point.at("good_per_second").get<double>());
    refused.points.emplace_back(offered, rate("refused"));
    lost.points.emplace_back(offered, rate("expired") + rate("dropped"));
    peak.points.emplace_back(offered, report.at("peak").get<double>());
  }
  for (Line* line : {&good, &refused, &lost, &peak}) {
    std::sort(line->points.begin(), line->points.end());
  }
  Axis x{"calls per second offered"};
  x.from_zero = true;
  x.text = Count;
  Axis y{"calls per second"};
  y.from_zero = true;
  y.text = Count;
  return Chart("Goodput against offered load", x, y,
               {good, refused, lost, peak});
}

std::string OverloadTable(const Json& report) {
  std::string out =
      "<h2>Overload</h2><div class=\"card\"><table><tr><th></th>"
      "<th>offered/s</th><th>good/s</th><th>of peak</th><th>good</th>"
      "<th>refused</th><th>expired</th><th>dropped</th><th>unsent</th>"
      "<th>other</th><th>good p50</th><th>good p99</th><th>refused p50</th>"
      "<th>refused p99</th></tr>\n";
  for (const Json& point : report.at("overload")) {
    absl::StrAppend(
        &out, "<tr>",
        Cell(absl::StrFormat("%gx", point.at("multiple").get<double>())));
    for (const char* key : {"offered_per_second", "good_per_second"}) {
      out += Cell(Count(point.at(key).get<double>()));
    }
    out += Cell(
        point.at("good_of_peak").is_null()
            ? "tester's limit"
            : absl::StrFormat("%.2f", point.at("good_of_peak").get<double>()));
    for (const char* key :
         {"good", "refused", "expired", "dropped", "unsent", "other"}) {
      out += Cell(absl::StrCat(point.at(key).get<std::int64_t>()));
    }
    for (const char* key :
         {"good_p50_us", "good_p99_us", "refused_p50_us", "refused_p99_us"}) {
      out += Cell(LatencyOf(point, key));
    }
    out += "</tr>\n";
  }
  return out + "</table></div>\n";
}

std::string TimeCharts(const std::string& suffix, const Json& report) {
  const Series series = SeriesOf(report);
  Axis time{"seconds"};
  time.from_zero = true;
  Axis rate{"calls/s"};
  rate.from_zero = true;
  rate.text = Count;
  Axis latency{"latency", true};
  latency.text = Micros;
  return Chart("Throughput over time, calls/s" + suffix, time, rate,
               {series.calls, series.errors}) +
         Chart("Latency over time" + suffix, time, latency,
               {series.p50, series.p99, series.max});
}

std::string Subtitle(const Json& report) {
  std::string text = absl::StrCat(report.value("target", ""), " \u00b7 ",
                                  report.value("started", ""));
  if (report.contains("server") && report["server"].is_object()) {
    absl::StrAppend(&text, " \u00b7 posenc ",
                    report["server"].value("version", ""), " ",
                    report["server"].value("instruction_set", ""));
  }
  return EscapeHtml(text);
}

}  // namespace

std::string ReportPage(const Json& report) {
  std::string out = absl::StrCat(kHead, "<h1>posenc-load</h1><p class=\"sub\">",
                                 Subtitle(report), "</p>\n");
  const Json& steps = report.at("steps");
  if (steps.empty())
    return absl::StrCat(out, "<p>no steps</p></body></html>\n");
  // The tiles show the step with the highest throughput.
  const Json* best = &steps[0];
  std::int64_t failed = 0, wrong = 0;
  for (const Json& step : steps) {
    if (step.at("calls_per_second") > best->at("calls_per_second")) {
      best = &step;
    }
    failed += step.at("failed").get<std::int64_t>() +
              step.at("unsent").get<std::int64_t>();
    wrong += step.at("wrong").get<std::int64_t>();
  }
  const std::string at =
      steps.size() > 1 ? ", " + best->at("label").get<std::string>() : "";
  out += "<div class=\"tiles\">";
  if (report.contains("capacity") && report["capacity"].is_object()) {
    const Json& capacity = report["capacity"];
    out += Tile(
        absl::StrFormat("%.0f", capacity.at("calls_per_second").get<double>()),
        "calls/s with p99 under " +
            Micros(capacity.at("p99_bound_us").get<double>()));
  }
  absl::StrAppend(
      &out,
      Tile(absl::StrFormat("%.0f", best->at("calls_per_second").get<double>()),
           "calls/s answered" + at),
      Tile(absl::StrFormat("%.2f / %.2f", best->at("gbps_sent").get<double>(),
                           best->at("gbps_received").get<double>()),
           "GB/s out / in" + at),
      Tile(LatencyOf(best->at("latency_us"), "p50"), "p50" + at),
      Tile(LatencyOf(best->at("latency_us"), "p99"), "p99" + at),
      Tile(LatencyOf(best->at("latency_us"), "p99.99"), "p99.99" + at),
      Tile(absl::StrCat(failed), "failed or unsent", failed > 0));
  if (wrong > 0) out += Tile(absl::StrCat(wrong), "wrong answers", true);
  out += "</div>\n<h2>Charts</h2><div class=\"charts\">\n";
  if (HasOverload(report)) out += OverloadChart(report);
  std::vector<Line> curves;
  for (const Json& step : steps) {
    const int number = static_cast<int>(curves.size());
    curves.push_back(Curve(step.at("label").get<std::string>(),
                           step.at("latency_us"), number, number >= 6));
  }
  out += CurveChart("Latency by percentile", curves);
  if (steps.size() > 1) out += StepsChart(report) + AchievedChart(report);
  absl::StrAppend(&out, TimeCharts("", report), "</div>\n",
                  HasOverload(report) ? OverloadTable(report) : "",
                  "<h2>Steps</h2>", StepsTable(report), ErrorsTable(report));
  if (report.contains("settings")) {
    absl::StrAppend(&out, "<h2>Settings</h2><div class=\"card\"><pre>",
                    EscapeHtml(report["settings"].dump(2)), "</pre></div>\n");
  }
  return out + "</body></html>\n";
}

std::string ComparisonPage(const std::string& a_name, const Json& a,
                           const std::string& b_name, const Json& b) {
  std::string out = absl::StrCat(
      kHead,
      "<h1>posenc-load: two runs</h1><p class=\"sub\">a: ", EscapeHtml(a_name),
      " \u2013 ", Subtitle(a), "<br>b: ", EscapeHtml(b_name), " \u2013 ",
      Subtitle(b), "</p>\n");
  for (const StepPair& pair : MatchSteps(a, b)) {
    const std::string a_label = pair.a->at("label").get<std::string>();
    const std::string b_label = pair.b->at("label").get<std::string>();
    const std::string title =
        a_label == b_label ? a_label : absl::StrCat(a_label, " / ", b_label);
    absl::StrAppend(&out, "<h2>", EscapeHtml(title),
                    "</h2><div class=\"charts\">",
                    CurveChart("Latency by percentile",
                               {Curve("a", pair.a->at("latency_us"), 0),
                                Curve("b", pair.b->at("latency_us"), 1)}),
                    "<div class=\"card\"><table><tr><th></th><th>a</th>"
                    "<th>b</th><th>b / a</th></tr>\n");
    // Up to 2 % is shown as equal: two runs of one build differ by more.
    const auto row = [&](const std::string& name, const std::string& x_text,
                         const std::string& y_text, double x, double y,
                         bool more_is_better) {
      const double ratio = x > 0 ? y / x : 1;
      const char* kind = std::fabs(ratio - 1) < 0.02     ? ""
                         : (ratio > 1) == more_is_better ? "good"
                                                         : "bad";
      absl::StrAppend(
          &out, "<tr>", Cell(name), Cell(x_text), Cell(y_text),
          Cell(x > 0 ? absl::StrFormat("%.3f", ratio) : "\u2013", kind),
          "</tr>\n");
    };
    for (const char* key : {"calls_per_second", "gbps_sent", "gbps_received"}) {
      const double x = pair.a->at(key).get<double>();
      const double y = pair.b->at(key).get<double>();
      row(absl::StrReplaceAll(key, {{"_", " "}}), absl::StrFormat("%.6g", x),
          absl::StrFormat("%.6g", y), x, y, true);
    }
    const Json& x = pair.a->at("latency_us");
    const Json& y = pair.b->at("latency_us");
    for (const char* key : kLatencies) {
      row(key, LatencyOf(x, key), LatencyOf(y, key),
          x.is_null() ? 0 : x.at(key).get<double>(),
          y.is_null() ? 0 : y.at(key).get<double>(), false);
    }
    row("error rate",
        absl::StrFormat("%.4g", pair.a->at("error_rate").get<double>()),
        absl::StrFormat("%.4g", pair.b->at("error_rate").get<double>()),
        pair.a->at("error_rate").get<double>(),
        pair.b->at("error_rate").get<double>(), false);
    out += "</table></div></div>\n";
  }
  absl::StrAppend(&out, "<h2>Over time</h2><div class=\"charts\">",
                  TimeCharts(" (a)", a), TimeCharts(" (b)", b),
                  "</div></body></html>\n");
  return out;
}

}  // namespace posenc::load
