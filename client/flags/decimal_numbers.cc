#include "client/flags/decimal_numbers.h"

#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace posenc::flags {
namespace {

// What is wrong with the number; empty if nothing is.
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
  std::uint64_t large;
  if (!absl::SimpleAtoi(text, &number) && !absl::SimpleAtoi(text, &large)) {
    return text + ": more than 64 bits hold";
  }
  return "";
}

}  // namespace

void WantDecimalNumbers(CLI::App* app) {
  for (CLI::Option* option :
       app->get_options([](CLI::Option*) { return true; })) {
    const std::string type = option->get_type_name();
    if (type != "N" && !absl::StartsWith(type, "N:")) continue;
    option->check(CLI::Validator(Fault, ""));
  }
  for (CLI::App* command :
       app->get_subcommands([](CLI::App*) { return true; })) {
    WantDecimalNumbers(command);
  }
}

}  // namespace posenc::flags
