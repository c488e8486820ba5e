#include "core/interpretation/formats/gguf_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/escaping.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/interpretation/formats/gguf_format.h"

namespace posenc::core::interpretation {

std::string Shown(absl::string_view name) {
  constexpr std::size_t kShown = 100;
  return absl::CHexEscape(name.substr(0, kShown));
}

double AsNumber(const GgufValue& value) {
  if (const auto* i = std::get_if<std::int64_t>(&value)) {
    return static_cast<double>(*i);
  }
  if (const auto* u = std::get_if<std::uint64_t>(&value)) {
    return static_cast<double>(*u);
  }
  if (const auto* b = std::get_if<bool>(&value)) return *b ? 1 : 0;
  return std::get<double>(value);
}

namespace {

absl::Status WrongType(absl::string_view key, absl::string_view wanted,
                       const GgufValue& value) {
  const char* const is = std::holds_alternative<std::string>(value) ? "a string"
                         : std::holds_alternative<std::vector<double>>(value)
                             ? "an array"
                         : std::holds_alternative<bool>(value) ? "a bool"
                                                               : "a number";
  return Malformed("key ", Shown(key), " is ", is, "; it must be ", wanted);
}

template <typename T>
void Append(T value, std::string* out) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out->append(bytes, sizeof(T));
}

void AppendText(const std::string& text, std::string* out) {
  Append(std::uint64_t{text.size()}, out);
  out->append(text);
}

// Appends the type of a value and then the value.
struct AppendValue {
  std::string* out;

  void operator()(std::int64_t value) const { Number(kGgufI64, value); }
  void operator()(std::uint64_t value) const { Number(kGgufU64, value); }
  void operator()(double value) const { Number(kGgufF64, value); }
  void operator()(bool value) const {
    Number(kGgufBool, static_cast<std::uint8_t>(value));
  }
  void operator()(const std::string& text) const {
    Append<std::uint32_t>(kGgufString, out);
    AppendText(text, out);
  }
  void operator()(const std::vector<double>& values) const {
    Append<std::uint32_t>(kGgufArray, out);
    Append<std::uint32_t>(kGgufF64, out);
    Append(std::uint64_t{values.size()}, out);
    for (const double value : values) Append(value, out);
  }

  template <typename T>
  void Number(std::uint32_t type, T value) const {
    Append(type, out);
    Append(value, out);
  }
};

constexpr std::uint64_t kMaxTensorElements = std::uint64_t{1} << 24;

}  // namespace

ByteSource SourceOf(absl::string_view bytes) {
  return {bytes.size(), [bytes](std::uint64_t offset, char* to, std::size_t n) {
            std::copy_n(bytes.data() + offset, n, to);
            return absl::OkStatus();
          }};
}

const GgufTensor* GgufFile::FindTensor(absl::string_view name) const {
  for (const GgufTensor& tensor : tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

std::optional<double> GgufFile::Number(absl::string_view key,
                                       absl::Status* status) const {
  const auto it = keys.find(std::string(key));
  if (it == keys.end()) return std::nullopt;
  const GgufValue& value = it->second;
  if (std::holds_alternative<std::string>(value) ||
      std::holds_alternative<bool>(value) ||
      std::holds_alternative<std::vector<double>>(value)) {
    status->Update(WrongType(key, "a number", value));
    return std::nullopt;
  }
  const double number = AsNumber(value);
  if (std::isfinite(number)) return number;
  status->Update(Malformed("key ", Shown(key), " is ",
                           std::isnan(number) ? "NaN" : "infinite",
                           "; it must be a finite number"));
  return std::nullopt;
}

std::optional<std::int64_t> GgufFile::Integer(absl::string_view key,
                                              absl::Status* status) const {
  const std::optional<double> number = Number(key, status);
  if (!number) return std::nullopt;
  if (*number == std::floor(*number) && std::abs(*number) <= 0x1p53) {
    return static_cast<std::int64_t>(*number);
  }
  status->Update(Malformed("key ", Shown(key), " is ", NumberText(*number),
                           "; it must be a whole number"));
  return std::nullopt;
}

std::optional<bool> GgufFile::Flag(absl::string_view key,
                                   absl::Status* status) const {
  const auto it = keys.find(std::string(key));
  if (it == keys.end()) return std::nullopt;
  if (const auto* flag = std::get_if<bool>(&it->second)) return *flag;
  status->Update(WrongType(key, "a bool", it->second));
  return std::nullopt;
}

std::optional<std::string> GgufFile::Text(absl::string_view key,
                                          absl::Status* status) const {
  const auto it = keys.find(std::string(key));
  if (it == keys.end()) return std::nullopt;
  if (const auto* text = std::get_if<std::string>(&it->second)) return *text;
  status->Update(WrongType(key, "a string", it->second));
  return std::nullopt;
}

std::vector<double> GgufFile::Numbers(absl::string_view key,
                                      absl::Status* status) const {
  const auto it = keys.find(std::string(key));
  if (it == keys.end()) return {};
  if (const auto* list = std::get_if<std::vector<double>>(&it->second)) {
    for (const double number : *list) {
      if (std::isfinite(number)) continue;
      status->Update(Malformed("key ", Shown(key),
                               " is an array, but not of integers of 32 bits, "
                               "and llama.cpp refuses that"));
    }
    return *list;
  }
  absl::Status no_number;
  if (const auto number = Number(key, &no_number)) return {*number};
  status->Update(WrongType(key, "a number or an array of numbers", it->second));
  return {};
}

std::optional<Dtype> GgufDtype(std::uint32_t type) {
  switch (type) {
    case 0:
      return Dtype::kFloat32;
    case 1:
      return Dtype::kFloat16;
    case 28:
      return Dtype::kFloat64;
    case 30:
      return Dtype::kBfloat16;
    default:
      return std::nullopt;
  }
}

std::vector<double> DecodeFloats(Dtype dtype, const char* bytes,
                                 std::size_t n) {
  const auto size = static_cast<std::int64_t>(n);
  const ConstTensorView view = {dtype, {size}, bytes};
  std::vector<double> numbers(n);
  for (std::int64_t i = 0; i < size; ++i) {
    numbers[static_cast<std::size_t>(i)] = ElementAsDouble(view, i);
  }
  return numbers;
}

absl::StatusOr<std::vector<double>> ReadGgufTensor(const ByteSource& source,
                                                   const GgufTensor& tensor) {
  const std::optional<Dtype> dtype = GgufDtype(tensor.type);
  if (!dtype) {
    return Malformed("tensor ", Shown(tensor.name), " is of type ", tensor.type,
                     "; only F32, F16, BF16 and F64 are read");
  }
  std::uint64_t elements = 1;
  for (const std::uint64_t extent : tensor.shape) elements *= extent;
  if (elements > kMaxTensorElements) {
    return Malformed("tensor ", Shown(tensor.name), " has ", elements,
                     " elements; at most ", kMaxTensorElements, " are read");
  }
  const std::uint64_t bytes = elements * DtypeSize(*dtype);
  if (tensor.offset > source.size || bytes > source.size - tensor.offset) {
    return Malformed("ends at byte ", source.size, "; tensor ",
                     Shown(tensor.name), " of ", bytes,
                     " bytes begins at byte ", tensor.offset);
  }
  std::string data(bytes, '\0');
  RETURN_IF_ERROR(source.read(tensor.offset, data.data(), bytes));
  return DecodeFloats(*dtype, data.data(), elements);
}

std::string WriteGgufKeys(const GgufFile& file) {
  std::string out = "GGUF";
  Append(std::uint32_t{3}, &out);
  Append(std::uint64_t{0}, &out);
  Append(std::uint64_t{file.keys.size()}, &out);
  for (const auto& [key, value] : file.keys) {
    AppendText(key, &out);
    std::visit(AppendValue{&out}, value);
  }
  return out;
}

}  // namespace posenc::core::interpretation
