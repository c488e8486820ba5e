// Flags whose values are names of an enum of the contract: its own in lower
// case, without what all of them begin with. DTYPE_BFLOAT16 is "bfloat16". The
// unspecified value has no name.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/generated_enum_reflection.h"

namespace posenc::cli {

std::vector<std::string> EnumNames(
    const google::protobuf::EnumDescriptor& type);

// The number of the value that has this name; exit code 2, naming `flag`, if
// there is none.
absl::StatusOr<int> ParseEnum(const google::protobuf::EnumDescriptor& type,
                              const std::string& flag, const std::string& text);

std::string EnumText(const google::protobuf::EnumDescriptor& type, int value);

template <typename Enum>
std::string EnumText(Enum value) {
  return EnumText(*google::protobuf::GetEnumDescriptor<Enum>(), value);
}

// Refuses texts that are no name of the enum.
CLI::Validator EnumValidator(const google::protobuf::EnumDescriptor& type);

// The names that an option takes if it has such a validator first.
std::vector<std::string> EnumValues(CLI::Option* option);

// Adds a flag that sets a value of the enum. `usual` is what --help shows as
// its default, unless that is the unspecified value.
CLI::Option* AddEnumFlag(CLI::App* app, const std::string& name,
                         const google::protobuf::EnumDescriptor& type,
                         int usual, std::function<void(int)> set,
                         const std::string& help);

template <typename Enum>
CLI::Option* AddEnumFlag(CLI::App* app, const std::string& name, Enum* value,
                         const std::string& help) {
  return AddEnumFlag(
      app, name, *google::protobuf::GetEnumDescriptor<Enum>(), *value,
      [value](int number) { *value = static_cast<Enum>(number); }, help);
}

}  // namespace posenc::cli
