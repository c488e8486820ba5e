#include "server/kserve/scalar.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "absl/numeric/int128.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/error.h"

namespace posenc::server {
namespace {

namespace pb = google::protobuf;
using inference::InferParameter;
using pb::FieldDescriptor;

absl::Status WrongKind(const InferParameter& value, absl::string_view wanted) {
  return core::FieldInvalid(
      "", absl::StrCat("is ", KindOf(value), "; must be ", wanted));
}

// Numbers are written without blanks around them.
bool IsTight(absl::string_view text) {
  return !text.empty() && !absl::ascii_isspace(text.front()) &&
         !absl::ascii_isspace(text.back());
}

absl::StatusOr<bool> ReadBool(const InferParameter& value) {
  if (value.has_bool_param()) return value.bool_param();
  if (!value.has_string_param()) {
    return WrongKind(value, "bool_param, or its text");
  }
  if (value.string_param() == "true") return true;
  if (value.string_param() == "false") return false;
  return core::FieldInvalid(
      "", absl::StrCat("'", value.string_param(), "'; must be true or false"));
}

// As a number that holds both int64 and uint64.
absl::StatusOr<absl::int128> ReadInteger(const InferParameter& value) {
  if (value.has_int64_param()) return value.int64_param();
  if (value.has_uint64_param()) return value.uint64_param();
  if (!value.has_string_param()) {
    return WrongKind(value, "int64_param or uint64_param, or its text");
  }
  const std::string& text = value.string_param();
  std::int64_t number = 0;
  std::uint64_t large = 0;
  if (IsTight(text)) {
    if (absl::SimpleAtoi(text, &number)) return number;
    if (absl::SimpleAtoi(text, &large)) return large;
  }
  return core::FieldInvalid(
      "", absl::StrCat("'", text, "'; must be a whole number of 64 bits"));
}

template <typename T>
absl::StatusOr<T> ReadIntegerOf(const InferParameter& value) {
  const absl::StatusOr<absl::int128> number = ReadInteger(value);
  if (!number.ok()) return number.status();
  if (*number < std::numeric_limits<T>::min() ||
      *number > std::numeric_limits<T>::max()) {
    return core::FieldInvalid(
        "", absl::StrCat("does not fit ", sizeof(T) * 8, " bits"));
  }
  return static_cast<T>(*number);
}

absl::StatusOr<double> ReadDouble(const InferParameter& value) {
  if (value.has_double_param()) return value.double_param();
  if (value.has_string_param()) {
    const std::string& text = value.string_param();
    double number = 0;
    if (IsTight(text) && absl::SimpleAtod(text, &number)) return number;
    return core::FieldInvalid("",
                              absl::StrCat("'", text, "'; must be a number"));
  }
  if (!value.has_int64_param() && !value.has_uint64_param()) {
    return WrongKind(value, "double_param or an integer, or its text");
  }
  const absl::StatusOr<absl::int128> whole = ReadInteger(value);
  if (!whole.ok()) return whole.status();
  const auto number = static_cast<double>(*whole);
  if (static_cast<absl::int128>(number) != *whole) {
    return core::FieldInvalid("", "has no exact double; send double_param");
  }
  return number;
}

// "LAYOUT_" of LAYOUT_UNSPECIFIED, which all enums of the contract begin with.
std::string PrefixOf(const pb::EnumDescriptor& type) {
  absl::string_view name = type.value(0)->name();
  absl::ConsumeSuffix(&name, "UNSPECIFIED");
  return std::string(name);
}

absl::StatusOr<const pb::EnumValueDescriptor*> ReadEnum(
    const InferParameter& value, const pb::EnumDescriptor& type) {
  if (!value.has_string_param()) return WrongKind(value, "string_param");
  const std::string& text = value.string_param();
  if (const auto* const named = type.FindValueByName(text)) return named;
  if (absl::AsciiStrToLower(text) == text) {
    if (const auto* const named = type.FindValueByName(
            PrefixOf(type) + absl::AsciiStrToUpper(text))) {
      return named;
    }
  }
  const std::string example(type.value(type.value_count() > 1 ? 1 : 0)->name());
  return core::FieldInvalid(
      "", absl::StrCat(
              "'", text, "' is no ", type.name(), "; such as ", example, " or ",
              absl::AsciiStrToLower(example.substr(PrefixOf(type).size()))));
}

// Sets the field by `set` if the value could be read.
template <typename T, typename Set>
absl::Status SetIfRead(const absl::StatusOr<T>& value, const Set& set) {
  if (value.ok()) set(*value);
  return value.status();
}

}  // namespace

const char* KindOf(const InferParameter& value) {
  switch (value.parameter_choice_case()) {
    case InferParameter::kBoolParam:
      return "bool_param";
    case InferParameter::kInt64Param:
      return "int64_param";
    case InferParameter::kStringParam:
      return "string_param";
    case InferParameter::kDoubleParam:
      return "double_param";
    case InferParameter::kUint64Param:
      return "uint64_param";
    case InferParameter::PARAMETER_CHOICE_NOT_SET:
      break;
  }
  return "no value";
}

absl::Status SetScalar(const InferParameter& value,
                       const FieldDescriptor& field, pb::Message* message) {
  const pb::Reflection& to = *message->GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return SetIfRead(ReadBool(value),
                       [&](bool read) { to.SetBool(message, &field, read); });
    case FieldDescriptor::CPPTYPE_INT32:
      return SetIfRead(
          ReadIntegerOf<std::int32_t>(value),
          [&](std::int32_t read) { to.SetInt32(message, &field, read); });
    case FieldDescriptor::CPPTYPE_INT64:
      return SetIfRead(
          ReadIntegerOf<std::int64_t>(value),
          [&](std::int64_t read) { to.SetInt64(message, &field, read); });
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return SetIfRead(ReadDouble(value), [&](double read) {
        to.SetDouble(message, &field, read);
      });
    case FieldDescriptor::CPPTYPE_ENUM:
      return SetIfRead(ReadEnum(value, *field.enum_type()),
                       [&](const pb::EnumValueDescriptor* read) {
                         to.SetEnum(message, &field, read);
                       });
    case FieldDescriptor::CPPTYPE_STRING:
      if (!value.has_string_param()) return WrongKind(value, "string_param");
      to.SetString(message, &field, value.string_param());
      return absl::OkStatus();
    default:  // the contract has no others
      return WrongKind(value, "of another kind");
  }
}

}  // namespace posenc::server
