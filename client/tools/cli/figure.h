// The figures of `posenc plot`: a server's numbers as charts and heat maps.
// plot.cc reads the flags and writes the picture.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "client/tools/arguments/field_flags.h"
#include "client/tools/arguments/options.h"
#include "client/tools/plot/chart.h"
#include "client/tools/plot/heat_map.h"
#include "posenc/client.h"

namespace posenc::cli {

// Upper bounds on a picture's contents. Pictures of usual widths have fewer
// pixels than kMaxPlottedDistances. kMaxPlottedCells is enough for a table of
// 8192 rows and 2048 columns.
inline constexpr std::int64_t kMaxPlottedDistances = 4096;
inline constexpr std::int64_t kMaxPlottedCells = std::int64_t{1} << 24;

inline constexpr std::int64_t kDefaultRows = 1024;

struct FigureFlags {
  SourceFlags source, compare;
  FieldFlags absolute{v1::AbsoluteEncoding::descriptor()};
  std::int64_t start = 0;
  std::optional<std::int64_t> rows;  // for the figures `angles` and `table`
  std::optional<std::int32_t> channels;
  std::int64_t position = 1;
  std::int32_t pair = 0;
  std::string vector = "1,0";
  std::optional<std::int64_t> max_distance, distance_step, trained_length;
  std::string image;                  // extents: "64x64"
  std::vector<std::string> profiles;  // empty: the most used readers

  std::int64_t Rows() const { return rows.value_or(kDefaultRows); }
};

using Figure = std::variant<plot::Chart, plot::HeatMap>;

// An encoding as a server resolved it.
struct Reading {
  std::string name;  // for titles and legends
  v1::RopeSource source;
  v1::ResolveRopeResponse resolved;
};

// Resolves the encoding of `flags`. Returns an error with exit code 2 if the
// encoding has no frequencies (NoPE) or more than one row of frequencies. If
// `one_axis` is true, several position axes are an error, too.
absl::StatusOr<Reading> ReadSource(const FigureFlags& flags,
                                   const Client& client, bool one_axis);

// Returns an error with exit code 2 that names the flag, unless the value is in
// [low, high].
absl::Status CheckRange(const char* flag, std::int64_t value, std::int64_t low,
                        std::int64_t high);

// Makes a figure. Errors of flags have exit code 2; other errors come from the
// server.
using MakeFigure = absl::StatusOr<Figure>(const FigureFlags& flags,
                                          const Client& client);
// Defined in figure_curves.cc.
MakeFigure FrequenciesFigure, WavelengthsFigure, DecayFigure, SimilarityFigure,
    CompareFigure, KeptFigure;
// Defined in figure_tables.cc. ImageFigure draws `similarity --image`.
MakeFigure AnglesFigure, TableFigure, RotationFigure, ImageFigure;

// Returns the encodings of a figure that draws a curve for each encoding: the
// encoding of --preset, --config or --spec, and the encoding of --compare-*, if
// there is one.
absl::StatusOr<std::vector<Reading>> ReadBoth(const FigureFlags& flags,
                                              const Client& client,
                                              bool one_axis);

}  // namespace posenc::cli
