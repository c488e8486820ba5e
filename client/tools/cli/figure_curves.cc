// Figures of curves over the pairs and of curves over the distance.

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/tools/arguments/enum_flags.h"
#include "client/tools/cli/figure.h"
#include "client/tools/files/print.h"
#include "client/tools/files/status.h"
#include "core/rope/kept.h"

namespace posenc::cli {
namespace {

// Number of points of a curve over the distance, unless flags say otherwise.
constexpr std::int64_t kDefaultDistances = 1024;

// The greatest distance of `kept` without --max-distance.
constexpr std::int64_t kDefaultReach = 131072;

// The greatest distance that AnalyzeRope and core::Kept accept.
constexpr std::int64_t kMaxDistance = std::int64_t{1} << 31;

// Returns a file's name without its folder, short enough for a legend.
std::string ShortName(const SourceFlags& flags) {
  std::string name = flags.Name();
  if (!flags.config.empty() && flags.preset.empty()) {
    name = std::filesystem::path(name).filename().string();
  }
  if (name.size() > 40) name.replace(37, name.npos, "...");
  return name;
}

// Returns the text that describes a RopeSpec in a legend.
std::string SpecText(const v1::RopeSpec& spec) {
  std::string text = spec.has_rope_theta()
                         ? absl::StrCat("base ", NineDigits(spec.rope_theta()))
                         : "spec";
  const auto* const scaling =
      v1::RopeSpec::descriptor()->FindOneofByName("scaling");
  const auto* const field =
      spec.GetReflection()->GetOneofFieldDescriptor(spec, scaling);
  if (field != nullptr) absl::StrAppend(&text, ", ", field->name());
  if (spec.has_axes()) absl::StrAppend(&text, ", several axes");
  return text;
}

absl::StatusOr<v1::ResolveRopeResponse> Resolve(const v1::RopeSource& source,
                                                std::int32_t head_dim,
                                                const Client& client) {
  v1::ResolveRopeRequest request;
  *request.mutable_rope() = source;
  request.set_head_dim(head_dim);
  return client.ResolveRope(request);
}

absl::Status CheckDrawable(const std::string& flag,
                           const v1::ResolveRopeResponse& resolved,
                           bool one_axis) {
  if (resolved.spec().nope()) {
    return UsageError(absl::StrCat(
        flag,
        ": has no positional encoding (NoPE), so there is nothing to draw; "
        "--layer-index or --layer-type may name a layer that has one"));
  }
  const v1::RopeSpec& spec = resolved.spec();
  if (resolved.inv_freq_size() != spec.rotary_dim() / 2) {
    return UsageError(absl::StrCat(
        flag, ": has ", resolved.inv_freq_size(), " frequencies for ",
        spec.rotary_dim() / 2,
        " pairs, by head or by axis; a picture shows one for each pair"));
  }
  if (one_axis && resolved.axis_of_pair_size() > 0) {
    const int axes = 1 + *std::max_element(resolved.axis_of_pair().begin(),
                                           resolved.axis_of_pair().end());
    return UsageError(absl::StrCat(
        flag, ": its pairs follow ", axes,
        " position axes; this figure shows one (similarity --image, "
        "frequencies, compare and kept take several)"));
  }
  return absl::OkStatus();
}

// Returns the flag that is given, --preset, --config or --spec, with the
// prefix.
std::string SourceFlag(const SourceFlags& flags) {
  const char* const name = !flags.preset.empty()   ? "preset"
                           : !flags.config.empty() ? "config"
                                                   : "spec";
  return absl::StrCat("--", flags.prefix, name);
}

// Resolves `source`, which `flags` describe. If the flags name no encoding,
// they describe a variant of the encoding with the name `base`.
absl::StatusOr<Reading> Read(const SourceFlags& flags, v1::RopeSource source,
                             const std::string& base, std::int32_t head_dim,
                             const Client& client, bool one_axis) {
  ASSIGN_OR_RETURN(auto resolved, Resolve(source, head_dim, client));
  RETURN_IF_ERROR(CheckDrawable(
      flags.Empty() ? absl::StrCat("--", flags.prefix, "*") : SourceFlag(flags),
      resolved, one_axis));
  std::vector<std::string> parts = flags.details.Texts();
  parts.insert(parts.begin(), flags.Empty()       ? base
                              : source.has_spec() ? SpecText(resolved.spec())
                                                  : ShortName(flags));
  return Reading{absl::StrJoin(parts, ", "), std::move(source),
                 std::move(resolved)};
}

plot::Curve PairCurve(const std::string& name,
                      const google::protobuf::RepeatedField<double>& values) {
  plot::Curve curve{name, {}};
  for (int i = 0; i < values.size(); ++i) {
    curve.points.emplace_back(i, std::fabs(values[i]));
  }
  return curve;
}

// Returns the readings that `compare` and `kept` compare with the reference:
// the reading of --compare-*, or one reading for each of --profiles. Without
// --profiles, default profiles that refuse the model are left out.
absl::StatusOr<std::vector<Reading>> OtherReadings(const FigureFlags& flags,
                                                   const Reading& reference,
                                                   const Client& client) {
  std::vector<Reading> others;
  if (flags.compare.Given()) {
    if (!flags.profiles.empty()) {
      return UsageError("--profiles: excludes --compare-*");
    }
    ASSIGN_OR_RETURN(others, ReadBoth(flags, client, false));
    others.erase(others.begin());
    return others;
  }
  if (reference.source.has_spec()) {
    return UsageError(
        "--compare-spec: missing; a --spec means the same to every reader");
  }
  const bool default_profiles = flags.profiles.empty();
  const std::vector<std::string> names =
      default_profiles
          ? std::vector<std::string>{"hf", "vllm", "llama_cpp", "mlx"}
          : flags.profiles;
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(const int number,
                     ParseEnum(*v1::Profile_descriptor(), "--profiles", name));
    const auto profile = static_cast<v1::Profile>(number);
    const v1::Profile own =
        reference.source.profile() == v1::PROFILE_UNSPECIFIED
            ? v1::PROFILE_HF
            : reference.source.profile();
    if (default_profiles && profile == own) continue;
    Reading other{name, reference.source, {}};
    other.source.set_profile(profile);
    other.source.clear_profile_version();
    absl::StatusOr<v1::ResolveRopeResponse> resolved =
        Resolve(other.source, flags.source.Details().head_dim(), client);
    if (!resolved.ok() && default_profiles) continue;
    ASSIGN_OR_RETURN(other.resolved, std::move(resolved));
    RETURN_IF_ERROR(CheckDrawable("--profiles", other.resolved, false));
    others.push_back(std::move(other));
  }
  return others;
}

// The distances that the flags select. Their default number is about
// kDefaultDistances.
struct Distances {
  std::int64_t max = 0, step = 1;
};

absl::StatusOr<Distances> ReadDistances(const FigureFlags& flags) {
  Distances distances;
  distances.max = flags.max_distance.value_or(4096);
  distances.step = flags.distance_step.value_or(
      (distances.max + kDefaultDistances - 1) / kDefaultDistances);
  RETURN_IF_ERROR(CheckRange("--max-distance", distances.max, 1, kMaxDistance));
  RETURN_IF_ERROR(
      CheckRange("--distance-step", distances.step, 1, distances.max));
  if (distances.max / distances.step >= kMaxPlottedDistances) {
    return UsageError(absl::StrCat(
        "--distance-step: ", distances.max / distances.step + 1,
        " distances; a picture shows at most ", kMaxPlottedDistances));
  }
  return distances;
}

// Returns "NAME: TEXT; NAME: TEXT". `text_of` makes the text of a curve; curves
// without points are left out.
template <typename TextOf>
std::string EachCurve(const std::vector<plot::Curve>& curves,
                      const TextOf& text_of) {
  std::vector<std::string> texts;
  for (const plot::Curve& curve : curves) {
    if (curve.points.empty()) continue;
    texts.push_back(absl::StrCat(curve.name, ": ", text_of(curve.points)));
  }
  return absl::StrJoin(texts, "; ");
}

// Returns the first and the last point of every curve: "NAME: 1 at 0, 0.31 at
// 4096".
std::string Ends(const std::vector<plot::Curve>& curves) {
  return EachCurve(curves, [](const auto& points) {
    const auto& [x, y] = points.front();
    const auto& [last_x, last_y] = points.back();
    return absl::StrFormat("%.4g at %.6g, %.4g at %.6g", y, x, last_y, last_x);
  });
}

// Returns the analysis of an encoding, with the head_dim and the trained length
// of `flags`. If `max_distance` is not 0, the analysis includes values by
// distance.
absl::StatusOr<v1::AnalyzeRopeResponse> Analyze(const FigureFlags& flags,
                                                const Reading& reading,
                                                std::int64_t max_distance,
                                                std::int64_t distance_step,
                                                const Client& client) {
  v1::AnalyzeRopeRequest request;
  *request.mutable_rope() = reading.source;
  request.set_head_dim(flags.source.Details().head_dim());
  request.set_max_distance(max_distance);
  request.set_distance_step(distance_step);
  request.set_trained_length(flags.trained_length.value_or(0));
  return client.AnalyzeRope(request);
}

// Makes a chart of decay or similarity over the distance, with a curve for each
// encoding.
absl::StatusOr<Figure> OverDistance(
    const FigureFlags& flags, const Client& client,
    const google::protobuf::RepeatedField<double>& (
        v1::AnalyzeRopeResponse::*values)() const,
    plot::Chart chart) {
  ASSIGN_OR_RETURN(const Distances distances, ReadDistances(flags));
  ASSIGN_OR_RETURN(const auto readings, ReadBoth(flags, client, true));
  for (const Reading& reading : readings) {
    ASSIGN_OR_RETURN(
        const v1::AnalyzeRopeResponse response,
        Analyze(flags, reading, distances.max, distances.step, client));
    plot::Curve curve{reading.name, {}};
    for (const double value : (response.*values)()) {
      curve.points.emplace_back(curve.points.size() * distances.step, value);
    }
    chart.curves.push_back(std::move(curve));
  }
  if (readings.size() == 1) {
    absl::StrAppend(&chart.title, ": ", readings.front().name);
  }
  chart.x.label = "distance in positions";
  absl::StrAppend(&chart.description, Ends(chart.curves), ".");
  return chart;
}

// Returns the point at which each curve is farthest from 1: "NAME: 1.76 at pair
// 17".
std::string Farthest(const std::vector<plot::Curve>& curves) {
  return EachCurve(curves, [](const auto& points) -> std::string {
    const auto& [x, y] = *std::max_element(
        points.begin(), points.end(), [](const auto& a, const auto& b) {
          return std::fabs(a.second - 1) < std::fabs(b.second - 1);
        });
    if (y == 1) return "1 everywhere";
    // Four digits would show a value this close to 1 as 1.
    if (std::fabs(y - 1) < 5e-4) {
      return absl::StrFormat("1 %c %.2g at pair %.0f", y < 1 ? '-' : '+',
                             std::fabs(y - 1), x);
    }
    return absl::StrFormat("%.4g at pair %.0f", y, x);
  });
}

std::string Names(const std::vector<Reading>& readings) {
  return absl::StrJoin(
      readings, " and ",
      [](std::string* out, const Reading& reading) { *out += reading.name; });
}

}  // namespace

absl::Status CheckRange(const char* flag, std::int64_t value, std::int64_t low,
                        std::int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return UsageError(absl::StrCat(flag, ": is ", value, "; must be in [", low,
                                 ", ", high, "]"));
}

absl::StatusOr<Reading> ReadSource(const FigureFlags& flags,
                                   const Client& client, bool one_axis) {
  ASSIGN_OR_RETURN(v1::RopeSource source, BuildSource(flags.source));
  return Read(flags.source, std::move(source), "",
              flags.source.Details().head_dim(), client, one_axis);
}

absl::StatusOr<std::vector<Reading>> ReadBoth(const FigureFlags& flags,
                                              const Client& client,
                                              bool one_axis) {
  std::vector<Reading> readings;
  ASSIGN_OR_RETURN(readings.emplace_back(),
                   ReadSource(flags, client, one_axis));
  if (!flags.compare.Given()) return readings;
  ASSIGN_OR_RETURN(v1::RopeSource source,
                   BuildVariant(readings[0].source, flags.compare));
  ASSIGN_OR_RETURN(readings.emplace_back(),
                   Read(flags.compare, std::move(source), readings[0].name,
                        flags.source.Details().head_dim(), client, one_axis));
  return readings;
}

absl::StatusOr<Figure> FrequenciesFigure(const FigureFlags& flags,
                                         const Client& client) {
  ASSIGN_OR_RETURN(const auto readings, ReadBoth(flags, client, false));
  plot::Chart chart;
  chart.title = absl::StrCat("Frequency of each pair: ", Names(readings));
  chart.x.label = "pair of channels";
  chart.y = {"radians per position", true};
  for (const Reading& reading : readings) {
    chart.curves.push_back(
        PairCurve(reading.name, reading.resolved.inv_freq()));
  }
  chart.description = absl::StrCat(
      "Angular frequency in radians per position by pair, on a logarithmic "
      "axis. ",
      Ends(chart.curves), ". Pairs that stand still are left out.");
  return chart;
}

absl::StatusOr<Figure> WavelengthsFigure(const FigureFlags& flags,
                                         const Client& client) {
  RETURN_IF_ERROR(CheckRange("--trained-length",
                             flags.trained_length.value_or(1), 1, INT64_MAX));
  ASSIGN_OR_RETURN(const auto readings, ReadBoth(flags, client, true));
  plot::Chart chart;
  chart.title = absl::StrCat("Wavelength of each pair: ", Names(readings));
  chart.x.label = "pair of channels";
  chart.y = {"positions per full turn", true};
  std::vector<std::string> turns;
  for (const Reading& reading : readings) {
    ASSIGN_OR_RETURN(const v1::AnalyzeRopeResponse response,
                     Analyze(flags, reading, 0, 0, client));
    chart.curves.push_back(PairCurve(reading.name, response.wavelengths()));
    const int turning = response.pairs_within_trained_length();
    // If no flag gives the trained length, 0 pairs may mean that the length is
    // not known.
    if (turning == 0 && !flags.trained_length) continue;
    turns.push_back(absl::StrCat(
        " ", reading.name, ": ", turning, " of ", response.wavelengths_size(),
        " pairs complete a turn within the trained length."));
  }
  if (flags.trained_length) {
    chart.rules.push_back(
        {static_cast<double>(*flags.trained_length),
         absl::StrCat("trained length ", *flags.trained_length)});
  }
  chart.description = absl::StrCat(
      "Positions that a pair needs for a full turn, on a logarithmic axis. ",
      Ends(chart.curves), ".", absl::StrJoin(turns, ""));
  return chart;
}

absl::StatusOr<Figure> DecayFigure(const FigureFlags& flags,
                                   const Client& client) {
  plot::Chart chart;
  chart.title = "Long-term decay (RoFormer, 3.4.3)";
  chart.y.label = "bound on a score";
  chart.description =
      "Mean over n of |sum over m < n of exp(i distance w_m)|, which bounds "
      "how large a score can be at a distance. ";
  chart.shown_y = {0};
  return OverDistance(flags, client, &v1::AnalyzeRopeResponse::decay,
                      std::move(chart));
}

absl::StatusOr<Figure> SimilarityFigure(const FigureFlags& flags,
                                        const Client& client) {
  if (!flags.image.empty()) return ImageFigure(flags, client);
  plot::Chart chart;
  chart.title = "Similarity of a vector with itself, moved away";
  chart.y.label = "mean of cos(distance x frequency)";
  chart.description =
      "Mean over pairs of the cosine of distance times frequency. ";
  chart.shown_y = {0, 1};
  return OverDistance(flags, client, &v1::AnalyzeRopeResponse::similarity,
                      std::move(chart));
}

absl::StatusOr<Figure> CompareFigure(const FigureFlags& flags,
                                     const Client& client) {
  ASSIGN_OR_RETURN(const Reading reference, ReadSource(flags, client, false));
  ASSIGN_OR_RETURN(const auto others, OtherReadings(flags, reference, client));
  plot::Chart chart;
  chart.title = absl::StrCat("Frequencies of other readers over those of ",
                             reference.name);
  chart.x.label = "pair of channels";
  chart.y.label = "ratio of frequencies";
  const auto& own = reference.resolved.inv_freq();
  for (const Reading& other : others) {
    const auto& theirs = other.resolved.inv_freq();
    plot::Curve curve{other.name, {}};
    const double amplitude =
        other.resolved.amplitude() / reference.resolved.amplitude();
    if (std::fabs(amplitude - 1) > 1e-9) {
      absl::StrAppendFormat(&curve.name, " (amplitude x %.4g)", amplitude);
    }
    for (int i = 0; i < std::min(own.size(), theirs.size()); ++i) {
      if (own[i] != 0) curve.points.emplace_back(i, theirs[i] / own[i]);
    }
    chart.curves.push_back(std::move(curve));
  }
  chart.rules.push_back({1, "the same"});
  chart.shown_y = {0.9, 1.1};
  chart.description = absl::StrCat(
      "Frequency of each pair in another reading, divided by that of ",
      reference.name, "; 1 is the same.");
  if (const std::string text = Farthest(chart.curves); !text.empty()) {
    absl::StrAppend(&chart.description, " The largest difference: ", text, ".");
  }
  return chart;
}

absl::StatusOr<Figure> KeptFigure(const FigureFlags& flags,
                                  const Client& client) {
  ASSIGN_OR_RETURN(const Reading reference, ReadSource(flags, client, false));
  ASSIGN_OR_RETURN(const auto others, OtherReadings(flags, reference, client));
  const std::int64_t reach = flags.max_distance.value_or(kDefaultReach);
  RETURN_IF_ERROR(CheckRange("--max-distance", reach, 2, kMaxDistance));
  plot::Chart chart;
  chart.title = absl::StrCat(
      "What is left of a score if a reader differs from ", reference.name);
  chart.x = {"distance in positions", true};
  chart.y.label = "kept(distance)";
  std::vector<std::string> verdicts;
  for (const Reading& other : others) {
    const auto& own = reference.resolved.inv_freq();
    const auto& theirs = other.resolved.inv_freq();
    core::Kept kept({own.begin(), own.end()}, {theirs.begin(), theirs.end()});
    plot::Curve curve{other.name, {}};
    std::int64_t last = 0;
    for (std::int64_t i = 0; i <= kDefaultDistances; ++i) {
      const std::int64_t distance =
          std::llround(std::pow(static_cast<double>(reach),
                                static_cast<double>(i) / kDefaultDistances));
      if (distance == last) continue;
      curve.points.emplace_back(distance, kept.At(distance));
      last = distance;
    }
    const std::int64_t first = kept.FirstDistance(reach);
    verdicts.push_back(absl::StrCat(
        other.name, ": ",
        first < 0
            ? "at least 90 % of a score is left everywhere"
            : absl::StrCat("90 % of a score is left up to distance ", first)));
    chart.curves.push_back(std::move(curve));
  }
  chart.rules.push_back({core::kKeptLimit, "0.9"});
  chart.shown_y = {0, 1};
  chart.description = absl::StrCat(
      "Mean over pairs of cos(distance x difference of frequencies), by the "
      "distance on a logarithmic axis to ",
      reach, ". ", absl::StrJoin(verdicts, "; "), ".");
  return chart;
}

}  // namespace posenc::cli
