#include "client/tools/files/misspelt.h"

#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace posenc::cli {
namespace {

// Fields of requests, and the prefix of the flags for these fields.
constexpr std::pair<absl::string_view, absl::string_view> kPrefixes[] = {
    {"compare_with", "compare-"},
    {"new_rope", "new-"},
    {"new_positions", "new-"},
};

}  // namespace

std::string FindMisspelt(const CLI::App& app) {
  const std::vector<CLI::App*> parsed = app.get_subcommands();
  for (const std::string& word : app.remaining(/*recurse=*/true)) {
    if (word == "--") break;
    if (absl::StartsWith(word, "--")) {
      const std::string command =
          parsed.empty() ? "posenc" : "posenc " + parsed[0]->get_name();
      return absl::StrCat(word.substr(0, word.find('=')), ": is no flag of `",
                          command, "`; see `", command, " --help`");
    }
    if (parsed.empty() && !absl::StartsWith(word, "-")) {
      return absl::StrCat(word, ": is no command; see `posenc --help`");
    }
  }
  return parsed.empty() ? "no command is given; `posenc --help` lists them"
                        : "";
}

std::string FlagOfField(const CLI::App& command, absl::string_view path) {
  std::string prefix;
  for (const auto& [field, dashes] : kPrefixes) {
    if (absl::StrContains(path, field)) prefix = std::string(dashes);
  }
  // Searches for the innermost field that has a flag: the flag of
  // "rope.spec.yarn.factor" is --spec.
  std::vector<std::string> fields = absl::StrSplit(path, '.');
  for (; !fields.empty(); fields.pop_back()) {
    std::string field = fields.back().substr(0, fields.back().find('['));
    if (field == "config_json") field = "config";
    if (field == "sequence_length") field = "length";
    if (field == "old_positions") field = "start";
    const std::string flag =
        absl::StrCat("--", prefix, absl::StrReplaceAll(field, {{"_", "-"}}));
    if (command.get_option_no_throw(flag) != nullptr) return flag;
  }
  return "";
}

}  // namespace posenc::cli
