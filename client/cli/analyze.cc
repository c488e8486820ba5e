// `posenc analyze`: prints each pair's wavelength in positions, and by distance
// the similarity of a vector with itself and RoFormer's bound (section 3.4.3)
// on the decay of scores.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "client/cli/commands.h"
#include "client/cli/connection.h"
#include "client/cli/print.h"

namespace posenc::cli {
namespace {

constexpr FieldFlag kFlags[] = {
    {"--max-distance", "max_distance", "N",
     "Largest distance of decay and similarity", kAlone, false, "4096"},
    {"--distance-step", "distance_step", "N",
     "Step of the distances; there are at most 65536", kAlone, false, "1"},
    {"--trained-length", "trained_length", "N",
     "Default: the model's, if known", kAlone},
};

struct AnalyzeFlags {
  SourceFlags source;
  SourceFlags compare;
  FieldFlags request{v1::AnalyzeRopeRequest::descriptor()};
};

// Columns and rows of the curve; labels and axis take 14 more of the 80
// columns.
constexpr std::size_t kWidth = 64;
constexpr int kHeight = 12;

// Draws `values`, which are finite and not empty, from left to right for a
// terminal of 80 columns. If there are more values than columns, a column shows
// a mean. The ends of both axes are labelled.
std::string Plot(absl::Span<const double> values, const std::string& first_x,
                 const std::string& last_x) {
  const std::size_t width = std::min(kWidth, values.size());
  std::vector<double> means(width);
  for (std::size_t i = 0; i < width; ++i) {
    const std::size_t begin = i * values.size() / width;
    const std::size_t end = (i + 1) * values.size() / width;
    for (std::size_t j = begin; j < end; ++j) means[i] += values[j];
    means[i] /= static_cast<double>(end - begin);
  }
  const auto [low, high] = std::minmax_element(means.begin(), means.end());
  const double range = *high > *low ? *high - *low : 1;
  std::vector<std::string> lines(kHeight, std::string(width, ' '));
  for (std::size_t i = 0; i < width; ++i) {
    const long from_top =
        std::lround((*high - means[i]) / range * (kHeight - 1));
    lines[static_cast<std::size_t>(from_top)][i] = '*';
  }
  std::string text;
  for (int row = 0; row < kHeight; ++row) {
    const std::string label = row == 0 ? absl::StrFormat("%.4g", *high)
                              : row == kHeight - 1
                                  ? absl::StrFormat("%.4g", *low)
                                  : "";
    absl::StrAppendFormat(&text, "  %10s |%s\n", label, lines[row]);
  }
  absl::StrAppendFormat(&text, "  %10s +%s\n", "", std::string(width, '-'));
  const std::size_t gap = width > first_x.size() + last_x.size()
                              ? width - first_x.size() - last_x.size()
                              : 1;
  absl::StrAppendFormat(&text, "  %10s  %s%s%s\n", "", first_x,
                        std::string(gap, ' '), last_x);
  return text;
}

void PrintAnalysis(const v1::AnalyzeRopeRequest& request,
                   const v1::AnalyzeRopeResponse& response,
                   const std::string& name) {
  const int pairs = response.wavelengths_size();
  std::printf("%s\n", name.c_str());
  PrintFact("pairs", absl::StrCat(pairs));
  PrintFact("full turns",
            absl::StrCat(response.pairs_within_trained_length(), " of ", pairs,
                         " pairs complete one within the trained length",
                         request.trained_length() > 0
                             ? absl::StrCat(" (", request.trained_length(), ")")
                             : ""));
  std::printf("\n  %6s  %18s\n", "pair", "wavelength");
  for (const int i : Spread(pairs, 10)) {
    std::printf("  %6d  %18s\n", i,
                std::isfinite(response.wavelengths(i))
                    ? NineDigits(response.wavelengths(i)).c_str()
                    : "still");
  }
  const std::int64_t step = std::max<std::int64_t>(request.distance_step(), 1);
  const int distances = response.decay_size();
  const bool compared = response.kept_size() > 0;
  std::printf("\n  %10s  %12s  %12s%s\n", "distance", "similarity", "decay",
              compared ? "          kept" : "");
  for (const int i : Spread(distances, 10)) {
    const std::int64_t distance = i * step;
    std::printf("  %10lld  %12.6f  %12.6f", static_cast<long long>(distance),
                i < response.similarity_size() ? response.similarity(i) : 0.0,
                response.decay(i));
    if (i < response.kept_size()) std::printf("  %12.6f", response.kept(i));
    std::printf("\n");
  }
  if (distances == 0) return;
  std::printf(
      "\n  decay by distance (RoFormer, 3.4.3)\n%s",
      Plot({response.decay().data(), static_cast<std::size_t>(distances)}, "0",
           absl::StrCat((distances - 1) * step))
          .c_str());
  if (!compared) return;
  std::printf(
      "\n  share of a score that is left\n%s",
      Plot({response.kept().data(), static_cast<std::size_t>(distances)}, "0",
           absl::StrCat((distances - 1) * step))
          .c_str());
}

absl::Status RunAnalyze(const AnalyzeFlags& flags, const GlobalFlags& globals) {
  v1::AnalyzeRopeRequest request;
  absl::StatusOr<v1::RopeSource> source = BuildSource(flags.source);
  if (!source.ok()) return source.status();
  *request.mutable_rope() = *std::move(source);
  if (flags.compare.Given()) {
    absl::StatusOr<v1::RopeSource> other =
        BuildVariant(request.rope(), flags.compare);
    if (!other.ok()) return other.status();
    *request.mutable_compare_with() = *std::move(other);
  }
  request.set_head_dim(request.rope().head_dim());
  const absl::Status read = flags.request.Read(&request);
  if (!read.ok()) return read;
  const absl::StatusOr<Connection> connection = Connection::Open(globals);
  if (!connection.ok()) return connection.status();
  const absl::StatusOr<v1::AnalyzeRopeResponse> response =
      connection->client().AnalyzeRope(request);
  if (!response.ok()) return response.status();
  if (globals.json) {
    PrintJson(ToJson(*response));
  } else {
    PrintAnalysis(request, *response, flags.source.Name());
  }
  return absl::OkStatus();
}

}  // namespace

Command AddAnalyze(CLI::App* app, const GlobalFlags* globals) {
  const auto flags = std::make_shared<AnalyzeFlags>();
  AddSourceFlags(app, "", "Encoding", &flags->source);
  AddSourceFlags(app, "compare-", "Encoding to compare with", &flags->compare);
  flags->request.Add(app, "", kFlags);
  return [flags, globals] { return RunAnalyze(*flags, *globals); };
}

}  // namespace posenc::cli
