// Reads the vectors of proto/testdata/conformance and compares answers with
// them. Its README describes the format; tests/reference makes the files.
//
// Failures are texts, not assertions: tests and the replay through the client
// library report them each in its own way.

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

// All vectors of a folder, in the order of the files' names.
std::vector<Vector> LoadVectors(const std::string& folder);

// The request of a vector. False, and what is wrong in `*failure`, if it does
// not fit the message.
bool ParseRequest(const Vector& vector, google::protobuf::Message* request,
                  std::string* failure);

// What is wrong with an answer; empty if nothing is. `expected` is a vector's
// array of expectations.
std::string CompareAnswer(const google::protobuf::Message& response,
                          const nlohmann::json& expected);

// What a call ended with if it failed.
struct Error {
  std::string code;    // "INVALID_ARGUMENT"
  std::string reason;  // "ERROR_REASON_FIELD_REQUIRED"; empty if there is none
  std::string field;
  std::string message;
};

// The same for an error. `expected` is a vector's object that describes one.
std::string CompareError(const Error& error, const nlohmann::json& expected);

// The name of a gRPC status code: "OUT_OF_RANGE".
std::string CodeName(int code);

// Puts the tiles of a bias together: one tensor of the whole range.
class BiasTiles {
 public:
  explicit BiasTiles(const v1::BuildBiasRequest& request) : request_(request) {}

  // What is wrong with a tile or its place; empty if nothing is.
  std::string Add(const v1::BuildBiasResponse& response);

  // The whole matrix as `values`, int64 or float64: both hold every element of
  // narrower dtypes exactly.
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
