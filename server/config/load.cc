#include "server/config/load.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "server/base/small_file.h"
#include "server/config/config_file.h"
#include "server/config/print.h"

namespace posenc::server {
namespace {

constexpr char kDefault[] = "default";
constexpr char kCommandLine[] = "command line";
constexpr char kPrefix[] = "POSENC_";
// This variable is not a key. Tests and benchmarks set the variable, and main()
// and core/simd/dispatch.cc read it.
constexpr char kForceIsa[] = "POSENC_FORCE_ISA";
constexpr char kFileKey[] = "config";
// Keys of former versions are accepted and do nothing.
constexpr const char* kFormerKeys[] = {"headers-timeout", "first-call-timeout",
                                       "table-cache-bytes"};

// Shortens a CLI11 error or an unknown word to one line.
std::string OneLine(absl::string_view text) {
  constexpr std::size_t kLongest = 1024;
  return core::OneLine(text, kLongest);
}

absl::Status Bad(absl::string_view key, absl::string_view fact,
                 absl::string_view source) {
  return core::FieldInvalid(absl::StrCat("--", OneLine(key)), fact, " (",
                            source, ")");
}

std::string WarningOfFormer(absl::string_view key, absl::string_view source) {
  return absl::StrCat("--", key, ": does nothing any more (", source, ")");
}

// Sets the key. If a source of higher priority has already set the key, only
// checks the values.
absl::Status Set(const Key& key, const std::vector<std::string>& values,
                 const std::string& source, LoadedConfig* loaded) {
  std::string& from = loaded->sources[&key - Keys().data()];
  Config unused;
  const bool is_set = from != kDefault;
  const absl::Status status =
      SetKey(key, values, is_set ? &unused : &loaded->config);
  if (!status.ok()) return Bad(key.name, status.message(), source);
  if (!is_set) from = source;
  return absl::OkStatus();
}

// Flags of the command line that are not keys.
struct Commands {
  bool print_config = false;
  bool check_config = false;
  std::string print_keys;
};

void AddOptions(CLI::App* app, Commands* commands) {
  for (const Key& key : Keys()) {
    CLI::Option* const option = app->add_option(absl::StrCat("--", key.name));
    option->description(absl::StrReplaceAll(key.meaning, {{"`", ""}}));
    if (key.kind == KeyKind::kList) {
      option->expected(1, static_cast<int>(key.max));
    }
    // SetKeysOf() refuses repeated flags with a better message than CLI11.
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    if (key.kind == KeyKind::kSwitch) {
      // CLI11 replaces a missing value by the option's default_str. Switches
      // have no default_str, so a switch without a value has an empty text,
      // which means "on".
      option->expected(0, 1)->type_name(
          absl::StrCat(ValueText(key), "=", DefaultText(key)));
    } else {
      option->type_name(ValueText(key))->default_str(DefaultText(key));
    }
  }
  app->add_flag("--print-config", commands->print_config,
                "Print every key with its value and source, as a file that "
                "--config reads, and exit.");
  app->add_flag("--check-config", commands->check_config,
                "Say whether the configuration is valid, and exit: 0, or 2 "
                "and what is wrong.");
  for (const char* const key : kFormerKeys) {
    app->add_option(absl::StrCat("--", key))->group("");
  }
  // The generator of the documentation uses this flag.
  app->add_option("--print-keys", commands->print_keys)->group("");
  app->set_version_flag("--version", [] { return VersionText(); });
}

void Show(std::string text, LoadedConfig* loaded) {
  loaded->task = Task::kShow;
  loaded->text = std::move(text);
}

// Refuses a flag whose value is missing or empty. CLI11 would treat the next
// flag as the missing value, and "" as a switch's "on". An empty path would
// mean "no file": with --token-file "$TOKENS" and an unset variable, the server
// would not check tokens.
absl::Status CheckValuesGiven(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const absl::string_view flag = argv[i];
    if (flag.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(i > 1 ? OneLine(argv[i - 1]) : "''",
                       ": '' is no value (", kCommandLine, ")"));
    }
    if (absl::StartsWith(flag, "--") && flag.find('=') == flag.size() - 1) {
      return absl::InvalidArgumentError(
          absl::StrCat(OneLine(flag.substr(0, flag.size() - 1)), ": '",
                       OneLine(flag), "' has no value (", kCommandLine, ")"));
    }
  }
  return absl::OkStatus();
}

// Sets the keys that the parsed flags name.
absl::Status SetKeysOf(const CLI::App& app, LoadedConfig* loaded) {
  for (const char* const key : kFormerKeys) {
    if (app.count(absl::StrCat("--", key)) == 0) continue;
    loaded->warnings.push_back(WarningOfFormer(key, kCommandLine));
  }
  for (const Key& key : Keys()) {
    const CLI::Option* const option =
        app.get_option(absl::StrCat("--", key.name));
    if (option->empty()) continue;
    std::vector<std::string> values = option->results();
    if (key.kind == KeyKind::kSwitch && values[0].empty()) values[0] = "on";
    if (key.kind != KeyKind::kList && values.size() > 1) {
      return Bad(key.name, "was given more than once", kCommandLine);
    }
    RETURN_IF_ERROR(Set(key, values, kCommandLine, loaded));
  }
  return absl::OkStatus();
}

// Shows the text that --help, --version or --print-keys asks for, or sets the
// keys that the flags name.
absl::Status ReadFlags(int argc, const char* const* argv, Commands* commands,
                       LoadedConfig* loaded) {
  RETURN_IF_ERROR(CheckValuesGiven(argc, argv));
  CLI::App app("Positional encodings over gRPC", "posencd");
  app.allow_extras();
  AddOptions(&app, commands);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    Show(app.help(), loaded);
    return absl::OkStatus();
  } catch (const CLI::CallForVersion& version) {
    Show(absl::StrCat(version.what(), "\n"), loaded);
    return absl::OkStatus();
  } catch (const CLI::Error& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(OneLine(error.what()), " (", kCommandLine, ")"));
  }
  if (const std::vector<std::string> extras = app.remaining();
      !extras.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(OneLine(extras[0]), ": there is no such ",
                     absl::StartsWith(extras[0], "-") ? "flag" : "argument",
                     "; see --help (", kCommandLine, ")"));
  }
  if (commands->print_keys.empty()) return SetKeysOf(app, loaded);
  Show(KeysTable(), loaded);
  return absl::OkStatus();
}

// Sets keys from environment variables, unless a flag has set them.
absl::Status ReadEnvironment(const char* const* environment,
                             LoadedConfig* loaded) {
  std::map<std::string, const Key*> names;
  for (const Key& key : Keys()) names[EnvironmentName(key)] = &key;
  std::vector<std::string> unknown;
  for (; *environment != nullptr; ++environment) {
    if (!absl::StartsWith(*environment, kPrefix)) continue;
    const std::pair<std::string, std::string> variable =
        absl::StrSplit(*environment, absl::MaxSplits('=', 1));
    const auto& [name, value] = variable;
    const auto known = names.find(name);
    if (known == names.end()) {
      if (name != kForceIsa) unknown.push_back(OneLine(name));
      continue;
    }
    const Key* const key = known->second;
    // An empty variable counts as unset, because manifests may set empty
    // variables.
    if (value.empty() && !key->no_empty) continue;
    if (loaded->sources[key - Keys().data()] != kDefault) continue;
    std::vector<std::string> values = {value};
    if (key->kind == KeyKind::kList) values = absl::StrSplit(value, ',');
    RETURN_IF_ERROR(Set(*key, values, name, loaded));
  }
  if (unknown.empty()) return absl::OkStatus();
  loaded->warnings.push_back(absl::StrCat(
      absl::StrJoin(unknown, ", "), unknown.size() == 1 ? " is" : " are",
      " unknown; Kubernetes sets such variables for a Service named posenc"));
  return absl::OkStatus();
}

// Returns whether a table of this name may have keys.
bool HasKeysBelow(absl::string_view table) {
  const std::string prefix = absl::StrCat(table, "-");
  return std::any_of(Keys().begin(), Keys().end(), [&prefix](const Key& key) {
    return absl::StartsWith(key.name, prefix);
  });
}

// Sets keys from the file, unless a flag or the environment has set them. All
// entries must be valid, even entries that are not used.
absl::Status ReadFile(const std::string& path, LoadedConfig* loaded) {
  ASSIGN_OR_RETURN(const std::string text,
                   ReadSmallFile("--config", path, /*may_be_empty=*/true));
  absl::StatusOr<std::vector<FileEntry>> entries =
      ParseConfigFile(OneLine(path), text);
  if (!entries.ok()) {
    return core::FieldInvalid("--config", entries.status().message());
  }
  std::map<const Key*, int> lines;
  for (FileEntry& entry : *entries) {
    const std::string source = absl::StrCat(OneLine(path), ":", entry.line);
    if (entry.empty_table) {
      if (HasKeysBelow(entry.key)) continue;
      return Bad(entry.key, "there is no such table", source);
    }
    if (std::find(std::begin(kFormerKeys), std::end(kFormerKeys), entry.key) !=
        std::end(kFormerKeys)) {
      loaded->warnings.push_back(WarningOfFormer(entry.key, source));
      continue;
    }
    const Key* const key = FindKey(entry.key);
    if (key == nullptr) {
      return Bad(entry.key, "there is no such key", source);
    }
    if (entry.key == kFileKey) {
      return Bad(entry.key, "a file cannot name another", source);
    }
    if (const auto [first, fresh] = lines.emplace(key, entry.line); !fresh) {
      return Bad(entry.key,
                 absl::StrCat("was set in line ", first->second, " already"),
                 source);
    }
    absl::StatusOr<std::vector<std::string>> texts = TextsFor(*key, entry);
    if (!texts.ok()) return Bad(entry.key, texts.status().message(), source);
    RETURN_IF_ERROR(Set(*key, *texts, source, loaded));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LoadedConfig> LoadConfig(int argc, const char* const* argv,
                                        const char* const* environment) {
  LoadedConfig loaded;
  loaded.sources.assign(Keys().size(), kDefault);
  Commands commands;
  RETURN_IF_ERROR(ReadFlags(argc, argv, &commands, &loaded));
  if (loaded.task == Task::kShow) return loaded;
  RETURN_IF_ERROR(ReadEnvironment(environment, &loaded));
  if (!loaded.config.file.empty()) {
    RETURN_IF_ERROR(ReadFile(loaded.config.file, &loaded));
  }
  if (commands.check_config) loaded.task = Task::kCheckConfig;
  if (commands.print_config) Show(ConfigText(loaded), &loaded);
  return loaded;
}

absl::Status WithSource(const absl::Status& status,
                        const LoadedConfig& loaded) {
  const std::optional<core::ErrorDetails> details =
      core::GetErrorDetails(status);
  if (!details.has_value()) return status;
  for (std::size_t i = 0; i < Keys().size(); ++i) {
    if (details->field != absl::StrCat("--", Keys()[i].name)) continue;
    return absl::Status(status.code(), absl::StrCat(status.message(), " (",
                                                    loaded.sources[i], ")"));
  }
  return status;
}

}  // namespace posenc::server
