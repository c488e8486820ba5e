#include "client/tools/flags/command_line.h"

#include <cstdlib>
#include <memory>
#include <type_traits>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "posenc/compat.h"

namespace posenc::flags {
namespace {

// Returns the type's name without the allowed values, which CLI11 adds after a
// colon.
std::string TypeOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  return type.substr(0, type.find(':'));
}

// Returns what is wrong with a whole number; empty if it is valid. CLI11 would
// read 010 as 8 and 0x10 as 16, and replace a number that overflows by the
// nearest number that fits.
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

// True for the targets of flags whose value is a whole number.
template <typename Set>
constexpr bool kIsWhole =
    std::is_same_v<Set, std::int32_t*> || std::is_same_v<Set, std::int64_t*> ||
    std::is_same_v<Set, std::optional<std::int32_t>*> ||
    std::is_same_v<Set, std::optional<std::int64_t>*>;

// Footers stay unchanged, because CLI11 2.5 and later would reflow them, and
// lose the indentation of examples.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    std::string text;
    if (option->get_type_size() != 0) {
      absl::StrAppend(&text, " ", TypeOf(*option));
      if (!option->get_default_str().empty()) {
        absl::StrAppend(&text, "=", option->get_default_str());
      }
      const int most = option->get_expected_max();
      if (most > 1 && most != option->get_expected_min()) text += " ...";
    }
    if (option->get_required()) text += " (required)";
    return text;
  }

  std::string make_footer(const CLI::App* /*app*/) const override { return ""; }

  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    const std::string help = CLI::Formatter::make_help(app, name, mode);
    const std::string footer = app->get_footer();
    return footer.empty() || mode == CLI::AppFormatMode::Sub
               ? help
               : help + footer + "\n";
  }
};

}  // namespace

CLI::Option* AddFlag(CLI::App* app, const std::string& name, Target target,
                     const std::string& type, const std::string& help,
                     const FlagRules& rules) {
  CLI::Option* const option = std::visit(
      [&](auto& set) {
        using Set = std::decay_t<decltype(set)>;
        if constexpr (std::is_same_v<Set, bool*>) {
          return app->add_flag(name, *set, help);
        } else if constexpr (std::is_pointer_v<Set>) {
          CLI::Option* const added =
              app->add_option(name, *set, help)->type_name(type);
          if (kIsWhole<Set>) added->check(CLI::Validator(Fault, ""));
          return added;
        } else {
          return app->add_option_function<std::string>(name, set, help)
              ->type_name(type);
        }
      },
      target);
  option->required(rules.required);
  if (rules.show_default) option->capture_default_str();
  if (!rules.group.empty()) option->group(rules.group);
  if (rules.range) {
    option->check(CLI::Range(rules.range->first, rules.range->second));
  }
  if (rules.fault) option->check(CLI::Validator(rules.fault, ""));
  if (rules.one_value) option->allow_extra_args(false);
  if (rules.delimiter != '\0') option->delimiter(rules.delimiter);
  return option;
}

void ShowDefault(CLI::App* app, const std::string& name,
                 const std::string& value) {
  app->get_option(name)->default_str(value);
}

std::vector<std::string> GivenFlags(const CLI::App& app,
                                    const std::string& group) {
  std::vector<std::string> names;
  for (const CLI::Option* const option : app.get_options()) {
    if (option->get_group() != group || option->count() == 0) continue;
    names.push_back(option->get_name());
  }
  return names;
}

void FormatHelp(CLI::App* app) {
  app->formatter(std::make_shared<HelpFormatter>());
}

void SilenceGrpc() {
  if (std::getenv("GRPC_VERBOSITY") == nullptr) compat::SetLog(nullptr);
}

absl::Status CheckArguments(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const absl::string_view flag = argv[i];
    if (absl::StartsWith(flag, "--") && flag.find('=') == flag.size() - 1) {
      return absl::InvalidArgumentError(
          absl::StrCat(flag.substr(0, flag.size() - 1), ": '", flag,
                       "' has no value; leave the flag out, or give one"));
    }
  }
  return absl::OkStatus();
}

}  // namespace posenc::flags
