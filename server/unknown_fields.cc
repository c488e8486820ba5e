#include "server/unknown_fields.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/error.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/unknown_field_set.h"
#include "server/server.h"

namespace posenc::server {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// As deep as protobuf's own parser goes.
constexpr int kMaxDepth = 100;

std::string Join(absl::string_view path, absl::string_view name) {
  return path.empty() ? std::string(name) : absl::StrCat(path, ".", name);
}

absl::Status Unknown(absl::string_view path, absl::string_view what,
                     int number) {
  return core::MakeError(
      absl::StatusCode::kUnimplemented, core::ErrorReason::kFieldUnknown, path,
      absl::StrCat(what, " is not known to this server (version ", kVersion,
                   "); leave it out, or use a newer server"),
      {{"fieldNumber", absl::StrCat(number)}});
}

absl::Status CheckEnum(const FieldDescriptor& field, int value,
                       absl::string_view path) {
  if (field.enum_type()->FindValueByNumber(value) != nullptr) {
    return absl::OkStatus();
  }
  return Unknown(path, absl::StrCat("value ", value), field.number());
}

absl::Status Check(const Message& message, const std::string& path, int depth) {
  if (depth > kMaxDepth) {
    return core::FieldInvalid(
        path, absl::StrCat("nested deeper than ", kMaxDepth, " messages"));
  }
  const Reflection& reflection = *message.GetReflection();
  const google::protobuf::UnknownFieldSet& unknown =
      reflection.GetUnknownFields(message);
  if (!unknown.empty()) {
    const int number = unknown.field(0).number();
    return Unknown(path, absl::StrCat("field ", number), number);
  }
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const bool is_message =
        field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (!is_message && field->cpp_type() != FieldDescriptor::CPPTYPE_ENUM) {
      continue;
    }
    const std::string child = Join(path, field->name());
    const int count =
        field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      const std::string element =
          field->is_repeated() ? absl::StrCat(child, "[", i, "]") : child;
      absl::Status status;
      if (is_message) {
        status = Check(field->is_repeated()
                           ? reflection.GetRepeatedMessage(message, field, i)
                           : reflection.GetMessage(message, field),
                       element, depth + 1);
      } else {
        status =
            CheckEnum(*field,
                      field->is_repeated()
                          ? reflection.GetRepeatedEnumValue(message, field, i)
                          : reflection.GetEnumValue(message, field),
                      element);
      }
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

// Whether Check finds nothing. Nearly always: so that no call pays for paths.
bool IsKnown(const Message& message, int depth) {
  const Reflection& reflection = *message.GetReflection();
  if (depth > kMaxDepth || !reflection.GetUnknownFields(message).empty()) {
    return false;
  }
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  for (int f = 0; f < type.field_count(); ++f) {
    const FieldDescriptor* const field = type.field(f);
    const bool is_message =
        field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (!is_message && field->cpp_type() != FieldDescriptor::CPPTYPE_ENUM) {
      continue;
    }
    const auto known = [&](int value) {
      return field->enum_type()->FindValueByNumber(value) != nullptr;
    };
    if (field->is_repeated()) {
      const int count = reflection.FieldSize(message, field);
      for (int i = 0; i < count; ++i) {
        if (is_message
                ? !IsKnown(reflection.GetRepeatedMessage(message, field, i),
                           depth + 1)
                : !known(reflection.GetRepeatedEnumValue(message, field, i))) {
          return false;
        }
      }
    } else if (is_message) {
      if (reflection.HasField(message, field) &&
          !IsKnown(reflection.GetMessage(message, field), depth + 1)) {
        return false;
      }
    } else if (!known(reflection.GetEnumValue(message, field))) {
      return false;
    }
  }
  return true;
}

}  // namespace

absl::Status RefuseUnknown(const Message& message) {
  return IsKnown(message, 0) ? absl::OkStatus() : Check(message, "", 0);
}

}  // namespace posenc::server
