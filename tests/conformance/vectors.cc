#include "tests/conformance/vectors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "google/protobuf/util/json_util.h"

namespace posenc::conformance {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using nlohmann::json;
using Real = long double;

// 64 bits of significand hold the vectors' 20 digits.
static_assert(std::numeric_limits<Real>::digits >= 64);

// An element type: bits of significand, exponent of its smallest step.
struct Format {
  int bits;
  int smallest;
};

// Numbers of the dtypes of 8 bits, because the contract of 0.1.0 lacks their
// names (./run compatibility).
constexpr int kFloat8E4m3fn = 7;
constexpr int kFloat8E5m2 = 8;
constexpr int kInt8 = 9;

Format FormatOf(v1::Dtype dtype) {
  switch (static_cast<int>(dtype)) {
    case kFloat8E4m3fn:
      return {4, -9};
    case kFloat8E5m2:
      return {3, -16};
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

// FP8: E5M2 is the upper half of a binary16. E4M3 has no infinity.
Real FromBits8(std::uint8_t bits, int dtype) {
  if (dtype == kFloat8E5m2) {
    return FromBits16(static_cast<std::uint16_t>(bits << 8), 5);
  }
  const int exponent = (bits >> 3) & 15, fraction = bits & 7;
  const Real sign = (bits & 0x80) != 0 ? -1 : 1;
  if ((bits & 0x7f) == 0x7f) return std::numeric_limits<Real>::quiet_NaN();
  return sign * std::ldexp(Real((exponent == 0 ? 0 : 8) + fraction),
                           std::max(exponent, 1) - 10);
}

template <typename T>
std::vector<T> Elements(const std::string& data) {
  std::vector<T> elements(data.size() / sizeof(T));
  if (elements.empty()) return elements;
  std::memcpy(elements.data(), data.data(), elements.size() * sizeof(T));
  return elements;
}

template <typename T>
void Append(const std::string& data, std::vector<Real>* out) {
  for (const T element : Elements<T>(data)) out->push_back(element);
}

// The part of an answer at a path.
struct Answer {
  v1::Dtype dtype = v1::DTYPE_FLOAT64;
  std::vector<std::int64_t> shape;
  std::vector<Real> values;
  std::string text;     // a text, or the name of an enum's value
  std::string failure;  // why there is no such part
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
  switch (static_cast<int>(tensor.dtype())) {
    case kFloat8E4m3fn:
    case kFloat8E5m2:
      for (const auto bits : Elements<std::uint8_t>(data)) {
        out.values.push_back(FromBits8(bits, tensor.dtype()));
      }
      break;
    case kInt8:
      Append<std::int8_t>(data, &out.values);
      break;
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
      for (const std::uint16_t bits : Elements<std::uint16_t>(data)) {
        out.values.push_back(
            FromBits16(bits, tensor.dtype() == v1::DTYPE_FLOAT16 ? 5 : 8));
      }
  }
  return out;
}

Answer Find(const Message& message, const std::string& path);

Answer ReadScalar(const Message& message, const FieldDescriptor* field) {
  const Reflection& at = *message.GetReflection();
  Answer out;
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_ENUM:
      out.text = at.GetEnum(message, field)->name();
      break;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      out.values = {at.GetDouble(message, field)};
      break;
    case FieldDescriptor::CPPTYPE_INT32:
      out.values = {static_cast<Real>(at.GetInt32(message, field))};
      break;
    case FieldDescriptor::CPPTYPE_INT64:
      out.values = {static_cast<Real>(at.GetInt64(message, field))};
      break;
    case FieldDescriptor::CPPTYPE_BOOL:
      out.values = {at.GetBool(message, field) ? Real{1} : Real{0}};
      break;
    case FieldDescriptor::CPPTYPE_STRING:
      out.text = at.GetString(message, field);
      break;
    default:
      out.failure = "is of no kind that is read";
  }
  return out;
}

// Returns the part at `rest`, "0" or "0.name", of a repeated field.
Answer FindIn(const Message& message, const FieldDescriptor* field,
              const std::string& rest) {
  const std::size_t dot = rest.find('.');
  const int index = std::atoi(rest.c_str());
  const Reflection& at = *message.GetReflection();
  Answer out;
  if (index >= at.FieldSize(message, field)) {
    out.failure = "is missing";
  } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
    out.text = at.GetRepeatedString(message, field, index);
  } else if (dot == std::string::npos) {
    out.failure = "is no field of the answer";
  } else {
    return Find(at.GetRepeatedMessage(message, field, index),
                rest.substr(dot + 1));
  }
  return out;
}

// Returns the part at a path. A path consists of indices and of lowerCamelCase
// names, as in JSON.
Answer Find(const Message& message, const std::string& path) {
  const std::size_t dot = path.find('.');
  const FieldDescriptor* field =
      message.GetDescriptor()->FindFieldByCamelcaseName(path.substr(0, dot));
  Answer out;
  if (field == nullptr) {
    out.failure = "is no field of the answer";
    return out;
  }
  const Reflection& at = *message.GetReflection();
  if (field->is_repeated() && dot != std::string::npos) {
    return FindIn(message, field, path.substr(dot + 1));
  }
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
  if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
    return ReadScalar(message, field);
  }
  const Message& inner = at.GetMessage(message, field);
  if (dot != std::string::npos) return Find(inner, path.substr(dot + 1));
  return ReadTensor(dynamic_cast<const v1::Tensor&>(inner));
}

Real Number(const json& value) {
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (!value.is_string()) return std::strtold(value.dump().c_str(), nullptr);
  return std::strtold(value.get_ref<const std::string&>().c_str(), nullptr);
}

// The allowed difference of an element from the expected one.
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

  bool Known() const {
    return kind == "exact" || kind == "ulp" || kind == "absolute" ||
           kind == "relative" || kind == "scaled";
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
    const Real largest = std::max(std::abs(actual), std::abs(expected));
    const Real rounding = ulps == 0 ? 0 : ulps * Ulp(largest, dtype);
    return error <= value * scales.at(i) + rounding;
  }
};

std::string ShapeText(const std::vector<std::int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// Checks one expectation.
std::string Compare(const Answer& answer, const json& expected) {
  if (!answer.failure.empty()) return answer.failure;
  const json& values = expected.at("values");
  if (!answer.text.empty()) {
    if (answer.text == values.at(0).get<std::string>()) return "";
    return absl::StrCat("is ", answer.text, ", not ", values.at(0).dump());
  }
  const auto shape = expected.at("shape").get<std::vector<std::int64_t>>();
  if (answer.shape != shape || answer.values.size() != values.size()) {
    return absl::StrCat("is shaped ", ShapeText(answer.shape), ", not ",
                        ShapeText(shape));
  }
  if (expected.contains("dtype") &&
      v1::Dtype_Name(answer.dtype) != expected.at("dtype").get<std::string>()) {
    return absl::StrCat("is ", v1::Dtype_Name(answer.dtype), ", not ",
                        expected.at("dtype").dump());
  }
  const Bound bound(expected.at("bound"));
  if (!bound.Known()) return absl::StrCat("has the unknown bound ", bound.kind);
  if (bound.kind == "scaled" && bound.scales.size() != values.size()) {
    return "has another number of scales than of values";
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (bound.Holds(answer.values[i], Number(values[i]), i, answer.dtype)) {
      continue;
    }
    return absl::StrCat("element ", i, " is ",
                        absl::StrFormat("%.21Lg", answer.values[i]),
                        ", expected ", values[i].dump(), " within ", bound.kind,
                        " ", static_cast<double>(bound.value));
  }
  return "";
}

}  // namespace

std::vector<Vector> LoadVectors(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<Vector> out;
  for (const std::filesystem::path& file : files) {
    std::ifstream in(file);
    for (json& content : json::parse(in)) {
      std::string name = content.at("name");
      out.push_back(
          {file.stem().string(), std::move(name), std::move(content)});
    }
  }
  return out;
}

bool ParseRequest(const Vector& vector, Message* request,
                  std::string* failure) {
  const auto status = google::protobuf::util::JsonStringToMessage(
      vector.content.at("request").dump(), request);
  if (!status.ok()) *failure = status.ToString();
  return status.ok();
}

std::string CompareAnswer(const Message& response, const json& expected) {
  if (!expected.is_array()) {
    return absl::StrCat("the call succeeded, expected ", expected.dump());
  }
  if (expected.empty()) return "nothing is expected";
  for (const json& item : expected) {
    const std::string path = item.at("path");
    const std::string failure = Compare(Find(response, path), item);
    if (!failure.empty()) return absl::StrCat(path, ": ", failure);
  }
  return "";
}

std::string CompareError(const Error& error, const json& expected) {
  const std::string said = absl::StrCat(" (", error.message, ")");
  if (!expected.is_object()) return absl::StrCat("ended as ", error.code, said);
  const std::pair<const char*, const std::string*> parts[] = {
      {"code", &error.code},
      {"reason", &error.reason},
      {"field", &error.field}};
  for (const auto& [name, actual] : parts) {
    if (*actual == expected.at(name).get<std::string>()) continue;
    return absl::StrCat(name, " is '", *actual, "', not ",
                        expected.at(name).dump(), said);
  }
  return "";
}

std::string CodeName(int code) {
  static constexpr const char* kNames[] = {"OK",
                                           "CANCELLED",
                                           "UNKNOWN",
                                           "INVALID_ARGUMENT",
                                           "DEADLINE_EXCEEDED",
                                           "NOT_FOUND",
                                           "ALREADY_EXISTS",
                                           "PERMISSION_DENIED",
                                           "RESOURCE_EXHAUSTED",
                                           "FAILED_PRECONDITION",
                                           "ABORTED",
                                           "OUT_OF_RANGE",
                                           "UNIMPLEMENTED",
                                           "INTERNAL",
                                           "UNAVAILABLE",
                                           "DATA_LOSS",
                                           "UNAUTHENTICATED"};
  if (code < 0 || code >= static_cast<int>(std::size(kNames))) {
    return std::to_string(code);
  }
  return kNames[code];
}

std::string BiasTiles::Add(const v1::BuildBiasResponse& response) {
  const Answer tile = ReadTensor(response.tile());
  if (tile.shape.size() != 3) {
    return absl::StrCat("a tile is shaped ", ShapeText(tile.shape));
  }
  const std::int64_t heads = tile.shape[0];
  const std::int64_t rows = tile.shape[1];
  const std::int64_t columns = tile.shape[2];
  const std::int64_t row = response.query_start() - request_.query_start();
  const std::int64_t column = response.key_start() - request_.key_start();
  const std::int64_t height = request_.query_length();
  const std::int64_t width = request_.key_length();
  const std::string place =
      absl::StrCat("the tile at ", row, ", ", column, " ");
  if (row < 0 || row + rows > height || column < 0 ||
      column + columns > width) {
    return absl::StrCat(place, "is outside of what was asked for");
  }
  if ((request_.query_tile() > 0 && rows > request_.query_tile()) ||
      (request_.key_tile() > 0 && columns > request_.key_tile())) {
    return absl::StrCat(place, "is larger than was asked for");
  }
  if (heads_ >= 0 && rows > 0 && columns > 0 &&
      std::make_pair(row, column) <= std::make_pair(last_row_, last_column_)) {
    return absl::StrCat(place, "is not in row-major order");
  }
  last_row_ = row;
  last_column_ = column;
  if (heads_ < 0) {
    dtype_ = tile.dtype;
    heads_ = heads;
    values_.assign(heads * height * width,
                   std::numeric_limits<double>::quiet_NaN());
  }
  if (heads != heads_) return absl::StrCat(place, "has other heads");
  for (std::int64_t h = 0; h < heads; ++h) {
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < columns; ++j) {
        values_[(h * height + row + i) * width + column + j] =
            static_cast<double>(tile.values[(h * rows + i) * columns + j]);
      }
    }
  }
  return "";
}

v1::BuildBiasResponse BiasTiles::Whole() const {
  v1::BuildBiasResponse out;
  if (heads_ < 0) return out;
  v1::Tensor* const tensor = out.mutable_tile();
  tensor->set_dtype(dtype_);
  for (const std::int64_t extent :
       {heads_, request_.query_length(), request_.key_length()}) {
    tensor->add_shape(extent);
  }
  tensor->mutable_values()->Add(values_.begin(), values_.end());
  return out;
}

}  // namespace posenc::conformance
