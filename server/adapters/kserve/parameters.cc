#include "server/adapters/kserve/parameters.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/numeric/int128.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/interpretation/json_object.h"
#include "google/protobuf/util/json_util.h"
#include "nlohmann/json.hpp"
#include "server/convert/unknown_fields.h"

namespace posenc::server {
namespace {

namespace pb = google::protobuf;
using inference::InferParameter;
using pb::FieldDescriptor;

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return core::FieldInvalid("", parts...);
}

// Returns the kind of the value, for example "int64_param", or "no value".
std::string KindOf(const InferParameter& value) {
  const FieldDescriptor* const kind =
      value.GetReflection()->GetOneofFieldDescriptor(
          value, InferParameter::descriptor()->oneof_decl(0));
  return kind == nullptr ? "no value" : std::string(kind->name());
}

// Returns the integer in a type with all values of int64 and uint64.
absl::int128 WholeOf(const InferParameter& value) {
  if (value.has_uint64_param()) return value.uint64_param();
  return value.int64_param();
}

// Returns whether a number's text has no blanks around it.
bool IsTight(absl::string_view text) {
  return !text.empty() && !absl::ascii_isspace(text.front()) &&
         !absl::ascii_isspace(text.back());
}

absl::Status SetEnum(const InferParameter& value, const FieldDescriptor& field,
                     pb::Message* message) {
  if (!value.has_string_param()) return WrongKind(value, "string_param");
  const pb::EnumDescriptor& type = *field.enum_type();
  // The values of an enum of the contract share a prefix, such as "LAYOUT_".
  const std::string prefix(
      absl::StripSuffix(type.value(0)->name(), "UNSPECIFIED"));
  const std::string& text = value.string_param();
  const pb::EnumValueDescriptor* named = type.FindValueByName(text);
  if (named == nullptr && absl::AsciiStrToLower(text) == text) {
    named = type.FindValueByName(prefix + absl::AsciiStrToUpper(text));
  }
  if (named == nullptr) {
    const std::string example(
        type.value(type.value_count() > 1 ? 1 : 0)->name());
    return Invalid("'", text, "' is no ", type.name(), "; such as ", example,
                   " or ",
                   absl::AsciiStrToLower(example.substr(prefix.size())));
  }
  message->GetReflection()->SetEnum(message, &field, named);
  return absl::OkStatus();
}

absl::Status SetBool(const InferParameter& value, const FieldDescriptor& field,
                     pb::Message* message) {
  const bool is_text = value.has_string_param();
  const std::string& text = value.string_param();
  if (!is_text && !value.has_bool_param()) {
    return WrongKind(value, "bool_param, or its text");
  }
  if (is_text && text != "true" && text != "false") {
    return Invalid("'", text, "'; must be true or false");
  }
  message->GetReflection()->SetBool(message, &field,
                                    value.bool_param() || text == "true");
  return absl::OkStatus();
}

absl::Status SetDouble(const InferParameter& value,
                       const FieldDescriptor& field, pb::Message* message) {
  const std::string& text = value.string_param();
  double number = value.double_param();
  if (IsInteger(value)) {
    number = static_cast<double>(WholeOf(value));
    if (static_cast<absl::int128>(number) != WholeOf(value)) {
      return Invalid("has no exact double; send double_param");
    }
  } else if (value.has_string_param()) {
    if (!IsTight(text) || !absl::SimpleAtod(text, &number)) {
      return Invalid("'", text, "'; must be a number");
    }
  } else if (!value.has_double_param()) {
    return WrongKind(value, "double_param or an integer, or its text");
  }
  message->GetReflection()->SetDouble(message, &field, number);
  return absl::OkStatus();
}

absl::Status SetWhole(const InferParameter& value, const FieldDescriptor& field,
                      pb::Message* message) {
  const bool is_text = value.has_string_param();
  const std::string& text = value.string_param();
  std::int64_t spelled = 0;
  if (!is_text && !IsInteger(value)) {
    return WrongKind(value, "int64_param or uint64_param, or its text");
  }
  if (is_text && !(IsTight(text) && absl::SimpleAtoi(text, &spelled))) {
    return Invalid("'", text, "'; must be a whole number of 64 bits");
  }
  const absl::int128 number = is_text ? spelled : WholeOf(value);
  const bool is_long = field.cpp_type() == FieldDescriptor::CPPTYPE_INT64;
  const absl::int128 limit = absl::int128(1) << (is_long ? 63 : 31);
  if (number < -limit || number >= limit) {
    return Invalid("does not fit ", is_long ? 64 : 32, " bits");
  }
  const auto fits = static_cast<std::int64_t>(number);
  const pb::Reflection& to = *message->GetReflection();
  if (is_long) {
    to.SetInt64(message, &field, fits);
  } else {
    to.SetInt32(message, &field, static_cast<std::int32_t>(fits));
  }
  return absl::OkStatus();
}

absl::Status SetScalar(const InferParameter& value,
                       const FieldDescriptor& field, pb::Message* message) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_ENUM:
      return SetEnum(value, field, message);
    case FieldDescriptor::CPPTYPE_STRING:
      if (!value.has_string_param()) return WrongKind(value, "string_param");
      message->GetReflection()->SetString(message, &field,
                                          value.string_param());
      return absl::OkStatus();
    case FieldDescriptor::CPPTYPE_BOOL:
      return SetBool(value, field, message);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return SetDouble(value, field, message);
    case FieldDescriptor::CPPTYPE_INT32:
    case FieldDescriptor::CPPTYPE_INT64:
      return SetWhole(value, field, message);
    default:  // the contract has no other types
      return WrongKind(value, "of another kind");
  }
}

// Limit for the nesting of JSON, the same as for a model's configuration.
constexpr int kMaxDepth = 64;
// Limit for the objects and lists in JSON. An object or list may have only two
// bytes of text, but becomes a message that takes many times more memory.
constexpr int kMostContainers = KnownFields::kMostElements;

// Returns a key that names the same field as another key of its object, such as
// "rotaryDim" and "rotary_dim", or "" if no object has two such keys.
std::string SpelledTwice(const nlohmann::json& value) {
  if (!value.is_structured()) return "";
  std::set<std::string> seen;
  for (const auto& [key, element] : value.items()) {
    std::string name = absl::AsciiStrToLower(key);
    name.erase(std::remove(name.begin(), name.end(), '_'), name.end());
    if (value.is_object() && !seen.insert(std::move(name)).second) return key;
    std::string within = SpelledTwice(element);
    if (!within.empty()) return within;
  }
  return "";
}

// Refuses invalid JSON and repeated keys. Protobuf's own parser accepts some
// invalid JSON, and uses the last of equal keys.
absl::Status CheckJson(absl::string_view json) {
  int containers = 0, depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (quoted && c == '\\') ++i;
    if (c == '"') quoted = !quoted;
    if (quoted) continue;
    if (c == '}' || c == ']') --depth;
    if (c != '{' && c != '[') continue;
    if (++containers > kMostContainers) {
      return Invalid("has over ", kMostContainers, " objects and arrays");
    }
    if (++depth > kMaxDepth) {
      return Invalid("is nested deeper than ", kMaxDepth);
    }
  }
  const core::interpretation::ParsedText read =
      core::interpretation::ParseText(json);
  if (!read.text.fault.empty()) return Invalid(read.text.fault);
  if (!read.text.twice.empty()) {
    return Invalid("has the key '", read.text.twice[0].path, "' twice");
  }
  const std::string twice = SpelledTwice(read.value);
  if (twice.empty()) return absl::OkStatus();
  return Invalid("has the field '", twice, "' twice, in two spellings");
}

absl::Status SetJson(const InferParameter& value, const FieldDescriptor& field,
                     pb::Message* message) {
  if (!value.has_string_param()) {
    return WrongKind(value, "string_param with its JSON");
  }
  const std::string& json = value.string_param();
  RETURN_IF_ERROR(CheckJson(json));
  const bool list = field.is_repeated();
  const absl::string_view text = absl::StripLeadingAsciiWhitespace(json);
  if (text.empty() || text[0] != (list ? '[' : '{')) {
    return Invalid(list ? "must be a list, '[...]'"
                        : "must be an object, '{...}'");
  }
  const std::unique_ptr<pb::Message> parsed(message->New());
  const auto status = pb::util::JsonStringToMessage(
      absl::StrCat("{\"", field.json_name(), "\":", json, "}"), parsed.get());
  if (!status.ok()) {
    return Invalid("is not the JSON of ", list ? "the list " : "",
                   list ? field.name() : field.message_type()->name(), ": ",
                   std::string(status.message()));
  }
  message->MergeFrom(*parsed);
  return absl::OkStatus();
}

// Returns a message or list as JSON, with the contract's names.
std::string TakeJson(const FieldDescriptor& field, pb::Message* message) {
  const std::unique_ptr<pb::Message> only(message->New());
  message->GetReflection()->SwapFields(message, only.get(), {&field});
  pb::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string text;
  if (!pb::util::MessageToJsonString(*only, &text, options).ok()) return "";
  // Removes the braces and the key around the value: {"spec":{...}}.
  text.pop_back();
  text.erase(0, absl::StrCat("{\"", field.name(), "\":").size());
  return text;
}

void Take(const FieldDescriptor& field, pb::Message* message,
          InferParameter* to) {
  const pb::Reflection& from = *message->GetReflection();
  switch (field.is_repeated() ? FieldDescriptor::CPPTYPE_MESSAGE
                              : field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return to->set_bool_param(from.GetBool(*message, &field));
    case FieldDescriptor::CPPTYPE_INT32:
      return to->set_int64_param(from.GetInt32(*message, &field));
    case FieldDescriptor::CPPTYPE_INT64:
      return to->set_int64_param(from.GetInt64(*message, &field));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return to->set_double_param(from.GetDouble(*message, &field));
    case FieldDescriptor::CPPTYPE_STRING:
      return to->set_string_param(from.GetString(*message, &field));
    default:
      return to->set_string_param(TakeJson(field, message));
  }
}

}  // namespace

absl::Status WrongKind(const InferParameter& value, absl::string_view wanted) {
  return Invalid("is ", KindOf(value), "; must be ", wanted);
}

bool IsInteger(const InferParameter& value) {
  return value.has_int64_param() || value.has_uint64_param();
}

absl::StatusOr<std::uint64_t> ReadCount(const InferParameter& value,
                                        absl::string_view unit) {
  if (!IsInteger(value)) {
    return WrongKind(value, absl::StrCat("int64_param or uint64_param", unit));
  }
  if (value.int64_param() < 0) {
    return Invalid(value.int64_param(), "; must not be negative");
  }
  return static_cast<std::uint64_t>(WholeOf(value));
}

absl::Status SetField(const InferParameter& value, const FieldDescriptor& field,
                      pb::Message* message) {
  const bool is_json = field.is_repeated() ||
                       field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
  return is_json ? SetJson(value, field, message)
                 : SetScalar(value, field, message);
}

void AddParameters(pb::Message* response, ParameterMap* parameters) {
  std::vector<const FieldDescriptor*> fields;
  response->GetReflection()->ListFields(*response, &fields);
  for (const FieldDescriptor* const field : fields) {
    Take(*field, response, &(*parameters)[field->name()]);
  }
}

}  // namespace posenc::server
