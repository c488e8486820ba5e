#include "core/interpretation/formats/gguf_file.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/escaping.h"
#include "core/base/error.h"
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

}  // namespace posenc::core::interpretation
