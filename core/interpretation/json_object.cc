#include "core/interpretation/json_object.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/error.h"

namespace posenc::core::interpretation {
absl::Status ConfigError(absl::string_view key, absl::string_view fact) {
  ErrorMetadata metadata;
  if (!key.empty()) metadata.emplace_back("key", std::string(key));
  return MakeError(
      absl::StatusCode::kInvalidArgument, ErrorReason::kModelConfigInvalid,
      "config_json",
      key.empty() ? std::string(fact) : absl::StrCat(key, " ", fact), metadata);
}

std::string Shortened(const json& value) {
  constexpr std::size_t kShown = 80;
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  return text.size() <= kShown ? text
                               : absl::StrCat(text.substr(0, kShown), "...");
}

JsonObject::JsonObject(const json* value, std::string path, Report* report,
                       std::shared_ptr<const GivenKeys> given)
    : json_(value),
      path_(std::move(path)),
      report_(report),
      given_(std::move(given)),
      read_(std::make_shared<std::set<std::string>>()) {}

std::string JsonObject::Path(absl::string_view key) const {
  std::string path =
      path_.empty() ? std::string(key) : absl::StrCat(path_, ".", key);
  if (given_ == nullptr) return path;
  const auto it = given_->find(path);
  return it == given_->end() ? path : it->second;
}

JsonObject JsonObject::With(const json* value) const {
  return JsonObject(value, path_, report_, given_);
}

const json& JsonObject::At(absl::string_view key) const {
  static const auto& null = *new json();
  return Contains(key) ? (*json_)[std::string(key)] : null;
}

bool JsonObject::Contains(absl::string_view key) const {
  return json_ != nullptr && json_->contains(std::string(key));
}

const json* JsonObject::Read(absl::string_view key) const {
  MarkRead(key);
  const json& value = At(key);
  return value.is_null() ? nullptr : &value;
}

bool JsonObject::Has(absl::string_view key) const {
  return Read(key) != nullptr;
}

bool JsonObject::HasNull(absl::string_view key) const {
  MarkRead(key);
  return Contains(key) && At(key).is_null();
}

void JsonObject::MarkRead(absl::string_view key) const {
  read_->insert(std::string(key));
}

const json* JsonObject::ReadTyped(absl::string_view key,
                                  bool (json::*is_type)() const,
                                  absl::string_view wanted) const {
  const json* value = Read(key);
  if (value == nullptr || (value->*is_type)()) return value;
  const bool is_word =
      *value == "NaN" || *value == "Infinity" || *value == "-Infinity";
  Fail(key,
       is_word ? absl::StrCat("is ", value->get<std::string>())
               : absl::StrCat("is of type ", value->type_name(), ", ",
                              Shortened(*value)),
       "; it must be ", wanted);
  return nullptr;
}

std::optional<double> JsonObject::Number(absl::string_view key) const {
  const auto* value = ReadTyped(key, &json::is_number, "a number");
  if (value == nullptr) return std::nullopt;
  return value->get<double>();
}

std::int64_t WholePart(double number) {
  if (std::isnan(number)) return 0;
  return static_cast<std::int64_t>(std::clamp(number, -0x1p53, 0x1p53));
}

std::optional<std::int64_t> JsonObject::Integer(absl::string_view key) const {
  const std::optional<double> number = Number(key);
  if (!number) return std::nullopt;
  // JSON integers beyond 2^53 are not exact, and no width or length is that
  // large.
  if (*number != std::floor(*number) || std::abs(*number) > 0x1p53) {
    Fail(key, "is ", NumberText(*number),
         "; it must be a whole number, up to 2^53");
    return std::nullopt;
  }
  // Only these keys get the warning, because some classes accept a number with
  // a point for other keys. A key may be read twice, so the warning is added
  // only if it is new.
  constexpr absl::string_view kIntegers[] = {
      "head_dim", "hidden_size", "num_attention_heads", "num_hidden_layers"};
  if (At(key).is_number_float() &&
      std::count(std::begin(kIntegers), std::end(kIntegers), key) > 0) {
    const std::string warning =
        absl::StrCat(Path(key), " is ", NumberText(*number),
                     ", written with a point; transformers since 5.0 refuses "
                     "such a file");
    std::vector<std::string>& told = report_->warnings;
    if (std::count(told.begin(), told.end(), warning) == 0) {
      told.push_back(warning);
    }
  }
  return static_cast<std::int64_t>(*number);
}

std::optional<bool> JsonObject::Flag(absl::string_view key) const {
  const auto* value = ReadTyped(key, &json::is_boolean, "true or false");
  if (value == nullptr) return std::nullopt;
  return value->get<bool>();
}

std::optional<std::string> JsonObject::Text(absl::string_view key) const {
  const auto* value = ReadTyped(key, &json::is_string, "a string");
  if (value == nullptr) return std::nullopt;
  return value->get<std::string>();
}

std::vector<double> JsonObject::Numbers(absl::string_view key) const {
  constexpr absl::string_view kWanted = "an array of numbers";
  const auto* value = ReadTyped(key, &json::is_array, kWanted);
  std::vector<double> numbers;
  if (value == nullptr) return numbers;
  for (const json& element : *value) {
    if (!element.is_number()) {
      Fail(key, "has an element of type ", element.type_name(), ", ",
           Shortened(element), "; it must be ", kWanted);
      return {};
    }
    numbers.push_back(element.get<double>());
  }
  return numbers;
}

JsonObject JsonObject::Object(absl::string_view key) const {
  const auto* value = ReadTyped(key, &json::is_object, "an object");
  return JsonObject(value, Path(key), report_, given_);
}

absl::string_view JsonObject::FirstOf(absl::string_view keys) const {
  for (const absl::string_view key : absl::StrSplit(keys, ' ')) {
    if (Has(key)) return key;
  }
  return {};
}

std::optional<std::int64_t> JsonObject::FirstInteger(
    absl::string_view keys) const {
  const absl::string_view key = FirstOf(keys);
  return key.empty() ? std::nullopt : Integer(key);
}

double JsonObject::RequiredNumber(absl::string_view key,
                                  absl::string_view why) const {
  const std::optional<double> number = Number(key);
  if (!number) Fail(key, "is missing; ", why);
  return number.value_or(0);
}

std::vector<std::string> JsonObject::Keys() const {
  std::vector<std::string> keys;
  if (json_ == nullptr) return keys;
  for (const auto& [key, value] : json_->items()) keys.push_back(key);
  return keys;
}

json JsonObject::Copy() const {
  return json_ == nullptr ? json::object() : *json_;
}

bool JsonObject::WasRead(absl::string_view key) const {
  return read_->count(std::string(key)) > 0;
}

}  // namespace posenc::core::interpretation
