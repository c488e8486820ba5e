#include "client/tools/arguments/enum_flags.h"

#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "client/tools/files/status.h"

namespace posenc::cli {
namespace {

using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;

// Removes the common prefix of the values' names, which is the text before
// "UNSPECIFIED" in the first name.
std::string NameOf(const EnumValueDescriptor& value) {
  const absl::string_view prefix =
      absl::StripSuffix(value.type()->value(0)->name(), "UNSPECIFIED");
  return absl::AsciiStrToLower(absl::StripPrefix(value.name(), prefix));
}

// Returns the value with this name; null if there is none.
const EnumValueDescriptor* Find(const EnumDescriptor& type,
                                const std::string& name) {
  for (int i = 1; i < type.value_count(); ++i) {
    if (NameOf(*type.value(i)) == absl::AsciiStrToLower(name)) {
      return type.value(i);
    }
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<int> ParseEnum(const EnumDescriptor& type,
                              const std::string& flag,
                              const std::string& text) {
  const EnumValueDescriptor* const value = Find(type, text);
  if (value != nullptr) return value->number();
  return UsageError(absl::StrCat(flag, ": ", EnumFault(type, text)));
}

std::string EnumText(const EnumDescriptor& type, int value) {
  const EnumValueDescriptor* const found = type.FindValueByNumber(value);
  return found == nullptr ? absl::StrCat(value) : NameOf(*found);
}

std::string EnumFault(const EnumDescriptor& type, const std::string& text) {
  if (Find(type, text) != nullptr) return "";
  std::vector<std::string> names;
  for (int i = 1; i < type.value_count(); ++i) {
    names.push_back(NameOf(*type.value(i)));
  }
  return absl::StrCat("'", text, "' is not one of ",
                      absl::StrJoin(names, ", "));
}

void AddEnumFlag(CLI::App* app, const std::string& name,
                 const EnumDescriptor& type, int default_value,
                 std::function<void(int)> set, const std::string& help,
                 flags::FlagRules rules) {
  // CLI11 checks the text before it sets the value.
  rules.fault = [&type](const std::string& text) {
    return EnumFault(type, text);
  };
  flags::AddFlag(
      app, name,
      [&type, set = std::move(set)](const std::string& text) {
        set(Find(type, text)->number());
      },
      "NAME", help, rules);
  if (default_value != 0) {
    flags::ShowDefault(app, name, EnumText(type, default_value));
  }
}

}  // namespace posenc::cli
