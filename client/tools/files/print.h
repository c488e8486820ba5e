// Prints facts, tensors and errors of commands, as text or as JSON. With --json
// stdout has one JSON object and nothing else.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "google/protobuf/message.h"
#include "nlohmann/json.hpp"
#include "posenc/client.h"

namespace posenc::cli {

// Numbers of printed rows of a tensor. kShownRowsOfFile is for a tensor that is
// also written to a file.
constexpr std::int64_t kShownRows = 8;
constexpr std::int64_t kShownRowsOfFile = 3;

// Upper bound on the number of values in JSON on stdout. Larger tensors must be
// written to a file.
constexpr std::int64_t kMaxPrintedValues = 65536;

// Prints one line of a list: the name, then the value in its column.
void PrintFact(const std::string& name, const std::string& value);

// Prints the line "NAME  DTYPE SHAPE".
void PrintForm(const std::string& name, v1::Dtype dtype,
               const std::vector<std::int64_t>& shape);

// Prints the line of PrintForm(), then the first rows, cut to the width of a
// line.
void PrintTensor(const std::string& name, const TensorView& tensor,
                 std::int64_t shown_rows);

// Prints a corner of the matrix whose elements begin at `offset` in the tensor.
// Rows and columns are numbered from `first_row` and `first_column`.
void PrintMatrix(const TensorView& tensor, std::int64_t offset,
                 std::int64_t rows, std::int64_t columns,
                 std::int64_t first_row, std::int64_t first_column);

// Number of pairs in a printed list: enough to show a scaling's start, its ramp
// and its end.
constexpr int kShownPairs = 10;

// Returns a text such as "64, 10 of them (all: --json)", or only n, such as
// "8", if Spread() shows all.
std::string ShownText(int n, int shown);

// Returns at most `shown` of the indices 0 ... n - 1, evenly spread, including
// the first and the last. `shown` must be at least 2.
std::vector<int> Spread(int n, int shown);

// Returns dtype and shape, for example {"dtype": "float32", "shape": [2, 3]}.
nlohmann::ordered_json TensorJson(const TensorView& tensor);

// Adds all values as a flat list. JSON has no infinities and no NaN; they are
// written as the texts "Infinity", "-Infinity" and "NaN". Returns an error with
// exit code 2 if there are more than kMaxPrintedValues.
absl::Status AddValues(const TensorView& tensor, nlohmann::ordered_json* json);

// Returns a message as JSON, with the proto's field names, and including
// default values.
nlohmann::ordered_json ToJson(const google::protobuf::Message& message);

// Returns {"error": {"code", "reason", "message"}}, and "field" and
// "request_id" if the status has them.
nlohmann::ordered_json ErrorJson(const absl::Status& status);

// Returns JSON as text, on one line if `indent` is -1. Replaces bytes that are
// not UTF-8: file names in messages may have such bytes.
std::string JsonText(const nlohmann::ordered_json& json, int indent);

void PrintJson(const nlohmann::ordered_json& json);

// Prints "posenc: <CODE>: <message>" on stderr, or the error object of --json
// on stdout. `flag` is the flag of the field that the message names, or empty.
void PrintError(const absl::Status& status, bool json,
                const std::string& flag = "");

// Formats as "%.9g", which has enough digits to distinguish float32 numbers,
// and prints 1 instead of 1.0000.
std::string NineDigits(double value);

// Returns a size such as "41.9 MB", in powers of 1000.
std::string BytesText(double bytes);

}  // namespace posenc::cli
