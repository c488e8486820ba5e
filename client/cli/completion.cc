// `posenc completion SHELL`: a script with which a shell asks this program for
// completions. So completions always match the program.
//
//   the shell                               posenc
//   posenc __complete apply --layout b -->  the commands and flags of CLI11
//                                      <--  "bshd\n" "bhsd\n"

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cli/commands.h"
#include "client/cli/enum_flags.h"
#include "core/interpretation/presets.h"
#include "core/interpretation/reading_rules.h"

namespace posenc::cli {
namespace {

// The line that asks the shell to complete names of files.
constexpr char kFiles[] = ":files";

// bash treats '=' as a word of its own.
constexpr char kBash[] = R"(# bash completion for posenc
_posenc() {
  local lines current=${COMP_WORDS[COMP_CWORD]}
  [[ $current == '=' ]] && current=''
  mapfile -t lines < <("${COMP_WORDS[0]}" __complete \
    "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  if [[ ${lines[0]} == :files ]]; then
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
  else
    COMPREPLY=("${lines[@]%%$'\t'*}")
  fi
}
complete -F _posenc posenc
)";
constexpr char kZsh[] = R"(#compdef posenc
_posenc() {
  local -a lines
  lines=("${(@f)$("${words[1]}" __complete "${(@)words[2,CURRENT]}" \
    2>/dev/null)}")
  if [[ ${lines[1]} == :files ]]; then
    compset -P '--*='
    _files
  elif [[ -n ${lines[1]} ]]; then
    lines=("${(@)lines//:/\\:}")
    lines=("${(@)lines/$'\t'/:}")
    _describe posenc lines
  fi
}
if [[ ${funcstack[1]} == _posenc ]]; then
  _posenc "$@"
else
  compdef _posenc posenc
fi
)";
constexpr char kFish[] = R"(# fish completion for posenc
function __posenc_complete
  set -l words (commandline -opc)
  set -l current (commandline -ct)
  set -l program $words[1]
  set -e words[1]
  set -l lines ($program __complete $words "$current" 2>/dev/null)
  if test "$lines[1]" = :files
    set -l flag (string match -r -- '^--[^=]*=' "$current")
    printf "$flag%s\n" (__fish_complete_path \
      (string replace -r -- '^--[^=]*=' '' "$current"))
  else
    printf '%s\n' $lines
  end
end
complete -c posenc -f -a '(__posenc_complete)'
)";

bool TakesValue(const CLI::Option* option) {
  return option != nullptr && option->get_items_expected_max() > 0;
}

std::vector<CLI::App*> CommandsOf(CLI::App* app) {
  return app->get_subcommands([](CLI::App*) { return true; });
}

// Returns the option of a flag, of the command (may be null) or of the program.
CLI::Option* FindOption(CLI::App* app, CLI::App* command,
                        const std::string& flag) {
  CLI::Option* const own =
      command == nullptr ? nullptr : command->get_option_no_throw(flag);
  return own != nullptr ? own : app->get_option_no_throw(flag);
}

// Returns the known names of an option's values.
std::vector<std::string> WordsOf(CLI::Option* option) {
  std::vector<std::string> words = EnumValues(option);
  if (!words.empty()) return words;
  // CLI11 puts the values of a CLI::IsMember into the type's name:
  // "TEXT:{q,k}".
  const std::string type = option->get_type_name();
  const std::size_t open = type.find('{');
  if (open != std::string::npos && type.back() == '}') {
    return absl::StrSplit(type.substr(open + 1, type.size() - open - 2), ',');
  }
  const std::string name = option->get_name();
  if (absl::EndsWith(name, "-preset")) {  // also of a second encoding
    for (const core::interpretation::Preset& preset :
         core::interpretation::Presets()) {
      words.emplace_back(preset.name);
    }
  } else if (name == "--reader") {
    for (const core::interpretation::Reader& reader :
         core::interpretation::Readers()) {
      words.emplace_back(reader.id);
    }
  } else if (name == "--fail-on") {
    words = {"error", "warning", "note", "none"};
  } else if (name == "FIGURE") {  // its description lists the figures
    words = absl::StrSplit(option->get_description(), ", ");
  }
  return words;
}

// Possible completions: words with their meanings, or files.
struct Candidates {
  std::vector<std::pair<std::string, std::string>> words;
  bool files = false;

  void AddFlagsOf(const CLI::App& app) {
    for (const CLI::Option* const option : app.get_options()) {
      for (const std::string& name : option->get_lnames()) {
        words.emplace_back("--" + name, option->get_description());
      }
    }
  }
  // `before` is the prefix of each word: "--layout=", if that is one word.
  void AddValuesOf(CLI::Option* option, const std::string& before) {
    for (const std::string& word : WordsOf(option)) {
      words.emplace_back(before + word, "");
    }
    const bool is_argument = option->get_lnames().empty();
    files = words.empty() && (is_argument || option->get_type_name() == "FILE");
  }
};

// Returns the candidates for the last of the words.
Candidates CandidatesFor(CLI::App* app, std::vector<std::string> words) {
  const std::string current = words.back();
  words.pop_back();
  CLI::App* command = nullptr;
  CLI::Option* waiting = nullptr;  // for its value
  for (const std::string& word : words) {
    if (word == "=") continue;
    if (waiting != nullptr) {
      waiting = nullptr;
    } else if (absl::StartsWith(word, "-")) {
      CLI::Option* const option = FindOption(app, command, word);
      if (TakesValue(option)) waiting = option;
    } else if (command == nullptr) {
      for (CLI::App* const each : CommandsOf(app)) {
        if (each->get_name() == word) command = each;
      }
    }
  }
  Candidates candidates;
  const std::size_t sign = current.find('=');
  if (waiting != nullptr) {
    candidates.AddValuesOf(waiting, "");
  } else if (absl::StartsWith(current, "-") && sign != std::string::npos) {
    CLI::Option* const option =
        FindOption(app, command, current.substr(0, sign));
    if (TakesValue(option)) {
      candidates.AddValuesOf(option, current.substr(0, sign + 1));
    }
  } else if (absl::StartsWith(current, "-")) {
    if (command != nullptr) candidates.AddFlagsOf(*command);
    candidates.AddFlagsOf(*app);
  } else if (command == nullptr) {
    for (const CLI::App* const each : CommandsOf(app)) {
      candidates.words.emplace_back(each->get_name(), each->get_description());
    }
  } else {
    for (CLI::Option* const option :
         command->get_options([](CLI::Option*) { return true; })) {
      if (option->get_lnames().empty() && option->get_snames().empty()) {
        candidates.AddValuesOf(option, "");
      }
    }
    if (candidates.words.empty() && !candidates.files) {
      candidates.AddFlagsOf(*command);
      candidates.AddFlagsOf(*app);
    }
  }
  return candidates;
}

}  // namespace

void PrintCandidates(CLI::App* app, const std::vector<std::string>& words) {
  if (words.empty()) return;
  const std::string begun = words.back() == "=" ? "" : words.back();
  const Candidates candidates = CandidatesFor(app, words);
  if (candidates.files) std::printf("%s\n", kFiles);
  for (const auto& [word, meaning] : candidates.words) {
    if (!absl::StartsWith(word, begun)) continue;
    const std::string told = meaning.empty() ? "" : absl::StrCat("\t", meaning);
    std::printf("%s%s\n", word.c_str(), told.c_str());
  }
}

Command AddCompletion(CLI::App* app, const GlobalFlags* /*globals*/) {
  const auto shell = std::make_shared<std::string>();
  app->add_option("SHELL", *shell, "bash, zsh or fish")
      ->check(CLI::IsMember({"bash", "zsh", "fish"}))
      ->required();
  return [shell] {
    std::fputs(*shell == "bash"  ? kBash
               : *shell == "zsh" ? kZsh
                                 : kFish,
               stdout);
    return absl::OkStatus();
  };
}

}  // namespace posenc::cli
