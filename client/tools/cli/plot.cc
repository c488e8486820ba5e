// `posenc plot`: pictures of encodings, as SVG. This file assigns flags to
// figures and writes the picture; the figures are in figure_curves.cc and
// figure_tables.cc.

#include <algorithm>
#include <cstdio>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/tools/arguments/connection.h"
#include "client/tools/cli/commands.h"
#include "client/tools/cli/figure.h"
#include "client/tools/files/file.h"
#include "client/tools/files/print.h"
#include "client/tools/files/status.h"

namespace posenc::cli {
namespace {

using Json = nlohmann::ordered_json;

// The heading of the flags that only some figures have.
constexpr char kSomeFigures[] = "For some figures";

struct PlotFlags {
  std::string figure;
  FigureFlags data;
  std::string output;
  int width = 800, height = 480;
};

// A figure, and those of its flags that only some figures have.
struct FigureRow {
  absl::string_view name;
  MakeFigure* make;
  absl::string_view flags;
};

constexpr FigureRow kFigures[] = {
    {"frequencies", FrequenciesFigure, "--compare-*"},
    {"wavelengths", WavelengthsFigure, "--compare-* --trained-length"},
    {"angles", AnglesFigure, "--start --rows"},
    {"table", TableFigure, "--start --rows --channels"},
    {"rotation", RotationFigure, "--position --pair --vector"},
    {"decay", DecayFigure, "--compare-* --max-distance --distance-step"},
    {"similarity", SimilarityFigure,
     "--compare-* --max-distance --distance-step --image"},
    {"compare", CompareFigure, "--compare-* --profiles"},
    {"kept", KeptFigure, "--compare-* --max-distance --profiles"},
};

// Limits on the sides of a picture, in pixels. A smaller picture has no space
// for the axes.
constexpr int kMinWidth = 320, kMinHeight = 200, kMaxSide = 16384;

// Returns the names of the figures that have this flag, or of all figures for
// "". A search in the text of `flags` suffices, because no flag is a part of
// another flag.
std::string FigureNames(absl::string_view flag = "") {
  std::vector<absl::string_view> names;
  for (const FigureRow& row : kFigures) {
    if (absl::StrContains(row.flags, flag)) names.push_back(row.name);
  }
  return absl::StrJoin(names, ", ");
}

absl::StatusOr<const FigureRow*> FindFigure(const std::string& name) {
  for (const FigureRow& row : kFigures) {
    if (row.name == name) return &row;
  }
  return UsageError(absl::StrCat("FIGURE: '", name,
                                 "' is unknown; there are: ", FigureNames()));
}

absl::Status CheckFlags(const CLI::App& app, const FigureRow& figure,
                        const PlotFlags& flags) {
  std::vector<std::string> given = flags::GivenFlags(app, kSomeFigures);
  if (flags.data.compare.Given()) given.push_back("--compare-*");
  for (const std::string& flag : given) {
    if (absl::StrContains(figure.flags, flag)) continue;
    return UsageError(absl::StrCat(flag, ": belongs to ", FigureNames(flag),
                                   ", not to ", figure.name));
  }
  if (flags.figure == "table") return absl::OkStatus();
  if (!flags.data.absolute.Empty()) {
    return UsageError(absl::StrCat(
        "an absolute encoding has only the figure table, not ", flags.figure));
  }
  if (flags.data.source.Empty()) {
    return UsageError("no encoding; give --preset, --config or --spec");
  }
  if (!flags.data.image.empty() &&
      (flags.data.max_distance || flags.data.distance_step)) {
    return UsageError("--image: excludes --max-distance and --distance-step");
  }
  return absl::OkStatus();
}

// Checks --output: it names a file for the picture, or is empty if --json
// prints the numbers.
absl::Status CheckOutput(const PlotFlags& flags, const GlobalFlags& globals) {
  if (flags.output.empty()) {
    if (globals.json) return absl::OkStatus();
    return UsageError(
        "--output: missing; name a file that ends in .svg, or - for stdout, or "
        "ask for the numbers with --json");
  }
  if (flags.output == "-") {
    if (!globals.json) return absl::OkStatus();
    return UsageError("--output: - is stdout, which --json needs");
  }
  if (HasExtension(flags.output, ".svg")) return absl::OkStatus();
  return UsageError(
      absl::StrCat("--output: '", flags.output, "' does not end in .svg"));
}

// Returns the numbers of the picture: each curve's points, and each matrix's
// values if they are few enough for JSON.
Json DataJson(const plot::Chart& chart) {
  Json curves = Json::array();
  for (const plot::Curve& curve : chart.curves) {
    Json x = Json::array(), y = Json::array();
    for (const auto& point : curve.points) {
      x.push_back(point.first);
      y.push_back(point.second);
    }
    curves.push_back({{"name", curve.name}, {"x", x}, {"y", y}});
  }
  return {{"title", chart.title},
          {"description", chart.description},
          {"curves", curves}};
}

Json DataJson(const plot::HeatMap& map) {
  Json matrices = Json::array();
  for (const plot::Matrix& matrix : map.matrices) {
    Json& entry = matrices.emplace_back(Json{{"name", matrix.name},
                                             {"rows", matrix.rows},
                                             {"columns", matrix.columns}});
    if (static_cast<std::int64_t>(matrix.values.size()) <= kMaxPrintedValues) {
      entry["values"] = matrix.values;
    }
  }
  return {{"title", map.title}, {"description", map.description},
          {"low", map.low},     {"high", map.high},
          {"log", map.log},     {"matrices", matrices}};
}

absl::Status RunPlot(const CLI::App& app, const PlotFlags& flags,
                     const GlobalFlags& globals) {
  ASSIGN_OR_RETURN(const FigureRow* const row, FindFigure(flags.figure));
  RETURN_IF_ERROR(CheckFlags(app, *row, flags));
  RETURN_IF_ERROR(CheckRange("--width", flags.width, kMinWidth, kMaxSide));
  RETURN_IF_ERROR(CheckRange("--height", flags.height, kMinHeight, kMaxSide));
  RETURN_IF_ERROR(CheckOutput(flags, globals));
  ASSIGN_OR_RETURN(const Connection connection, Connection::Open(globals));
  ASSIGN_OR_RETURN(const Figure figure,
                   row->make(flags.data, connection.client()));
  std::size_t bytes = 0;
  if (!flags.output.empty()) {
    const std::string picture = std::visit(
        [&](const auto& data) {
          return plot::Draw(data, flags.width, flags.height);
        },
        figure);
    bytes = picture.size();
    const absl::Status written = WriteFile(flags.output, {picture});
    if (!written.ok()) return FileError("--output", written);
  }
  if (globals.json) {
    Json json =
        std::visit([](const auto& data) { return DataJson(data); }, figure);
    json["output"] = flags.output;
    PrintJson(json);
  } else if (flags.output != "-") {
    const std::string text =
        std::visit([](const auto& data) { return data.description; }, figure);
    std::printf("  %s: %s, %d x %d\n  %s\n", flags.output.c_str(),
                BytesText(static_cast<double>(bytes)).c_str(), flags.width,
                flags.height, text.c_str());
  }
  return absl::OkStatus();
}

}  // namespace

Command AddPlot(CLI::App* app, const GlobalFlags* globals) {
  const auto flags = std::make_shared<PlotFlags>();
  FigureFlags* const data = &flags->data;
  AddFlag(app, "FIGURE", &flags->figure, "", FigureNames(), {.required = true});
  AddFlag(app, "--output", &flags->output, "FILE",
          "A file that ends in .svg; -: stdout");
  AddFlag(app, "--width", &flags->width, "N", "Pixels", {.show_default = true});
  AddFlag(app, "--height", &flags->height, "N", "Pixels",
          {.show_default = true});
  AddSourceFlags(app, "", "Encoding", &data->source);
  AddSourceFlags(app, "compare-", "Encoding to compare with", &data->compare);
  AddAbsoluteFlags(app, &data->absolute);
  const auto add = [&](const char* name, flags::Target target, const char* type,
                       const char* text, flags::FlagRules rules = {}) {
    rules.group = kSomeFigures;
    AddFlag(app, name, target, type,
            absl::StrCat(FigureNames(name), ": ", text), rules);
  };
  add("--start", &data->start, "N", "the first position",
      {.show_default = true});
  add("--rows", &data->rows, "N",
      "positions from --start (--learned: default all)");
  flags::ShowDefault(app, "--rows", absl::StrCat(kDefaultRows));
  add("--channels", &data->channels, "N",
      "the first N columns as curves, at most 8");
  add("--position", &data->position, "N", "position of the vector",
      {.show_default = true});
  add("--pair", &data->pair, "N", "pair of channels", {.show_default = true});
  add("--vector", &data->vector, "X,Y", "the vector to rotate",
      {.show_default = true});
  add("--max-distance", &data->max_distance, "N",
      "greatest distance (default 4096; kept: 131072)");
  add("--distance-step", &data->distance_step, "N",
      "step; there are at most 4096 distances");
  add("--trained-length", &data->trained_length, "N",
      "a line there; counts pairs with a full rotation");
  add("--image", &data->image, "HEIGHTxWIDTH",
      "of an image's first cell to the others: 64x64");
  add("--profiles", &data->profiles, "NAME",
      "readers (default: hf, vllm, llama_cpp and mlx, without those that "
      "refuse the model)",
      {.delimiter = ','});
  return [app, flags, globals] { return RunPlot(*app, *flags, *globals); };
}

}  // namespace posenc::cli
