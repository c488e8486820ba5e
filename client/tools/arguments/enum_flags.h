// Flags whose values are names of an enum of the contract, in lower case and
// without their common prefix: DTYPE_BFLOAT16 is "bfloat16". The unspecified
// value has no name.

#pragma once

#include <functional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
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

// Makes a validator that refuses texts that are not names of the enum.
CLI::Validator EnumValidator(const google::protobuf::EnumDescriptor& type);

// Adds a flag that sets a value of the enum. --help shows `default_value` as
// the default of the flag, unless `default_value` is the unspecified value.
CLI::Option* AddEnumFlag(CLI::App* app, const std::string& name,
                         const google::protobuf::EnumDescriptor& type,
                         int default_value, std::function<void(int)> set,
                         const std::string& help);

template <typename Enum>
CLI::Option* AddEnumFlag(CLI::App* app, const std::string& name, Enum* value,
                         const std::string& help) {
  return AddEnumFlag(
      app, name, *google::protobuf::GetEnumDescriptor<Enum>(), *value,
      [value](int number) { *value = static_cast<Enum>(number); }, help);
}

}  // namespace posenc::cli
