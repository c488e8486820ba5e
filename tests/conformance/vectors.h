// Reads the vectors of proto/testdata/conformance and compares answers with
// them. Its README describes the format; tests/reference makes the files.
//
// Failures are texts, not assertions, because tests and the replay through the
// client library report them differently.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "google/protobuf/message.h"
#include "nlohmann/json.hpp"
#include "posenc/v1/service.pb.h"

namespace posenc::conformance {

struct Vector {
  std::string family;  // the file's name without .json
  std::string name;
  nlohmann::json content;
};

// Returns all vectors of a folder, in the order of the files' names.
std::vector<Vector> LoadVectors(const std::string& folder);

// Parses the request of a vector. Returns false, with the fault in `*failure`,
// if it does not fit the message.
bool ParseRequest(const Vector& vector, google::protobuf::Message* request,
                  std::string* failure);

// Returns what is wrong with an answer, or "". `expected` is a vector's array
// of expectations.
std::string CompareAnswer(const google::protobuf::Message& response,
                          const nlohmann::json& expected);

// The error of a failed call.
struct Error {
  std::string code;    // "INVALID_ARGUMENT"
  std::string reason;  // "ERROR_REASON_FIELD_REQUIRED"; empty if there is none
  std::string field;
  std::string message;
};

// Returns what is wrong with an error, or "". `expected` is a vector's object
// that describes one.
std::string CompareError(const Error& error, const nlohmann::json& expected);

// Returns the name of a gRPC status code: "OUT_OF_RANGE".
std::string CodeName(int code);

// Joins the tiles of a bias to one tensor of the whole range.
class BiasTiles {
 public:
  explicit BiasTiles(const v1::BuildBiasRequest& request) : request_(request) {}

  // Adds a tile. Returns what is wrong with it or its place, or "".
  std::string Add(const v1::BuildBiasResponse& response);

  // Returns the whole matrix as `values`, int64 or float64, which hold every
  // element of narrower dtypes exactly.
  v1::BuildBiasResponse Whole() const;

 private:
  const v1::BuildBiasRequest& request_;
  v1::Dtype dtype_ = v1::DTYPE_UNSPECIFIED;
  std::int64_t heads_ = -1;  // -1: no tile yet
  std::vector<double> values_;
  std::int64_t last_row_ = -1;
  std::int64_t last_column_ = -1;
};

}  // namespace posenc::conformance
