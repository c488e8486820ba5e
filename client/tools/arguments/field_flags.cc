#include "client/tools/arguments/field_flags.h"

#include <algorithm>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/tools/arguments/enum_flags.h"
#include "client/tools/arguments/options.h"
#include "client/tools/files/status.h"
#include "client/tools/files/tensor_file.h"
#include "google/protobuf/descriptor.h"

namespace posenc::cli {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Returns the field of the row; if the row has two fields, the first field.
const FieldDescriptor* FieldOf(const Descriptor* type, const FieldFlag& row) {
  const FieldDescriptor* field = nullptr;
  const absl::string_view paths = row.field;
  for (const absl::string_view step :
       absl::StrSplit(paths.substr(0, paths.find(' ')), '.')) {
    field = type->FindFieldByName(std::string(step));
    type = field->message_type();
  }
  return field;
}

absl::Status AddNumbers(const FieldFlag& row, const std::string& name,
                        const std::string& text, const FieldDescriptor* field,
                        Message* message) {
  const Reflection& reflection = *message->GetReflection();
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
    ASSIGN_OR_RETURN(const auto numbers, ParseNumbers(name, text));
    for (const double number : numbers) {
      reflection.AddDouble(message, field, number);
    }
    return absl::OkStatus();
  }
  std::vector<std::int64_t> numbers;
  if (absl::string_view(row.type) == "EXTENTS") {
    ASSIGN_OR_RETURN(const auto extents, ParseExtents(name, text));
    numbers.assign(extents.begin(), extents.end());
  } else {
    ASSIGN_OR_RETURN(numbers, ParseIntegers(name, text));
  }
  for (const std::int64_t number : numbers) {
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT32) {
      reflection.AddInt32(message, field, static_cast<std::int32_t>(number));
    } else {
      reflection.AddInt64(message, field, number);
    }
  }
  return absl::OkStatus();
}

// Reads a tensor, or all tensors of a message, from a file.
absl::Status ReadFile(const std::string& name, const std::string& path,
                      Message* message) {
  const Descriptor* const tensor = v1::Tensor::descriptor();
  if (message->GetDescriptor() == tensor) {
    return ReadTensor(name, path, static_cast<v1::Tensor*>(message));
  }
  std::vector<std::pair<std::string, v1::Tensor*>> targets;
  for (int i = 0; i < message->GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* const field = message->GetDescriptor()->field(i);
    if (field->message_type() != tensor) continue;
    targets.emplace_back(
        field->name(),
        static_cast<v1::Tensor*>(
            message->GetReflection()->MutableMessage(message, field)));
  }
  return ReadTensors(name, path, targets);
}

}  // namespace

// Returns the default value of the flag, in the type into which CLI11 parses
// the flag. Lists, names and files are strings.
FieldFlags::Value FieldFlags::ValueOf(const FieldFlag& row) const {
  const std::string default_value =
      row.default_value == nullptr ? "" : row.default_value;
  std::int32_t narrow = 0;
  std::int64_t wide = 0;
  if (row.type == nullptr) return false;
  if (row.field == nullptr) return default_value;
  const FieldDescriptor* const field = FieldOf(type_, row);
  if (field->is_repeated()) return default_value;
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return absl::SimpleAtoi(default_value, &narrow) ? narrow : 0;
    case FieldDescriptor::CPPTYPE_INT64:
      return absl::SimpleAtoi(default_value, &wide) ? wide : std::int64_t{0};
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return 0.0;
    default:
      return default_value;
  }
}

bool FieldFlags::Flag::given() const {
  const bool* const on = std::get_if<bool>(&value);
  return on != nullptr ? *on : option->count() > 0;
}

void FieldFlags::Add(CLI::App* app, const std::string& group,
                     absl::Span<const FieldFlag> rows,
                     const std::string& prefix) {
  prefix_ = prefix;
  for (const FieldFlag& row : rows) {
    Flag& added = flags_.emplace_back();
    added.row = row;
    added.name = absl::StrCat("--", prefix, row.name + 2);
    added.value = ValueOf(row);
    flags::FlagRules rules;
    rules.show_default = row.default_value != nullptr;
    rules.group = group;
    if (row.field != nullptr && row.type != nullptr) {
      const auto* const names = FieldOf(type_, row)->enum_type();
      if (names != nullptr) {
        rules.fault = [names](const std::string& text) {
          return EnumFault(*names, text);
        };
      }
    }
    added.option = std::visit(
        [&](auto& value) {
          return AddFlag(app, added.name, &value,
                         row.type == nullptr ? "" : row.type, row.help, rules);
        },
        added.value);
    if (row.of == nullptr) {
      for (const Flag& other : flags_) {
        if (other.row.of != nullptr || &other == &added) continue;
        added.option->excludes(other.option);
      }
    } else if (*row.of == '\0') {
      added.option->required(row.required);
    } else if (!absl::StrContains(row.of, " ")) {
      CLI::Option* const kind = Find(row.of).option;
      added.option->needs(kind);
      if (row.required) kind->needs(added.option);
    }
  }
}

const FieldFlags::Flag& FieldFlags::Find(absl::string_view name) const {
  const std::string full = absl::StrCat("--", prefix_, name.substr(2));
  return *std::find_if(flags_.begin(), flags_.end(),
                       [&](const Flag& flag) { return flag.name == full; });
}

bool FieldFlags::Given(absl::string_view name) const {
  return Find(name).given();
}

const std::string& FieldFlags::Text(absl::string_view name) const {
  return std::get<std::string>(Find(name).value);
}

std::vector<std::string> FieldFlags::Texts() const {
  std::vector<std::string> texts;
  for (const Flag& flag : flags_) {
    if (!flag.given()) continue;
    texts.push_back(std::visit(
        [&](const auto& value) {
          return absl::StrCat(flag.row.name + 2, " ", value);
        },
        flag.value));
  }
  return texts;
}

bool FieldFlags::Empty() const {
  return std::none_of(flags_.begin(), flags_.end(), [](const Flag& flag) {
    return flag.row.of == nullptr && flag.given();
  });
}

absl::Status FieldFlags::Set(const Flag& flag, absl::string_view path,
                             Message* message) {
  const std::vector<std::string> steps = absl::StrSplit(path, '.');
  const FieldDescriptor* field = nullptr;
  for (const std::string& step : steps) {
    if (field != nullptr) {
      message = message->GetReflection()->MutableMessage(message, field);
    }
    field = message->GetDescriptor()->FindFieldByName(step);
  }
  const Reflection& reflection = *message->GetReflection();
  const std::string* const text = std::get_if<std::string>(&flag.value);
  if (field->is_repeated()) {
    return AddNumbers(flag.row, flag.name, *text, field, message);
  }
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE:
      message = reflection.MutableMessage(message, field);
      return text == nullptr ? absl::OkStatus()
                             : ReadFile(flag.name, *text, message);
    case FieldDescriptor::CPPTYPE_ENUM: {
      ASSIGN_OR_RETURN(const int value,
                       ParseEnum(*field->enum_type(), flag.name, *text));
      reflection.SetEnumValue(message, field, value);
      break;
    }
    case FieldDescriptor::CPPTYPE_BOOL:
      reflection.SetBool(message, field, true);
      break;
    case FieldDescriptor::CPPTYPE_STRING:
      reflection.SetString(message, field, *text);
      break;
    case FieldDescriptor::CPPTYPE_INT32:
      reflection.SetInt32(message, field, std::get<std::int32_t>(flag.value));
      break;
    case FieldDescriptor::CPPTYPE_INT64:
      reflection.SetInt64(message, field, std::get<std::int64_t>(flag.value));
      break;
    default:
      reflection.SetDouble(message, field, std::get<double>(flag.value));
  }
  return absl::OkStatus();
}

absl::Status FieldFlags::Read(Message* message) const {
  std::vector<std::string> kinds;
  for (const Flag& flag : flags_) {
    if (flag.row.of == nullptr) kinds.push_back(flag.name);
    if (flag.row.field == nullptr) continue;
    if (!flag.given() && flag.row.default_value == nullptr) continue;
    std::vector<absl::string_view> paths = absl::StrSplit(flag.row.field, ' ');
    if (paths.size() > 1) {
      const std::vector<std::string> of = absl::StrSplit(flag.row.of, ' ');
      const auto kind = std::find_if(
          of.begin(), of.end(), [&](const auto& name) { return Given(name); });
      if (kind == of.end()) {
        return UsageError(absl::StrCat(flag.name, ": belongs to ",
                                       absl::StrJoin(of, " and ")));
      }
      paths[0] = paths[kind - of.begin()];
    }
    RETURN_IF_ERROR(Set(flag, paths[0], message));
  }
  if (kinds.empty() || !Empty()) return absl::OkStatus();
  const std::string last = kinds.back();
  kinds.pop_back();
  return UsageError(absl::StrCat("one of ", absl::StrJoin(kinds, ", "), " and ",
                                 last, " is required"));
}

}  // namespace posenc::cli
