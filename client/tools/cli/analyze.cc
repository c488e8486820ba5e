// `posenc analyze`: prints each pair's wavelength in positions. For each
// distance it prints the similarity of a vector with itself, and RoFormer's
// bound (section 3.4.3) on the decay of scores.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/tools/arguments/connection.h"
#include "client/tools/cli/commands.h"
#include "client/tools/files/print.h"
#include "client/tools/files/status.h"

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

void PrintAnalysis(const v1::AnalyzeRopeRequest& request,
                   const v1::AnalyzeRopeResponse& response,
                   const std::string& name) {
  const int pairs = response.wavelengths_size();
  std::printf("%s\n", name.c_str());
  PrintFact("pairs", ShownText(pairs, kShownPairs));
  const int turning = response.pairs_within_trained_length();
  // If no flag gives the trained length, 0 pairs may mean that the length is
  // not known.
  if (turning > 0 || request.trained_length() > 0) {
    PrintFact(
        "full turns",
        absl::StrCat(turning, " of ", pairs,
                     " pairs complete one within the trained length",
                     request.trained_length() > 0
                         ? absl::StrCat(" (", request.trained_length(), ")")
                         : ""));
  }
  std::printf("\n  %6s  %18s\n", "pair", "wavelength");
  for (const int i : Spread(pairs, kShownPairs)) {
    absl::PrintF("  %6d  %18s\n", i,
                 std::isfinite(response.wavelengths(i))
                     ? NineDigits(response.wavelengths(i))
                     : "still");
  }
  const std::int64_t step = std::max<std::int64_t>(request.distance_step(), 1);
  const int distances = response.decay_size();
  const bool compared = response.kept_size() > 0;
  std::printf("\n  %10s  %12s  %12s%s\n", "distance", "similarity", "decay",
              compared ? "          kept" : "");
  for (const int i : Spread(distances, 10)) {
    absl::PrintF("  %10d  %12.6f  %12.6f", i * step,
                 i < response.similarity_size() ? response.similarity(i) : 0.0,
                 response.decay(i));
    if (i < response.kept_size()) absl::PrintF("  %12.6f", response.kept(i));
    std::printf("\n");
  }
}

absl::Status RunAnalyze(const AnalyzeFlags& flags, const GlobalFlags& globals) {
  v1::AnalyzeRopeRequest request;
  ASSIGN_OR_RETURN(*request.mutable_rope(), BuildSource(flags.source));
  if (flags.compare.Given()) {
    ASSIGN_OR_RETURN(*request.mutable_compare_with(),
                     BuildVariant(request.rope(), flags.compare));
  }
  request.set_head_dim(request.rope().head_dim());
  RETURN_IF_ERROR(flags.request.Read(&request));
  ASSIGN_OR_RETURN(const Connection connection, Connection::Open(globals));
  ASSIGN_OR_RETURN(const v1::AnalyzeRopeResponse response,
                   connection.client().AnalyzeRope(request));
  if (globals.json) {
    PrintJson(ToJson(response));
  } else {
    PrintAnalysis(request, response, flags.source.Name());
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
