// Flags whose values are names of an enum of the contract, in lower case and
// without their common prefix: DTYPE_BFLOAT16 is "bfloat16". The unspecified
// value has no name.

#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "client/tools/flags/command_line.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/generated_enum_reflection.h"

namespace posenc::cli {

// Returns the number of the value with this name. If no value has this name,
// returns an error with exit code 2 that names `flag`.
absl::StatusOr<int> ParseEnum(const google::protobuf::EnumDescriptor& type,
                              const std::string& flag, const std::string& text);

std::string EnumText(const google::protobuf::EnumDescriptor& type, int value);

template <typename Enum>
std::string EnumText(Enum value) {
  return EnumText(*google::protobuf::GetEnumDescriptor<Enum>(), value);
}

// Returns what is wrong with a text that is no name of the enum; an empty text
// for other texts.
std::string EnumFault(const google::protobuf::EnumDescriptor& type,
                      const std::string& text);

// Adds a flag that sets a value of the enum. --help shows `default_value` as
// the default of the flag, unless `default_value` is the unspecified value.
void AddEnumFlag(CLI::App* app, const std::string& name,
                 const google::protobuf::EnumDescriptor& type,
                 int default_value, std::function<void(int)> set,
                 const std::string& help, flags::FlagRules rules);

template <typename Enum>
void AddEnumFlag(CLI::App* app, const std::string& name, Enum* value,
                 const std::string& help, const flags::FlagRules& rules = {}) {
  AddEnumFlag(
      app, name, *google::protobuf::GetEnumDescriptor<Enum>(), *value,
      [value](int number) { *value = static_cast<Enum>(number); }, help, rules);
}

}  // namespace posenc::cli
