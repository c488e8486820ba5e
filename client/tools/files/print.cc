#include "client/tools/files/print.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/tools/check/element.h"
#include "client/tools/files/status.h"
#include "core/base/text.h"
#include "google/protobuf/util/json_util.h"
#include "posenc/compat.h"

namespace posenc::cli {
namespace {

// The format of a tensor's numbers. All columns have the same width, and the
// printed columns fit into 80 characters.
struct Format {
  int width;
  int columns;
  bool fixed;  // decimal points are aligned
};

bool IsInteger(v1::Dtype dtype) {
  return dtype == v1::DTYPE_INT8 || dtype == v1::DTYPE_INT32 ||
         dtype == v1::DTYPE_INT64;
}

// Chooses the format by the printed rows and columns. Integers get the width of
// the longest integer. Decimal points of floating-point numbers are aligned,
// unless a number has more than one digit before the point.
Format FormatOf(const TensorView& tensor, std::int64_t offset,
                std::int64_t rows, std::int64_t columns) {
  const bool integers = IsInteger(tensor.dtype);
  const std::int64_t seen = std::min<std::int64_t>(columns, integers ? 24 : 6);
  std::size_t width = 1;
  bool fixed = true;
  for (std::int64_t i = 0; i < std::min(rows, kShownRows); ++i) {
    for (std::int64_t j = 0; j < seen; ++j) {
      const double value = check::ElementAt(tensor, offset + i * columns + j);
      width = std::max(width, absl::StrFormat("%.0f", value).size());
      fixed = fixed && (!std::isfinite(value) || std::fabs(value) < 10);
    }
  }
  if (!integers) return {12, 5, fixed};
  const int digits = static_cast<int>(width);
  return {digits, std::min(24, 72 / (digits + 1)), true};
}

std::string Cell(const TensorView& tensor, std::int64_t index,
                 const Format& format) {
  const double value = check::ElementAt(tensor, index);
  if (IsInteger(tensor.dtype)) {
    return absl::StrFormat("%*.0f", format.width, value);
  }
  if (!std::isfinite(value)) return absl::StrFormat("%*f", format.width, value);
  return format.fixed ? absl::StrFormat("%*.9f", format.width, value)
                      : absl::StrFormat("%*.6g", format.width, value);
}

// Prints `count` cells of a row that starts at element `begin`.
void PrintCells(const TensorView& tensor, std::int64_t begin,
                std::int64_t count, const Format& format) {
  for (std::int64_t i = begin; i < begin + count; ++i) {
    absl::PrintF(" %s", Cell(tensor, i, format));
  }
}

}  // namespace

void PrintFact(const std::string& name, const std::string& value) {
  std::printf("  %-20s %s\n", name.c_str(), value.c_str());
}

void PrintForm(const std::string& name, v1::Dtype dtype,
               const std::vector<std::int64_t>& shape) {
  absl::PrintF("%s  %s %s\n", name, check::DtypeName(dtype),
               check::ShapeText(shape));
}

void PrintTensor(const std::string& name, const TensorView& tensor,
                 std::int64_t shown_rows) {
  PrintForm(name, tensor.dtype, tensor.shape);
  const std::int64_t count = check::ElementCount(tensor.shape);
  // A tensor with one extent is one row.
  const std::int64_t rows = tensor.shape.size() < 2 ? 1 : tensor.shape[0];
  const std::int64_t columns = rows > 0 ? count / rows : 0;
  const Format format = FormatOf(tensor, 0, rows, columns);
  for (std::int64_t row = 0; row < std::min(rows, shown_rows); ++row) {
    std::printf(" ");
    PrintCells(tensor, row * columns,
               std::min<std::int64_t>(columns, format.columns), format);
    std::printf("%s\n", columns > format.columns ? "  ..." : "");
  }
  if (rows > shown_rows) std::printf("  ...\n");
}

void PrintMatrix(const TensorView& tensor, std::int64_t offset,
                 std::int64_t rows, std::int64_t columns,
                 std::int64_t first_row, std::int64_t first_column) {
  Format format = FormatOf(tensor, offset, rows, columns);
  format.columns = std::min(format.columns, 10);
  const std::int64_t shown = std::min<std::int64_t>(columns, format.columns);
  const std::string last = absl::StrCat(first_column + shown - 1);
  format.width = std::max(format.width, static_cast<int>(last.size()));
  std::printf("  %6s", "");
  for (std::int64_t j = 0; j < shown; ++j) {
    absl::PrintF(" %*d", format.width, first_column + j);
  }
  std::printf("%s\n", columns > shown ? "  ..." : "");
  for (std::int64_t i = 0; i < std::min(rows, kShownRows); ++i) {
    absl::PrintF("  %6d", first_row + i);
    PrintCells(tensor, offset + i * columns, shown, format);
    std::printf("\n");
  }
  if (rows > kShownRows) std::printf("     ...\n");
}

std::string ShownText(int n, int shown) {
  return n > shown ? absl::StrCat(n, ", ", shown, " of them (all: --json)")
                   : absl::StrCat(n);
}

std::vector<int> Spread(int n, int shown) {
  std::vector<int> indices;
  indices.reserve(std::min(n, shown));
  for (int step = 0; step < std::min(n, shown); ++step) {
    indices.push_back(
        n <= shown ? step
                   : static_cast<int>(std::lround(static_cast<double>(step) *
                                                  (n - 1) / (shown - 1))));
  }
  return indices;
}

nlohmann::ordered_json TensorJson(const TensorView& tensor) {
  return {{"dtype", check::DtypeName(tensor.dtype)}, {"shape", tensor.shape}};
}

absl::Status AddValues(const TensorView& tensor, nlohmann::ordered_json* json) {
  const std::int64_t count = check::ElementCount(tensor.shape);
  if (count > kMaxPrintedValues) {
    return UsageError(absl::StrCat("--json: ", count,
                                   " values; write more than ",
                                   kMaxPrintedValues, " to a file with --out"));
  }
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (std::int64_t i = 0; i < count; ++i) {
    const double value = check::ElementAt(tensor, i);
    if (IsInteger(tensor.dtype)) {
      list.push_back(static_cast<std::int64_t>(value));
    } else if (std::isfinite(value)) {
      list.push_back(value);
    } else {
      list.push_back(std::isnan(value) ? "NaN"
                     : value > 0       ? "Infinity"
                                       : "-Infinity");
    }
  }
  (*json)["values"] = std::move(list);
  return absl::OkStatus();
}

nlohmann::ordered_json ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  compat::PrintDefaults(&options);
  std::string text;
  const auto status =
      google::protobuf::util::MessageToJsonString(message, &text, options);
  return nlohmann::ordered_json::parse(status.ok() ? text : "{}", nullptr,
                                       /*allow_exceptions=*/false);
}

nlohmann::ordered_json ErrorJson(const absl::Status& status) {
  nlohmann::ordered_json error = {
      {"code", absl::StatusCodeToString(status.code())},
      {"reason", ErrorReason(status)},
      {"message", std::string(status.message())}};
  const std::string field = ErrorFact(status, "field");
  if (!field.empty()) error["field"] = field;
  const std::string id = ErrorFact(status, "requestId");
  if (!id.empty()) error["request_id"] = id;
  return {{"error", std::move(error)}};
}

std::string JsonText(const nlohmann::ordered_json& json, int indent) {
  // By default dump() throws at bytes that are not UTF-8.
  return json.dump(indent, ' ', false,
                   nlohmann::json::error_handler_t::replace);
}

void PrintJson(const nlohmann::ordered_json& json) {
  std::printf("%s\n", JsonText(json, 2).c_str());
}

void PrintError(const absl::Status& status, bool json,
                const std::string& flag) {
  if (json) {
    nlohmann::ordered_json error = ErrorJson(status);
    if (!flag.empty()) error["error"]["flag"] = flag;
    PrintJson(error);
  } else {
    // A message may quote a file, whose control characters would move a
    // terminal's cursor.
    std::fprintf(stderr, "posenc: %s: %s%s\n",
                 absl::StatusCodeToString(status.code()).c_str(),
                 core::OneLine(status.message()).c_str(),
                 flag.empty() ? "" : absl::StrCat(" (", flag, ")").c_str());
  }
}

std::string NineDigits(double value) { return absl::StrFormat("%.9g", value); }

std::string BytesText(double bytes) {
  if (bytes < 1e3) return absl::StrFormat("%.0f B", bytes);
  if (bytes < 1e6) return absl::StrFormat("%.1f kB", bytes / 1e3);
  if (bytes < 1e9) return absl::StrFormat("%.1f MB", bytes / 1e6);
  return absl::StrFormat("%.2f GB", bytes / 1e9);
}

}  // namespace posenc::cli
