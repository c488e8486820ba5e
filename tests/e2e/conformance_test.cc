// Replays the conformance vectors of proto/testdata through a server. Their
// README describes the format; tests/reference makes them.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "google/protobuf/util/json_util.h"
#include "nlohmann/json.hpp"
#include "tests/fixtures/server.h"

namespace posenc::server {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using nlohmann::json;
using Real = long double;

// 64 bits of significand: the vectors' 20 digits are all there.
static_assert(std::numeric_limits<Real>::digits >= 64);

struct Vector {
  std::string file;
  json content;
};

void PrintTo(const Vector& vector, std::ostream* out) { *out << vector.file; }

std::vector<Vector> LoadVectors() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(POSENC_VECTORS)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<Vector> out;
  for (const std::filesystem::path& file : files) {
    std::ifstream in(file);
    for (json& content : json::parse(in)) {
      out.push_back({file.filename().string(), std::move(content)});
    }
  }
  return out;
}

// An element type: bits of significand, exponent of its smallest step.
struct Format {
  int bits;
  int smallest;
};

Format FormatOf(v1::Dtype dtype) {
  switch (dtype) {
    case v1::DTYPE_FLOAT32:
      return {24, -149};
    case v1::DTYPE_FLOAT16:
      return {11, -24};
    case v1::DTYPE_BFLOAT16:
      return {8, -133};
    default:
      return {53, -1074};
  }
}

// Distance between neighbours at x.
Real Ulp(Real x, v1::Dtype dtype) {
  const Format format = FormatOf(dtype);
  int exponent = format.smallest;
  if (x != 0) std::frexp(x, &exponent);
  return std::ldexp(Real{1}, std::max(exponent - format.bits, format.smallest));
}

Real Nearest(Real x, v1::Dtype dtype) {
  const Real step = Ulp(x, dtype);
  return std::nearbyint(x / step) * step;  // ties to even
}

// IEEE binary16 and bfloat16, read independently of core.
Real FromBits16(std::uint16_t bits, int exponent_bits) {
  const int fraction_bits = 15 - exponent_bits;
  const int top = (1 << exponent_bits) - 1;
  const int exponent = (bits >> fraction_bits) & top;
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const Real sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == top) {
    return fraction != 0 ? std::numeric_limits<Real>::quiet_NaN()
                         : sign * std::numeric_limits<Real>::infinity();
  }
  const int hidden = exponent == 0 ? 0 : 1 << fraction_bits;
  return sign * std::ldexp(Real(hidden + fraction),
                           std::max(exponent, 1) - top / 2 - fraction_bits);
}

template <typename T>
void Append(const std::string& data, std::vector<Real>* out) {
  for (std::size_t at = 0; at + sizeof(T) <= data.size(); at += sizeof(T)) {
    T value;
    std::memcpy(&value, data.data() + at, sizeof(T));
    out->push_back(value);
  }
}

// The part of an answer that a path names.
struct Answer {
  v1::Dtype dtype = v1::DTYPE_FLOAT64;
  std::vector<std::int64_t> shape;
  std::vector<Real> values;
  std::string text;  // of an enum
};

Answer ReadTensor(const v1::Tensor& tensor) {
  Answer out;
  out.dtype = tensor.dtype();
  out.shape.assign(tensor.shape().begin(), tensor.shape().end());
  if (tensor.values_size() > 0) {
    out.values.assign(tensor.values().begin(), tensor.values().end());
    return out;
  }
  const std::string& data = tensor.data();
  switch (tensor.dtype()) {
    case v1::DTYPE_FLOAT32:
      Append<float>(data, &out.values);
      break;
    case v1::DTYPE_FLOAT64:
      Append<double>(data, &out.values);
      break;
    case v1::DTYPE_INT32:
      Append<std::int32_t>(data, &out.values);
      break;
    case v1::DTYPE_INT64:
      Append<std::int64_t>(data, &out.values);
      break;
    default:
      for (const std::uint16_t bits : Elements<std::uint16_t>(tensor)) {
        out.values.push_back(
            FromBits16(bits, tensor.dtype() == v1::DTYPE_FLOAT16 ? 5 : 8));
      }
  }
  return out;
}

Real Scalar(const Message& message, const FieldDescriptor* field) {
  const Reflection& at = *message.GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return at.GetDouble(message, field);
    case FieldDescriptor::CPPTYPE_INT32:
      return at.GetInt32(message, field);
    case FieldDescriptor::CPPTYPE_INT64:
      return at.GetInt64(message, field);
    case FieldDescriptor::CPPTYPE_BOOL:
      return at.GetBool(message, field) ? 1 : 0;
    default:
      ADD_FAILURE() << field->full_name() << " is of no kind that is read";
      return 0;
  }
}

// Follows lowerCamelCase names, as JSON spells them, from the answer down.
Answer Find(const Message& message, const std::string& path) {
  const std::size_t dot = path.find('.');
  const std::string name = path.substr(0, dot);
  const FieldDescriptor* field =
      message.GetDescriptor()->FindFieldByCamelcaseName(name);
  Answer out;
  if (field == nullptr) {
    ADD_FAILURE() << "no field " << name;
    return out;
  }
  const Reflection& at = *message.GetReflection();
  if (field->is_repeated()) {
    const int n = at.FieldSize(message, field);
    out.shape = {n};
    for (int i = 0; i < n; ++i) {
      out.values.push_back(field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE
                               ? at.GetRepeatedDouble(message, field, i)
                               : at.GetRepeatedInt32(message, field, i));
    }
    return out;
  }
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    const Message& inner = at.GetMessage(message, field);
    if (dot != std::string::npos) return Find(inner, path.substr(dot + 1));
    return ReadTensor(dynamic_cast<const v1::Tensor&>(inner));
  }
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
    out.text = at.GetEnum(message, field)->name();
  } else {
    out.values = {Scalar(message, field)};
  }
  return out;
}

Real Number(const json& value) {
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (!value.is_string()) return std::strtold(value.dump().c_str(), nullptr);
  return std::strtold(value.get_ref<const std::string&>().c_str(), nullptr);
}

// How far an element may be from the expected one.
struct Bound {
  std::string kind;
  Real value = 0;
  std::vector<Real> scales;
  Real ulps = 0;

  explicit Bound(const json& bound) : kind(bound.at("kind")) {
    if (kind != "exact") value = Number(bound.at("value"));
    if (kind == "scaled") {
      ulps = Number(bound.at("ulps"));
      for (const json& scale : bound.at("scales")) {
        scales.push_back(Number(scale));
      }
    }
  }

  bool Holds(Real actual, Real expected, std::size_t i, v1::Dtype dtype) const {
    if (std::isinf(expected) || kind == "exact") return actual == expected;
    const Real error = std::abs(actual - expected);
    if (kind == "ulp") {
      const Real nearest = Nearest(expected, dtype);
      return std::abs(actual - nearest) <= value * Ulp(nearest, dtype);
    }
    if (kind == "absolute") return error <= value;
    if (kind == "relative") return error <= value * std::abs(expected);
    if (kind == "scaled") {
      const Real largest = std::max(std::abs(actual), std::abs(expected));
      const Real rounding = ulps == 0 ? 0 : ulps * Ulp(largest, dtype);
      return error <= value * scales.at(i) + rounding;
    }
    ADD_FAILURE() << "unknown bound " << kind;
    return false;
  }
};

void Check(const Message& response, const json& expected) {
  const std::string path = expected.at("path");
  SCOPED_TRACE(path);
  const Answer answer = Find(response, path);
  const json& values = expected.at("values");
  if (!answer.text.empty()) {
    EXPECT_EQ(answer.text, values.at(0).get<std::string>());
    return;
  }
  ASSERT_EQ(answer.shape,
            expected.at("shape").get<std::vector<std::int64_t>>());
  ASSERT_EQ(answer.values.size(), values.size());
  if (expected.contains("dtype")) {
    ASSERT_EQ(v1::Dtype_Name(answer.dtype),
              expected.at("dtype").get<std::string>());
  }
  const Bound bound(expected.at("bound"));
  if (bound.kind == "scaled") {
    ASSERT_EQ(bound.scales.size(), values.size());
  }
  int failures = 0;
  for (std::size_t i = 0; i < values.size() && failures < 5; ++i) {
    const Real number = Number(values[i]);
    if (bound.Holds(answer.values[i], number, i, answer.dtype)) continue;
    ++failures;
    ADD_FAILURE() << "element " << i << " is "
                  << absl::StrFormat("%.21Lg", answer.values[i])
                  << ", expected " << values[i] << " within "
                  << expected.at("bound").at("kind") << " "
                  << static_cast<double>(bound.value);
  }
}

std::string CodeName(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::OK:
      return "OK";
    case grpc::StatusCode::INVALID_ARGUMENT:
      return "INVALID_ARGUMENT";
    case grpc::StatusCode::OUT_OF_RANGE:
      return "OUT_OF_RANGE";
    case grpc::StatusCode::NOT_FOUND:
      return "NOT_FOUND";
    case grpc::StatusCode::UNIMPLEMENTED:
      return "UNIMPLEMENTED";
    default:
      return std::to_string(code);
  }
}

// Puts the tiles of a bias together: one tensor of the whole range.
class Tiles {
 public:
  explicit Tiles(const v1::BuildBiasRequest& request) : request_(request) {}

  void Add(const v1::BuildBiasResponse& response) {
    const Answer tile = ReadTensor(response.tile());
    ASSERT_EQ(tile.shape.size(), 3u);
    const std::int64_t heads = tile.shape[0];
    const std::int64_t rows = tile.shape[1];
    const std::int64_t columns = tile.shape[2];
    const std::int64_t row = response.query_start() - request_.query_start();
    const std::int64_t column = response.key_start() - request_.key_start();
    const std::int64_t height = request_.query_length();
    const std::int64_t width = request_.key_length();
    ASSERT_TRUE(row >= 0 && row + rows <= height);
    ASSERT_TRUE(column >= 0 && column + columns <= width);
    EXPECT_LE(rows, AtMost(request_.query_tile()));
    EXPECT_LE(columns, AtMost(request_.key_tile()));
    // Row-major order of the tiles.
    if (!whole_.shape.empty() && rows > 0 && columns > 0) {
      EXPECT_LT(std::make_pair(last_row_, last_column_),
                std::make_pair(row, column));
    }
    last_row_ = row;
    last_column_ = column;
    if (whole_.shape.empty()) {
      whole_.dtype = tile.dtype;
      whole_.shape = {heads, height, width};
      whole_.values.assign(heads * height * width,
                           std::numeric_limits<Real>::quiet_NaN());
    }
    ASSERT_EQ(heads, whole_.shape[0]);
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t j = 0; j < columns; ++j) {
          whole_.values[(h * height + row + i) * width + column + j] =
              tile.values[(h * rows + i) * columns + j];
        }
      }
    }
  }

  // The whole matrix as int64 or float64 values: both hold every element
  // exactly.
  v1::BuildBiasResponse Whole() const {
    v1::BuildBiasResponse out;
    v1::Tensor* const tensor = out.mutable_tile();
    tensor->set_dtype(whole_.dtype);
    tensor->mutable_shape()->Add(whole_.shape.begin(), whole_.shape.end());
    for (const Real value : whole_.values) {
      tensor->add_values(static_cast<double>(value));
    }
    return out;
  }

 private:
  // The extent of a tile that was asked for; unset: the server's choice.
  static std::int64_t AtMost(std::int64_t tile) {
    return tile > 0 ? tile : std::numeric_limits<std::int64_t>::max();
  }

  const v1::BuildBiasRequest& request_;
  Answer whole_;
  std::int64_t last_row_ = -1;
  std::int64_t last_column_ = -1;
};

class ConformanceTest : public testing::TestWithParam<Vector> {
 protected:
  using Stub = v1::PositionalEncodingService::Stub;

  static void SetUpTestSuite() {
    absl::StatusOr<std::unique_ptr<Server>> server = Server::Start({});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = server->release();
    stub_ = v1::PositionalEncodingService::NewStub(server_->InProcessChannel())
                .release();
  }
  static void TearDownTestSuite() {
    delete stub_;
    delete server_;
  }

  template <typename Message>
  static void Parse(const json& request, Message* out) {
    const auto status =
        google::protobuf::util::JsonStringToMessage(request.dump(), out);
    ASSERT_TRUE(status.ok()) << status.ToString();
  }

  template <typename Request, typename Response>
  void Replay(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                           Response*)) {
    Request request;
    ASSERT_NO_FATAL_FAILURE(Parse(GetParam().content.at("request"), &request));
    Response response;
    grpc::ClientContext context;
    context.set_deadline(Deadline());
    const grpc::Status status = (stub_->*method)(&context, request, &response);
    Compare(status, response);
  }

  void ReplayBias() {
    v1::BuildBiasRequest request;
    ASSERT_NO_FATAL_FAILURE(Parse(GetParam().content.at("request"), &request));
    grpc::ClientContext context;
    context.set_deadline(Deadline());
    const auto reader = stub_->BuildBias(&context, request);
    Tiles tiles(request);
    v1::BuildBiasResponse response;
    while (reader->Read(&response)) {
      ASSERT_NO_FATAL_FAILURE(tiles.Add(response));
    }
    const grpc::Status status = reader->Finish();
    Compare(status, tiles.Whole());
  }

  void Compare(const grpc::Status& status, const Message& response) {
    const json& expected = GetParam().content.at("expect");
    if (expected.is_array()) {
      ASSERT_TRUE(status.ok())
          << CodeName(status.error_code()) << " " << status.error_message();
      ASSERT_FALSE(expected.empty());
      for (const json& item : expected) Check(response, item);
      return;
    }
    EXPECT_EQ(CodeName(status.error_code()),
              expected.at("code").get<std::string>())
        << status.error_message();
    const Details details = ReadDetails(status);
    EXPECT_EQ(details.reason, expected.at("reason").get<std::string>())
        << status.error_message();
    const auto field = details.metadata.find("field");
    EXPECT_EQ(field == details.metadata.end() ? "" : field->second,
              expected.at("field").get<std::string>())
        << status.error_message();
  }

  static Server* server_;
  static Stub* stub_;
};

Server* ConformanceTest::server_ = nullptr;
ConformanceTest::Stub* ConformanceTest::stub_ = nullptr;

TEST_P(ConformanceTest, Holds) {
  const std::string rpc = GetParam().content.at("rpc");
  if (rpc == "ResolveRope") return Replay(&Stub::ResolveRope);
  if (rpc == "BuildTable") return Replay(&Stub::BuildTable);
  if (rpc == "BuildBias") return ReplayBias();
  if (rpc == "BuildPositions") return Replay(&Stub::BuildPositions);
  if (rpc == "ApplyRope") return Replay(&Stub::ApplyRope);
  if (rpc == "Reposition") return Replay(&Stub::Reposition);
  if (rpc == "AddEncoding") return Replay(&Stub::AddEncoding);
  if (rpc == "ScoreRelative") return Replay(&Stub::ScoreRelative);
  if (rpc == "ConvertPairing") return Replay(&Stub::ConvertPairing);
  if (rpc == "AnalyzeRope") return Replay(&Stub::AnalyzeRope);
  FAIL() << "unknown rpc " << rpc;
}

INSTANTIATE_TEST_SUITE_P(
    Vectors, ConformanceTest, testing::ValuesIn(LoadVectors()),
    [](const testing::TestParamInfo<Vector>& info) {
      return info.param.content.at("name").get<std::string>();
    });

TEST(ConformanceVectorsTest, AreAllThere) {
  EXPECT_GE(LoadVectors().size(), 200u);
}

}  // namespace
}  // namespace posenc::server
