// `posenc analyze`: what an encoding does over distance. Prints each pair's
// wavelength in positions, and by distance the similarity of a vector with
// itself and the decay of scores that RoFormer (section 3.4.3) bounds.

#include <cmath>
#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/connection.h"
#include "client/cli/print.h"
#include "client/cli/text_plot.h"

namespace posenc::cli {
namespace {

// Distances are in positions: 0, distance_step ... max_distance.
struct AnalyzeFlags {
  SourceFlags source;
  SourceFlags compare;
  std::int64_t max_distance = 4096;
  std::int64_t distance_step = 1;
  std::int64_t trained_length = 0;
};

void PrintAnalysis(const v1::AnalyzeRopeResponse& response,
                   const AnalyzeFlags& flags) {
  const int pairs = response.wavelengths_size();
  std::printf("%s\n", flags.source.Name().c_str());
  PrintFact("pairs", absl::StrCat(pairs));
  PrintFact("full turns",
            absl::StrCat(response.pairs_within_trained_length(), " of ", pairs,
                         " pairs complete one in the trained length",
                         flags.trained_length > 0
                             ? absl::StrCat(" (", flags.trained_length, ")")
                             : ""));
  std::printf("\n  %6s  %18s\n", "pair", "wavelength");
  for (const int i : Spread(pairs, 10)) {
    std::printf("  %6d  %18s\n", i,
                std::isfinite(response.wavelengths(i))
                    ? NineDigits(response.wavelengths(i)).c_str()
                    : "still");
  }
  const std::int64_t step = std::max<std::int64_t>(flags.distance_step, 1);
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
  request.set_head_dim(flags.source.head_dim);
  request.set_max_distance(flags.max_distance);
  request.set_distance_step(flags.distance_step);
  request.set_trained_length(flags.trained_length);
  const absl::StatusOr<Connection> connection = Connection::Open(globals);
  if (!connection.ok()) return connection.status();
  const absl::StatusOr<v1::AnalyzeRopeResponse> response =
      connection->client().AnalyzeRope(request);
  if (!response.ok()) return response.status();
  if (globals.json) {
    PrintJson(ToJson(*response));
  } else {
    PrintAnalysis(*response, flags);
  }
  return absl::OkStatus();
}

}  // namespace

Command AddAnalyze(CLI::App* app, const GlobalFlags* globals) {
  const auto flags = std::make_shared<AnalyzeFlags>();
  AddSourceFlags(app, "", "Encoding", &flags->source);
  AddSourceFlags(app, "compare-", "Encoding to compare with", &flags->compare);
  AddValue(app, "--max-distance", &flags->max_distance, "N",
           "Largest distance of decay and similarity")
      ->capture_default_str();
  AddValue(app, "--distance-step", &flags->distance_step, "N",
           "Between distances; at most 65536 of them")
      ->capture_default_str();
  AddValue(app, "--trained-length", &flags->trained_length, "N",
           "Default: the model's, if it tells");
  return [flags, globals] { return RunAnalyze(*flags, *globals); };
}

}  // namespace posenc::cli
