#include "client/tools/files/misspelt.h"

#include <algorithm>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "core/base/text.h"

namespace posenc::cli {
namespace {

std::vector<std::string> FlagsOf(const CLI::App& app) {
  std::vector<std::string> flags;
  for (const CLI::Option* const option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      flags.push_back("--" + name);
    }
  }
  return flags;
}

bool Contains(const std::vector<std::string>& words, absl::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::string Ask(const std::string& nearest) {
  return nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?");
}

std::string NoCommand(const CLI::App& app, absl::string_view word) {
  std::vector<std::string> commands;
  for (const CLI::App* const command :
       app.get_subcommands([](const CLI::App*) { return true; })) {
    commands.push_back(command->get_name());
  }
  const std::string nearest = NearestWord(word, commands);
  return absl::StrCat(word, ": is no command",
                      nearest.empty() ? "; see `posenc --help`" : Ask(nearest));
}

// Fields of requests, and the prefix of the flags for these fields.
constexpr std::pair<absl::string_view, absl::string_view> kPrefixes[] = {
    {"compare_with", "compare-"},
    {"new_rope", "new-"},
    {"new_positions", "new-"},
};

}  // namespace

std::string NearestWord(absl::string_view word,
                        const std::vector<std::string>& candidates) {
  // Arguments may be megabytes long; names are short.
  constexpr std::size_t kLongest = 64;
  if (word.size() > kLongest) return "";
  std::string nearest;
  int least = std::max<int>(1, static_cast<int>(word.size()) / 3) + 1;
  for (const std::string& candidate : candidates) {
    const int distance = core::EditDistance(word, candidate);
    if (distance < least) {
      least = distance;
      nearest = candidate;
    }
  }
  if (!nearest.empty()) return nearest;
  std::vector<std::string> begun;
  for (const std::string& candidate : candidates) {
    if (absl::StartsWith(candidate, word)) begun.push_back(candidate);
  }
  return begun.size() == 1 ? begun[0] : "";
}

std::string FindMisspelt(const CLI::App& app) {
  const std::vector<CLI::App*> parsed = app.get_subcommands();
  for (const std::string& word : app.remaining(/*recurse=*/true)) {
    if (word == "--") break;
    if (absl::StartsWith(word, "--")) {
      const std::string flag = word.substr(0, word.find('='));
      std::vector<std::string> flags = FlagsOf(app);
      if (!parsed.empty()) {
        const std::vector<std::string> own = FlagsOf(*parsed[0]);
        flags.insert(flags.begin(), own.begin(), own.end());
      }
      return absl::StrCat(
          flag, ": is no flag of `posenc",
          parsed.empty() ? "" : absl::StrCat(" ", parsed[0]->get_name()), "`",
          Ask(NearestWord(flag, flags)));
    }
    if (parsed.empty() && !absl::StartsWith(word, "-")) {
      return NoCommand(app, word);
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
  const std::vector<std::string> flags = FlagsOf(command);
  // Searches the innermost field that has a flag: the flag of
  // "rope.spec.yarn.factor" is --spec.
  std::vector<std::string> fields = absl::StrSplit(path, '.');
  for (; !fields.empty(); fields.pop_back()) {
    std::string field = fields.back().substr(0, fields.back().find('['));
    if (field == "config_json") field = "config";
    if (field == "sequence_length") field = "length";
    if (field == "old_positions") field = "start";
    const std::string flag =
        absl::StrCat("--", prefix, absl::StrReplaceAll(field, {{"_", "-"}}));
    if (Contains(flags, flag)) return flag;
  }
  return "";
}

}  // namespace posenc::cli
