// Tensors on the screen, and in JSON.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "google/protobuf/message.h"
#include "nlohmann/json.hpp"
#include "posenc/client.h"

namespace posenc::cli {

// What fits a screen.
constexpr std::int64_t kShownRows = 8;
constexpr std::int64_t kShownRowsOfFile = 3;

// Most values that JSON on stdout holds: more belong into a file.
constexpr std::int64_t kMaxPrintedValues = 65536;

// One line of a list of facts.
void PrintFact(const std::string& name, const std::string& value);

// Name, dtype and shape, then the first rows, each cut to what fits.
void PrintTensor(const std::string& name, const TensorView& tensor,
                 std::int64_t shown_rows);

// The corner of a matrix, numbered: the first rows and columns of what starts
// at element `offset`. The first of each stand at these positions.
void PrintMatrix(const TensorView& tensor, std::int64_t offset,
                 std::int64_t rows, std::int64_t columns,
                 std::int64_t first_row, std::int64_t first_column);

// Its dtype and shape.
nlohmann::ordered_json TensorJson(const TensorView& tensor);

// All values, which are text where JSON has no number ("-Infinity"). Exit code
// 2 where they are too many.
absl::Status AddValues(const TensorView& tensor, nlohmann::ordered_json* json);

// Fields as the proto names them, defaults included.
nlohmann::ordered_json ToJson(const google::protobuf::Message& message);

void PrintJson(const nlohmann::ordered_json& json);

// "<CODE>: <message>", or the object of --json.
void PrintError(const absl::Status& status, bool json);

// "%.9g", and 1 instead of 1.0000.
std::string NineDigits(double value);

// "41.9 MB".
std::string BytesText(double bytes);

}  // namespace posenc::cli
