// Figures of tables, of cells of an image, and of the rotation of a vector.

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/tools/check/element.h"
#include "client/tools/cli/figure.h"
#include "client/tools/files/print.h"
#include "client/tools/files/status.h"
#include "client/tools/plot/colors.h"

namespace posenc::cli {
namespace {

constexpr double kPi = std::numbers::pi;

// Number of points of the arc that shows an angle.
constexpr int kArcPoints = 64;

absl::Status CheckCells(std::int64_t rows, std::int64_t columns) {
  if (rows <= kMaxPlottedCells / columns) return absl::OkStatus();
  return UsageError(absl::StrCat("--rows: ", rows, " rows of ", columns,
                                 " are more than the ", kMaxPlottedCells,
                                 " cells that a picture may have"));
}

// Returns a matrix without values, and reserves memory for them.
plot::Matrix Sized(const std::string& name, std::int64_t rows,
                   std::int64_t columns, std::int64_t first_row = 0) {
  plot::Matrix matrix;
  matrix.name = name;
  matrix.rows = static_cast<int>(rows);
  matrix.columns = static_cast<int>(columns);
  matrix.first_row = static_cast<double>(first_row);
  matrix.values.reserve(static_cast<std::size_t>(rows * columns));
  return matrix;
}

// Returns a tensor of rows and columns as a matrix.
plot::Matrix Taken(const std::string& name, const TensorView& tensor,
                   std::int64_t first_row) {
  plot::Matrix matrix =
      Sized(name, tensor.shape[0], tensor.shape[1], first_row);
  for (std::int64_t i = 0; i < check::ElementCount(tensor.shape); ++i) {
    matrix.values.push_back(check::ElementAt(tensor, i));
  }
  return matrix;
}

// Sets map->low and map->high to the least and the greatest finite value;
// infinity and -infinity if no value is finite.
void SetRange(plot::HeatMap* map) {
  map->low = std::numeric_limits<double>::infinity();
  map->high = -map->low;
  for (const plot::Matrix& matrix : map->matrices) {
    for (const double value : matrix.values) {
      if (!std::isfinite(value)) continue;
      map->low = std::min(map->low, value);
      map->high = std::max(map->high, value);
    }
  }
}

// Draws the leading columns as curves over the rows.
plot::Chart ColumnCurves(const plot::Matrix& matrix, int columns,
                         const std::string& word) {
  plot::Chart chart;
  for (int j = 0; j < columns; ++j) {
    plot::Curve curve{absl::StrCat(word, " ", j), {}};
    for (int i = 0; i < matrix.rows; ++i) {
      curve.points.emplace_back(
          matrix.first_row + i,
          matrix.values[static_cast<std::size_t>(i) * matrix.columns + j]);
    }
    chart.curves.push_back(std::move(curve));
  }
  return chart;
}

// Returns the encoding for the request of a table. A table needs rotary_dim. A
// --spec may lack rotary_dim, so the resolved specification replaces the
// --spec.
v1::RopeSource TableSource(const Reading& reading) {
  v1::RopeSource source = reading.source;
  if (source.has_spec()) *source.mutable_spec() = reading.resolved.spec();
  return source;
}

// Returns the values and the title of the table that the flags name: cosines
// and sines, or an absolute encoding.
absl::StatusOr<plot::HeatMap> ReadTable(const FigureFlags& flags,
                                        const Client& client) {
  v1::BuildTableRequest request;
  request.set_rows(flags.Rows());
  plot::HeatMap table;
  const bool absolute = !flags.absolute.Empty();
  if (absolute) {
    if (flags.source.Given()) {
      return UsageError(
          "an absolute encoding excludes --preset, --config and --spec");
    }
    RETURN_IF_ERROR(flags.absolute.Read(request.mutable_absolute()));
    // By default all rows of a learned table are drawn, if they are not too
    // many. Without --hierarchical-alpha, only these rows exist.
    const auto& learned = request.absolute().learned().table().shape();
    if (!flags.rows && learned.size() == 2 && learned[1] > 0) {
      request.set_rows(std::max<std::int64_t>(
          1,
          std::min(learned[0] - flags.start, kMaxPlottedCells / learned[1])));
    }
    // The names are in the order of AbsoluteEncoding's kinds, which have
    // numbers from 1 on.
    constexpr const char* kKinds[] = {"sinusoidal", "learned", "grid's",
                                      "timestep", "Fourier feature"};
    table.title = absl::StrCat("rows of a ",
                               kKinds[request.absolute().encoding_case() - 1],
                               " encoding");
  } else {
    ASSIGN_OR_RETURN(const Reading reading, ReadSource(flags, client, true));
    RETURN_IF_ERROR(
        CheckCells(request.rows(), reading.resolved.inv_freq_size()));
    *request.mutable_rope() = TableSource(reading);
    table.title = absl::StrCat("table of ", reading.name);
  }
  if (request.absolute().has_sincos_grid()) {
    request.clear_rows();
  } else {
    request.mutable_positions()->set_start(flags.start);
  }
  ASSIGN_OR_RETURN(const BuildTableResult result, client.BuildTable(request));
  const auto add = [&](const char* name,
                       const absl::optional<TensorView>& tensor) {
    if (!tensor || tensor->shape.size() != 2) return;
    table.matrices.push_back(Taken(name, *tensor, flags.start));
  };
  add("cosines", result.cos);
  add("sines", result.sin);
  add("rows", result.table);
  if (table.matrices.empty() || table.matrices[0].values.empty()) {
    return UsageError("--rows: the table has no values to draw");
  }
  return table;
}

// Parses two extents that are at least 2 and not too large.
absl::StatusOr<std::pair<int, int>> ReadImage(const std::string& text) {
  ASSIGN_OR_RETURN(const auto extents, ParseExtents("--image", text));
  if (extents.size() != 2 || extents[0] < 2 || extents[1] < 2 ||
      std::int64_t{extents[0]} * extents[1] > kMaxPlottedCells) {
    return UsageError(absl::StrCat("--image: '", text,
                                   "' is no height and width of at least 2 and "
                                   "at most ",
                                   kMaxPlottedCells, " cells; write 64x64"));
  }
  return std::pair<int, int>(extents[0], extents[1]);
}

// Returns the similarity of an image's first cell to every cell: the mean over
// the pairs of cos(distance * frequency). With one axis the distance is the
// difference of the cells' numbers; cells are numbered row by row. With two
// axes each pair has the distance along its own axis, height or width. With
// three axes the first axis is time, which is constant in an image.
absl::StatusOr<plot::Matrix> ImageSimilarity(const Reading& reading, int height,
                                             int width) {
  const v1::ResolveRopeResponse& rope = reading.resolved;
  const int pairs = rope.inv_freq_size();
  int axes = 1;
  for (const int axis : rope.axis_of_pair()) axes = std::max(axes, axis + 1);
  if (axes > 3) {
    return UsageError(
        absl::StrCat("--image: needs an encoding of one, two or "
                     "three axes, and ",
                     reading.name, " has ", axes));
  }
  plot::Matrix matrix = Sized(reading.name, height, width);
  for (int row = 0; row < height; ++row) {
    for (int column = 0; column < width; ++column) {
      double sum = 0;
      for (int i = 0; i < pairs; ++i) {
        const int axis = axes == 1 ? -1 : rope.axis_of_pair(i) - (axes - 2);
        const double distance = axes == 1
                                    ? static_cast<double>(row) * width + column
                                : axis == 0 ? row
                                : axis == 1 ? column
                                            : 0;
        sum += std::cos(distance * rope.inv_freq(i));
      }
      matrix.values.push_back(sum / pairs);
    }
  }
  return matrix;
}

}  // namespace

absl::StatusOr<Figure> AnglesFigure(const FigureFlags& flags,
                                    const Client& client) {
  const std::int64_t rows = flags.Rows();
  RETURN_IF_ERROR(CheckRange("--rows", rows, 1, INT64_MAX));
  ASSIGN_OR_RETURN(const Reading reading, ReadSource(flags, client, true));
  const auto& frequencies = reading.resolved.inv_freq();
  RETURN_IF_ERROR(CheckCells(rows, frequencies.size()));
  plot::HeatMap map;
  map.title = absl::StrCat("Angles: ", reading.name);
  map.row_label = "position";
  map.column_label = "pair of channels";
  map.color_label = "full turns";
  map.log = true;
  plot::Matrix matrix = Sized("angles", rows, frequencies.size(), flags.start);
  for (std::int64_t row = 0; row < rows; ++row) {
    const double position = static_cast<double>(flags.start + row);
    for (const double w : frequencies) {
      matrix.values.push_back(std::fabs(position * w) / (2 * kPi));
    }
  }
  map.matrices.push_back(std::move(matrix));
  SetRange(&map);
  // Angles below this number have the lowest colour.
  map.low = 1e-4;
  map.high = std::max(1.0, map.high);
  map.description = absl::StrCat(
      "Angle of each pair (columns) at each position (rows), in full turns, on "
      "a logarithmic scale of colours from ",
      map.low, " to ", absl::StrFormat("%.6g", map.high), ".");
  return map;
}

absl::StatusOr<Figure> TableFigure(const FigureFlags& flags,
                                   const Client& client) {
  RETURN_IF_ERROR(CheckRange("--rows", flags.Rows(), 1, INT64_MAX));
  if (flags.source.Empty() && flags.absolute.Empty()) {
    return NoEncoding();
  }
  ASSIGN_OR_RETURN(plot::HeatMap map, ReadTable(flags, client));
  if (flags.channels) {
    const plot::Matrix& matrix = map.matrices[0];
    const int most = std::min<int>(plot::kLooks, matrix.columns);
    RETURN_IF_ERROR(CheckRange("--channels", *flags.channels, 1, most));
    if (matrix.rows > kMaxPlottedDistances) {
      return UsageError(absl::StrCat("--rows: is ", matrix.rows,
                                     "; curves show at most ",
                                     kMaxPlottedDistances));
    }
    plot::Chart chart =
        ColumnCurves(matrix, *flags.channels,
                     flags.absolute.Empty() ? "cosine of pair" : "channel");
    chart.title = absl::StrCat(
        "First ", *flags.channels,
        flags.absolute.Empty() ? " columns of the " : " channels, ", map.title);
    chart.description =
        absl::StrCat("Values of ", *flags.channels, " columns at positions ",
                     flags.start, " to ", flags.start + matrix.rows - 1, ".");
    chart.x.label = "position";
    chart.y.label = "value";
    return chart;
  }
  map.title[0] = absl::ascii_toupper(static_cast<unsigned char>(map.title[0]));
  map.row_label = flags.absolute.Given("--sincos-grid") ? "cell" : "position";
  map.column_label = flags.absolute.Empty() ? "pair of channels" : "channel";
  map.color_label = "value";
  SetRange(&map);
  // All values of a learned table may be small. Other tables reach 1, but
  // perhaps not in the rows that are shown.
  map.high = std::max(
      {map.high, -map.low, flags.absolute.Given("--learned") ? 0.0 : 1.0});
  if (map.high == 0) map.high = 1;
  map.low = -map.high;
  map.description =
      absl::StrCat("Values by position (rows, from ", flags.start, " on) and ",
                   map.column_label, " (columns), from ", NineDigits(map.low),
                   " to ", NineDigits(map.high), ".");
  return map;
}

absl::StatusOr<Figure> ImageFigure(const FigureFlags& flags,
                                   const Client& client) {
  ASSIGN_OR_RETURN(const auto image, ReadImage(flags.image));
  const auto [height, width] = image;
  ASSIGN_OR_RETURN(const auto readings, ReadBoth(flags, client, false));
  plot::HeatMap map;
  map.title = absl::StrCat("Similarity of the first of ", height, " x ", width,
                           " cells to the others");
  map.row_label = "row of the image";
  map.column_label = "column";
  map.color_label = "similarity";
  map.square_cells = true;
  for (const Reading& reading : readings) {
    ASSIGN_OR_RETURN(auto matrix, ImageSimilarity(reading, height, width));
    matrix.name = reading.resolved.axis_of_pair().empty()
                      ? "positions along the rows"
                      : "a position for each axis";
    // Cells are counted from 1. The last cell of the first row has the number
    // `width`, and the cell below the first cell has the next number.
    absl::StrAppendFormat(&map.description,
                          "%s (%s): cell %d, at the far end of the row, is at "
                          "%.4g, cell %d, just "
                          "below the first, at %.4g. ",
                          matrix.name, reading.name, width,
                          matrix.values[static_cast<std::size_t>(width) - 1],
                          width + 1,
                          matrix.values[static_cast<std::size_t>(width)]);
    map.matrices.push_back(std::move(matrix));
  }
  if (map.matrices.size() == 1) {
    absl::StrAppend(&map.title, ", ", map.matrices[0].name);
  }
  SetRange(&map);
  map.high = 1;
  if (map.low >= map.high) map.low = map.high - 1;
  return map;
}

absl::StatusOr<Figure> RotationFigure(const FigureFlags& flags,
                                      const Client& client) {
  ASSIGN_OR_RETURN(const auto vector, ParseNumbers("--vector", flags.vector));
  if (vector.size() != 2 || !std::isfinite(vector[0]) ||
      !std::isfinite(vector[1]) ||
      !(std::hypot(vector[0], vector[1]) > 0 &&
        std::hypot(vector[0], vector[1]) <= 1e6)) {
    return UsageError(absl::StrCat("--vector: '", flags.vector,
                                   "' is no two numbers of length in (0, 1e6]; "
                                   "write 1,0"));
  }
  ASSIGN_OR_RETURN(const Reading reading, ReadSource(flags, client, true));
  const v1::RopeSpec& spec = reading.resolved.spec();
  RETURN_IF_ERROR(
      CheckRange("--pair", flags.pair, 0, spec.rotary_dim() / 2 - 1));
  v1::BuildTableRequest request;
  *request.mutable_rope() = TableSource(reading);
  request.mutable_positions()->set_start(flags.position);
  request.set_rows(1);
  request.set_dtype(v1::DTYPE_FLOAT64);
  ASSIGN_OR_RETURN(const BuildTableResult table, client.BuildTable(request));
  const double cosine = check::ElementAt(*table.cos, flags.pair);
  const double sine = check::ElementAt(*table.sin, flags.pair);
  const double after[2] = {vector[0] * cosine - vector[1] * sine,
                           vector[0] * sine + vector[1] * cosine};

  const double angle = static_cast<double>(flags.position) *
                       reading.resolved.inv_freq(flags.pair);
  plot::Chart chart;
  chart.equal_units = true;
  chart.title =
      absl::StrFormat("Pair %d at position %d turns by %.6g rad: %s",
                      flags.pair, flags.position, angle, reading.name);
  chart.x.label = "first channel of the pair";
  chart.y.label = "second channel";
  chart.description = absl::StrFormat(
      "(%.6g, %.6g) becomes (%.6g, %.6g): position %d times frequency %.6g is "
      "%.6g rad, or %.4g full turns.",
      vector[0], vector[1], after[0], after[1], flags.position,
      reading.resolved.inv_freq(flags.pair), angle, angle / (2 * kPi));
  // The head of an arrow is two strokes of an eighth of the arrow's length.
  const auto arrow = [](const char* name, double tip_x, double tip_y) {
    plot::Curve curve{name, {{0, 0}, {tip_x, tip_y}}};
    for (const double side : {2.7, -2.7}) {  // radians from the arrow's
                                             // direction
      const double c = std::cos(side) / 8, s = std::sin(side) / 8;
      curve.points.emplace_back(tip_x + c * tip_x - s * tip_y,
                                tip_y + s * tip_x + c * tip_y);
      curve.points.emplace_back(tip_x, tip_y);
    }
    return curve;
  };
  chart.curves.push_back(arrow("before", vector[0], vector[1]));
  chart.curves.push_back(arrow("after", after[0], after[1]));
  const double radius = std::hypot(vector[0], vector[1]);
  const double begin = std::atan2(vector[1], vector[0]);
  const double turn = std::fmod(angle, 2 * kPi) * (spec.reverse() ? -1 : 1);
  plot::Curve arc{"turn", {}}, circle{"all turns", {}};
  for (int i = 0; i <= kArcPoints; ++i) {
    const double part = static_cast<double>(i) / kArcPoints;
    arc.points.emplace_back(0.4 * radius * std::cos(begin + part * turn),
                            0.4 * radius * std::sin(begin + part * turn));
    circle.points.emplace_back(radius * std::cos(2 * kPi * part),
                               radius * std::sin(2 * kPi * part));
  }
  chart.curves.push_back(std::move(arc));
  chart.curves.push_back(std::move(circle));
  return chart;
}

}  // namespace posenc::cli
