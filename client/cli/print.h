// What commands print: facts, tensors and errors, as text for people or as
// JSON. With --json stdout carries one JSON object and nothing else.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "google/protobuf/message.h"
#include "nlohmann/json.hpp"
#include "posenc/client.h"

namespace posenc::cli {

// Rows of a tensor that are shown: what fits on a screen, and less if the
// tensor is in a file as well.
constexpr std::int64_t kShownRows = 8;
constexpr std::int64_t kShownRowsOfFile = 3;

// Upper bound on the values that JSON on stdout holds: more belong into a file.
constexpr std::int64_t kMaxPrintedValues = 65536;

// Prints one line of a list: the name, then the value in its column.
void PrintFact(const std::string& name, const std::string& value);

// Prints name, dtype and shape, then the first rows, each cut to what fits.
void PrintTensor(const std::string& name, const TensorView& tensor,
                 std::int64_t shown_rows);

// Prints the corner of the matrix that starts at element `offset`, with
// numbered rows and columns: the first row is `first_row`, the first column
// `first_column`.
void PrintMatrix(const TensorView& tensor, std::int64_t offset,
                 std::int64_t rows, std::int64_t columns,
                 std::int64_t first_row, std::int64_t first_column);

// At most `shown` of the indices 0 ... n - 1, evenly spread. The first and the
// last are among them. `shown` is at least 2.
std::vector<int> Spread(int n, int shown);

// {"dtype": "float32", "shape": [2, 3]}.
nlohmann::ordered_json TensorJson(const TensorView& tensor);

// Adds all values as a flat list. JSON has no infinities and no NaN: they are
// the texts "Infinity", "-Infinity" and "NaN". Exit code 2 if there are more
// than kMaxPrintedValues.
absl::Status AddValues(const TensorView& tensor, nlohmann::ordered_json* json);

// A message with its fields named as in the proto, those with default values
// included.
nlohmann::ordered_json ToJson(const google::protobuf::Message& message);

void PrintJson(const nlohmann::ordered_json& json);

// Prints "posenc: <CODE>: <message>" on stderr, or the error object of --json
// on stdout. `flag` is the one that the message's field stands for, or empty.
void PrintError(const absl::Status& status, bool json,
                const std::string& flag = "");

// "%.9g": enough digits to tell float32 numbers apart, and 1 instead of 1.0000.
std::string NineDigits(double value);

// "41.9 MB", in powers of 1000.
std::string BytesText(double bytes);

}  // namespace posenc::cli
