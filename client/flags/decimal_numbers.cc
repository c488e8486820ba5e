#include "client/flags/decimal_numbers.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace posenc::flags {
namespace {

// Returns true if flags of posenc and posenc-load with this type take whole
// numbers.
bool IsWhole(const std::string& type) {
  static constexpr const char* kNames[] = {"N", "P", "DIM", "HEADS",
                                           "MAX_POSITION"};
  return std::find(std::begin(kNames), std::end(kNames), type) !=
         std::end(kNames);
}

// Returns what is wrong with the number; empty if nothing is.
std::string Fault(const std::string& text) {
  absl::string_view digits = text;
  if (!absl::ConsumePrefix(&digits, "-")) absl::ConsumePrefix(&digits, "+");
  if (digits.empty() ||
      digits.find_first_not_of("0123456789") != absl::string_view::npos) {
    return text + ": no whole decimal number";
  }
  if (digits.size() > 1 && digits[0] == '0') {
    return text + ": begins with a zero; leave it out";
  }
  std::int64_t number;
  if (!absl::SimpleAtoi(text, &number)) {
    return text + ": more than 2^63 - 1, the limit of 64 bits";
  }
  return "";
}

}  // namespace

void WantDecimalNumbers(CLI::App* app) {
  for (CLI::Option* option :
       app->get_options([](CLI::Option*) { return true; })) {
    const std::string type = option->get_type_name();
    if (IsWhole(type.substr(0, type.find(':')))) {
      option->check(CLI::Validator(Fault, ""));
    }
  }
  for (CLI::App* command :
       app->get_subcommands([](CLI::App*) { return true; })) {
    WantDecimalNumbers(command);
  }
}

}  // namespace posenc::flags
