// `posenc plot`: pictures of encodings, as SVG. This file assigns flags to
// figures and writes the picture; the figures are in figure_curves.cc and
// figure_tables.cc.

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
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
  // The names of the figures that have a flag of kSomeFigures.
  std::map<std::string, const char*> figures_of;
};

struct FigureRow {
  const char* name;
  MakeFigure* make;
};

constexpr FigureRow kFigures[] = {
    {"frequencies", FrequenciesFigure},
    {"wavelengths", WavelengthsFigure},
    {"angles", AnglesFigure},
    {"table", TableFigure},
    {"rotation", RotationFigure},
    {"decay", DecayFigure},
    {"similarity", SimilarityFigure},
    {"compare", CompareFigure},
    {"kept", KeptFigure},
};

constexpr char kComparing[] =
    "frequencies wavelengths decay similarity compare kept";

// Limits on the sides of a picture, in pixels. A smaller picture has no space
// for the axes.
constexpr int kMinWidth = 320, kMinHeight = 200, kMaxSide = 16384;

bool Has(absl::string_view list, absl::string_view name) {
  const std::vector<absl::string_view> names = absl::StrSplit(list, ' ');
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string FigureNames() {
  return absl::StrJoin(
      kFigures, ", ",
      [](std::string* out, const FigureRow& row) { *out += row.name; });
}

absl::StatusOr<const FigureRow*> FindFigure(const std::string& name) {
  for (const FigureRow& row : kFigures) {
    if (row.name == name) return &row;
  }
  return UsageError(absl::StrCat("FIGURE: '", name,
                                 "' is unknown; there are: ", FigureNames()));
}

absl::Status CheckFlags(const CLI::App& app, const PlotFlags& flags) {
  const auto stranger = [&](absl::string_view flag, absl::string_view figures) {
    return UsageError(absl::StrCat(flag, ": belongs to ",
                                   absl::StrReplaceAll(figures, {{" ", ", "}}),
                                   ", not to ", flags.figure));
  };
  for (const std::string& flag : flags::GivenFlags(app, kSomeFigures)) {
    const char* const figures = flags.figures_of.at(flag);
    if (!Has(figures, flags.figure)) return stranger(flag, figures);
  }
  if (flags.data.compare.Given() && !Has(kComparing, flags.figure)) {
    return stranger("--compare-*", kComparing);
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
  RETURN_IF_ERROR(CheckFlags(app, flags));
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
  const auto add = [&](const char* figures, const char* name,
                       flags::Target target, const char* text, const char* type,
                       flags::FlagRules rules = {}) {
    flags->figures_of[name] = figures;
    rules.group = kSomeFigures;
    AddFlag(app, name, target, type, text, rules);
  };
  add("angles table", "--start", &data->start,
      "angles, table: the first position", "N", {.show_default = true});
  add("angles table", "--rows", &data->rows,
      "angles, table: positions from --start (--learned: default all)", "N");
  flags::ShowDefault(app, "--rows", absl::StrCat(kDefaultRows));
  add("table", "--values", &data->values, "table: cos, sin or both", "NAME",
      {.show_default = true});
  add("table", "--channels", &data->channels,
      "table: the first N columns as curves, at most 8", "N");
  add("rotation", "--position", &data->position,
      "rotation: position of the vector", "N", {.show_default = true});
  add("rotation", "--pair", &data->pair, "rotation: pair of channels", "N",
      {.show_default = true});
  add("rotation", "--vector", &data->vector, "rotation: the vector to rotate",
      "X,Y", {.show_default = true});
  add("decay similarity kept", "--max-distance", &data->max_distance,
      "decay, similarity (default 4096), kept (default 131072)", "N");
  add("decay similarity", "--distance-step", &data->distance_step,
      "decay, similarity: step; there are at most 4096 distances", "N");
  add("wavelengths", "--trained-length", &data->trained_length,
      "wavelengths: a line there; counts pairs with a full rotation", "N");
  add("similarity", "--image", &data->image,
      "similarity: of an image's first cell to the others: 64x64",
      "HEIGHTxWIDTH");
  add("compare kept", "--profiles", &data->profiles,
      "compare, kept: readers (default: hf, vllm, llama_cpp and mlx, without "
      "those that refuse the model)",
      "NAME", {.delimiter = ','});
  return [app, flags, globals] { return RunPlot(*app, *flags, *globals); };
}

}  // namespace posenc::cli
