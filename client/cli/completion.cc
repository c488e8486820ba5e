// `posenc completion SHELL`: a script that completes commands, flags, and
// values as far as they are files or have names. It is made of the commands and
// flags that CLI11 knows, so that it cannot be out of date.

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/cli/commands.h"
#include "client/cli/connection.h"
#include "client/cli/enum_flags.h"
#include "core/interpretation/reading_rules.h"

namespace posenc::cli {
namespace {

// Flags whose values are names of an enum of the contract. A command in front
// of the flag is the only one where it is that enum.
struct EnumFlag {
  const char* flag;
  const google::protobuf::EnumDescriptor* (*descriptor)();
};
constexpr EnumFlag kEnumFlags[] = {
    {"table --layout", v1::TableLayout_descriptor},
    {"--layout", v1::Layout_descriptor},
    {"--profile", v1::Profile_descriptor},
    {"--part", v1::ModelPart_descriptor},
    {"--dtype", v1::Dtype_descriptor},
    {"--direction", v1::Direction_descriptor},
    {"--saturation", v1::Saturation_descriptor},
    {"--old-pairing", v1::Pairing_descriptor},
    {"--new-pairing", v1::Pairing_descriptor},
    {"--slice", v1::RotarySlice_descriptor},
    {"--combination", v1::Combination_descriptor},
    {"--order", v1::SinusoidalOrder_descriptor},
    {"--angles", v1::AnglePrecision_descriptor},
};

// What is completed after a flag: nothing, the shell's files, or words.
struct Flag {
  std::vector<std::string> names;  // "--q", "-h"
  std::string description;
  bool takes_value = false;
  bool is_file = false;
  std::vector<std::string> words;
};

struct CommandFlags {
  std::string name;  // empty: the program's own, which every command takes
  std::string description;
  std::vector<Flag> flags;
  bool takes_files = false;        // as arguments without a flag
  std::vector<std::string> words;  // likewise
};

// CLI11 tells the values of a CLI::IsMember in the type's name: "TEXT:{q,k}".
std::vector<std::string> MemberWords(const std::string& type) {
  const std::size_t open = type.find('{');
  if (open == std::string::npos || type.back() != '}') return {};
  return absl::StrSplit(type.substr(open + 1, type.size() - open - 2), ',');
}

std::vector<std::string> ReaderWords() {
  std::vector<std::string> words;
  for (const core::interpretation::Reader& reader :
       core::interpretation::Readers()) {
    words.emplace_back(reader.id);
  }
  return words;
}

std::vector<std::string> WordsOf(const std::string& command,
                                 const CLI::Option& option,
                                 const std::vector<std::string>& presets) {
  const std::vector<std::string> members = MemberWords(option.get_type_name());
  if (!members.empty()) return members;
  std::string name = option.get_name();
  for (const EnumFlag& each : kEnumFlags) {
    if (name == each.flag || absl::StrCat(command, " ", name) == each.flag) {
      return EnumNames(*each.descriptor());
    }
  }
  // Flags of a second encoding: --compare-profile is a --profile.
  for (const absl::string_view prefix : {"--compare-", "--new-"}) {
    if (absl::StartsWith(name, prefix)) name.replace(0, prefix.size(), "--");
  }
  if (name == "--preset") return presets;
  if (name == "--reader") return ReaderWords();
  if (name == "--fail-on") return {"error", "warning", "note", "none"};
  // Its description is the list of them.
  if (name == "FIGURE") return absl::StrSplit(option.get_description(), ", ");
  if (name == "--profile") return EnumNames(*v1::Profile_descriptor());
  if (name == "--part") return EnumNames(*v1::ModelPart_descriptor());
  return {};
}

CommandFlags Describe(const CLI::App& app, const std::string& name,
                      const std::vector<std::string>& presets) {
  CommandFlags command{name, app.get_description(), {}, false, {}};
  for (const CLI::Option* const option : app.get_options()) {
    // Each command has --help, which is the program's too.
    if (option == app.get_help_ptr() && !name.empty()) continue;
    if (option->get_lnames().empty()) {
      command.words = WordsOf(name, *option, presets);
      command.takes_files = command.words.empty();
      continue;
    }
    Flag flag;
    for (const std::string& each : option->get_lnames()) {
      flag.names.push_back("--" + each);
    }
    for (const std::string& each : option->get_snames()) {
      flag.names.push_back("-" + each);
    }
    flag.description = option->get_description();
    flag.takes_value = option->get_items_expected_max() > 0;
    flag.is_file = option->get_type_name() == "FILE";
    if (flag.takes_value) flag.words = WordsOf(name, *option, presets);
    command.flags.push_back(flag);
  }
  return command;
}

std::vector<std::string> NamesOf(const std::vector<Flag>& flags) {
  std::vector<std::string> names;
  for (const Flag& flag : flags) {
    names.insert(names.end(), flag.names.begin(), flag.names.end());
  }
  return names;
}

std::string SingleQuoted(absl::string_view text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

// The function finds the command among the words, what is being typed, and the
// flag before it. '=' is a word of its own in bash's eyes.
constexpr char kBashStart[] = R"(# bash completion for posenc
_posenc() {
  local current=${COMP_WORDS[COMP_CWORD]} previous='' command='' i word
  local commands flags words='' files=''
  ((COMP_CWORD > 0)) && previous=${COMP_WORDS[COMP_CWORD - 1]}
  if [[ $current == '=' ]]; then
    current=''
  elif [[ $previous == '=' ]] && ((COMP_CWORD > 1)); then
    previous=${COMP_WORDS[COMP_CWORD - 2]}
  fi
)";
constexpr char kBashEnd[] =
    R"(  if [[ -z $words && -z $files && $previous_takes_value == no ]]; then
    if [[ $current == -* || -z $arguments ]]; then
      words="$flags"
    elif [[ $arguments == files ]]; then
      files=yes
    else
      words=$arguments
    fi
    [[ -n $command || $current == -* ]] || words=$commands
  fi
  COMPREPLY=()
  if [[ -n $files ]]; then
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
  elif [[ -n $words ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  fi
}
complete -F _posenc posenc
)";

// Lines "  'apply --layout') words=...;;" for the flags that take a value.
std::string BashValues(const CommandFlags& command) {
  std::string text;
  for (const Flag& flag : command.flags) {
    if (!flag.takes_value) continue;
    for (const std::string& name : flag.names) {
      const std::string pattern =
          command.name.empty()
              ? absl::StrCat("*' ", name, "'")
              : absl::StrCat("'", command.name, " ", name, "'");
      absl::StrAppend(
          &text, "    ", pattern, ") ",
          flag.is_file
              ? "files=yes"
              : absl::StrCat("words='", absl::StrJoin(flag.words, " "), "'"),
          " ;;\n");
    }
  }
  return text;
}

std::string BashScript(const std::vector<CommandFlags>& commands) {
  std::vector<std::string> names;
  for (std::size_t i = 1; i < commands.size(); ++i) {
    names.push_back(commands[i].name);
  }
  const std::string own = absl::StrJoin(NamesOf(commands[0].flags), " ");
  std::string text = kBashStart;
  absl::StrAppend(&text, "  commands='", absl::StrJoin(names, " "), "'\n",
                  "  for ((i = 1; i < COMP_CWORD; ++i)); do\n"
                  "    word=${COMP_WORDS[i]}\n"
                  "    case $word in\n      ",
                  absl::StrJoin(names, " | "),
                  ")\n        command=$word\n        break\n        ;;\n"
                  "    esac\n  done\n"
                  "  local arguments='' previous_takes_value=yes\n"
                  "  case $command in\n");
  for (std::size_t i = 1; i < commands.size(); ++i) {
    absl::StrAppend(&text, "    ", commands[i].name, ") flags='",
                    absl::StrJoin(NamesOf(commands[i].flags), " "), " ", own,
                    "'");
    if (commands[i].takes_files) absl::StrAppend(&text, " arguments=files");
    if (!commands[i].words.empty()) {
      absl::StrAppend(&text, " arguments='",
                      absl::StrJoin(commands[i].words, " "), "'");
    }
    absl::StrAppend(&text, " ;;\n");
  }
  absl::StrAppend(&text, "    *) flags='", own,
                  "' ;;\n  esac\n  case \"$command $previous\" in\n");
  for (const CommandFlags& command : commands) {
    absl::StrAppend(&text, BashValues(command));
  }
  absl::StrAppend(&text, "    *) previous_takes_value=no ;;\n  esac\n",
                  kBashEnd);
  return text;
}

// A flag as zsh's _arguments takes it: '--layout[description]:value:(a b)'.
std::string ZshSpecs(const Flag& flag) {
  const std::string description = absl::StrReplaceAll(
      flag.description,
      {{"\\", "\\\\"}, {"[", "\\["}, {"]", "\\]"}, {":", "\\:"}});
  std::string action;
  if (flag.takes_value) {
    action =
        flag.is_file ? ":file:_files"
        : flag.words.empty()
            ? ":value: "
            : absl::StrCat(":value:(", absl::StrJoin(flag.words, " "), ")");
  }
  std::string text;
  for (const std::string& name : flag.names) {
    absl::StrAppend(
        &text, "        ",
        SingleQuoted(absl::StrCat("*", name, flag.takes_value ? "=" : "", "[",
                                  description, "]", action)),
        " \\\n");
  }
  return text;
}

std::string ZshScript(const std::vector<CommandFlags>& commands) {
  std::string own;
  for (const Flag& flag : commands[0].flags)
    absl::StrAppend(&own, ZshSpecs(flag));
  std::string text =
      "#compdef posenc\n"
      "_posenc() {\n"
      "  local context state state_descr line curcontext=\"$curcontext\"\n"
      "  typeset -A opt_args\n"
      "  local -a commands\n"
      "  commands=(\n";
  for (std::size_t i = 1; i < commands.size(); ++i) {
    absl::StrAppend(&text, "    ",
                    SingleQuoted(absl::StrCat(commands[i].name, ":",
                                              commands[i].description)),
                    "\n");
  }
  absl::StrAppend(&text, "  )\n  _arguments -C \\\n", own,
                  "        '1: :->command' '*:: :->arguments' && return 0\n"
                  "  case $state in\n"
                  "    command) _describe command commands ;;\n"
                  "    arguments)\n"
                  "      case $words[1] in\n");
  for (std::size_t i = 1; i < commands.size(); ++i) {
    absl::StrAppend(&text, "      ", commands[i].name, ")\n",
                    "      _arguments \\\n");
    for (const Flag& flag : commands[i].flags) {
      absl::StrAppend(&text, ZshSpecs(flag));
    }
    absl::StrAppend(
        &text, own, "        ",
        commands[i].takes_files ? "'*:file:_files'"
        : commands[i].words.empty()
            ? "':: :'"
            : absl::StrCat("'1:value:(", absl::StrJoin(commands[i].words, " "),
                           ")'"),
        "\n        ;;\n");
  }
  absl::StrAppend(&text,
                  "      esac\n      ;;\n  esac\n}\n"
                  "if [[ ${funcstack[1]} == _posenc ]]; then\n"
                  "  _posenc \"$@\"\nelse\n  compdef _posenc posenc\nfi\n");
  return text;
}

std::string FishQuoted(absl::string_view text) {
  return absl::StrCat(
      "'", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}}), "'");
}

std::string FishScript(const std::vector<CommandFlags>& commands) {
  std::string text = "# fish completion for posenc\ncomplete -c posenc -f\n";
  // Fish's own __fish_use_subcommand takes the value of a flag in front of the
  // command for one.
  std::string before = "not __fish_seen_subcommand_from";
  for (std::size_t i = 1; i < commands.size(); ++i) {
    absl::StrAppend(&before, " ", commands[i].name);
  }
  for (const CommandFlags& command : commands) {
    std::string condition;
    if (!command.name.empty()) {
      absl::StrAppend(&text, "complete -c posenc -n ", FishQuoted(before),
                      " -a ", command.name, " -d ",
                      FishQuoted(command.description), "\n");
      condition =
          absl::StrCat(" -n '__fish_seen_subcommand_from ", command.name, "'");
    }
    if (command.takes_files) {
      absl::StrAppend(&text, "complete -c posenc", condition, " -F\n");
    }
    if (!command.words.empty()) {
      absl::StrAppend(&text, "complete -c posenc", condition, " -a ",
                      FishQuoted(absl::StrJoin(command.words, " ")), "\n");
    }
    for (const Flag& flag : command.flags) {
      absl::StrAppend(&text, "complete -c posenc", condition);
      for (const std::string& name : flag.names) {
        absl::StrAppend(&text, absl::StartsWith(name, "--") ? " -l " : " -s ",
                        absl::StripPrefix(absl::StripPrefix(name, "-"), "-"));
      }
      if (flag.takes_value) {
        absl::StrAppend(&text, flag.is_file ? " -r -F" : " -x");
      }
      if (!flag.words.empty()) {
        absl::StrAppend(&text, " -a ",
                        FishQuoted(absl::StrJoin(flag.words, " ")));
      }
      absl::StrAppend(&text, " -d ", FishQuoted(flag.description), "\n");
    }
  }
  return text;
}

absl::Status RunCompletion(const CLI::App& app, const std::string& shell,
                           const GlobalFlags& globals) {
  const absl::StatusOr<Connection> connection = Connection::Open(globals);
  if (!connection.ok()) return connection.status();
  const absl::StatusOr<v1::GetServerInfoResponse> info =
      connection->client().GetServerInfo();
  if (!info.ok()) return info.status();
  const std::vector<std::string> presets(info->presets().begin(),
                                         info->presets().end());
  std::vector<CommandFlags> commands = {Describe(app, "", presets)};
  for (const CLI::App* const command :
       app.get_subcommands([](const CLI::App*) { return true; })) {
    commands.push_back(Describe(*command, command->get_name(), presets));
  }
  const std::string script = shell == "bash"  ? BashScript(commands)
                             : shell == "zsh" ? ZshScript(commands)
                                              : FishScript(commands);
  std::fwrite(script.data(), 1, script.size(), stdout);
  return absl::OkStatus();
}

}  // namespace

Command AddCompletion(CLI::App* app, const GlobalFlags* globals) {
  const auto shell = std::make_shared<std::string>();
  app->add_option("SHELL", *shell, "bash, zsh or fish")
      ->check(CLI::IsMember({"bash", "zsh", "fish"}))
      ->required();
  return [shell, globals, app] {
    return RunCompletion(*app->get_parent(), *shell, *globals);
  };
}

}  // namespace posenc::cli
