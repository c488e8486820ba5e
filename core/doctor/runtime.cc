// The command line of an engine, and the checks runtime.* of its flags.

#include "core/doctor/runtime.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/doctor/input_checks.h"
#include "core/interpretation/classes/profile.h"
#include "core/interpretation/json_object.h"

namespace posenc::core::doctor {
namespace {

using interpretation::GgufRope;
using Engine = Runtime::Engine;

// True for the flags of vLLM and SGLang that change the configuration.
bool IsOverride(absl::string_view flag) {
  return flag == "--hf-overrides" || flag == "--json-model-override-args";
}

// The flags that set the longest sequence.
constexpr const char* kLengthFlags[] = {"--max-model-len", "--context-length",
                                        "-c"};

// Parses a flag's JSON. If the text is too long or is not JSON, is_discarded()
// of the result is true.
json ParseSmall(const std::string& text) {
  return interpretation::CheckJsonSize(text).ok()
             ? json::parse(text, nullptr, false)
             : json(json::value_t::discarded);
}

// The known flags. Each has a value. Other words are skipped.
constexpr absl::string_view kFlags[] = {
    "--hf-overrides",    "--json-model-override-args",
    "--rope-scaling",    "--rope-theta",
    "--max-model-len",   "--context-length",
    "--rope-scale",      "--rope-freq-base",
    "--rope-freq-scale", "--yarn-orig-ctx",
    "--yarn-ext-factor", "--yarn-attn-factor",
    "--yarn-beta-slow",  "--yarn-beta-fast",
    "--override-kv",     "-c",
};

// A number that a GGUF has under `key`. --override-kv can replace the number.
// Some numbers also have a flag of their own. A new value that is not larger
// than `above` is ignored.
struct KeyFlag {
  absl::string_view key;
  absl::string_view flag;
  double above;
  std::optional<double> GgufRope::*number;
};
constexpr double kAny = -std::numeric_limits<double>::infinity();
constexpr KeyFlag kNumbers[] = {
    {"rope.freq_base", "--rope-freq-base", 1, &GgufRope::freq_base},
    {"rope.freq_base_swa", "", 1, &GgufRope::freq_base_swa},
    {"rope.scaling.factor", "--rope-scale", 0, &GgufRope::factor},
    {"rope.scaling.attn_factor", "", kAny, &GgufRope::attn_factor},
    {"rope.scaling.yarn_log_multiplier", "", kAny,
     &GgufRope::yarn_log_multiplier},
    {"rope.scaling.yarn_ext_factor", "--yarn-ext-factor", kAny,
     &GgufRope::yarn_ext_factor},
    {"rope.scaling.yarn_beta_fast", "--yarn-beta-fast", 0,
     &GgufRope::yarn_beta_fast},
    {"rope.scaling.yarn_beta_slow", "--yarn-beta-slow", 0,
     &GgufRope::yarn_beta_slow},
};
constexpr std::pair<absl::string_view, std::optional<std::int64_t> GgufRope::*>
    kWholeNumbers[] = {
        {"rope.dimension_count", &GgufRope::dimension_count},
        {"rope.dimension_count_swa", &GgufRope::dimension_count_swa},
        {"rope.scaling.original_context_length",
         &GgufRope::original_context_length},
};

absl::Status UsageFault(absl::string_view fact) {
  return FieldInvalid("runtime", fact);
}

absl::StatusOr<std::vector<std::string>> Words(absl::string_view command) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  char quote = 0;
  for (std::size_t i = 0; i < command.size(); ++i) {
    const char c = command[i];
    const bool escapes =
        quote == 0 ? c == '\\'
                   : quote == '"' && c == '\\' && i + 1 < command.size() &&
                         (command[i + 1] == '"' || command[i + 1] == '\\');
    if (escapes) {
      if (i + 1 >= command.size()) return UsageFault("ends with a backslash");
      if (command[++i] != '\n') word.push_back(command[i]);
    } else if (quote != 0 ? c == quote : c == '\'' || c == '"') {
      quote = quote == 0 ? c : 0;
    } else if (quote == 0 && (c == ' ' || c == '\t' || c == '\n')) {
      if (in_word) words.push_back(word);
      word.clear();
      in_word = false;
      continue;
    } else {
      word.push_back(c);
    }
    in_word = true;
  }
  if (quote != 0) {
    return UsageFault(
        absl::StrCat("a quote ", std::string(1, quote), " is not closed"));
  }
  if (in_word) words.push_back(word);
  return words;
}

constexpr absl::string_view kDotted = "--hf-overrides.";

// Returns {"a": {"b": value}} for the path "a.b".
json Nested(absl::string_view path, json value) {
  std::vector<std::string> keys = absl::StrSplit(path, '.');
  std::reverse(keys.begin(), keys.end());
  for (const std::string& key : keys) {
    value = json{{key, std::move(value)}};
  }
  return value;
}

// Sets the key with this path in the value of --hf-overrides. A value that is
// not JSON becomes a string.
absl::Status SetKey(absl::string_view path, const std::string& value,
                    Runtime* runtime) {
  constexpr std::ptrdiff_t kMostDots = 7;
  if (std::count(path.begin(), path.end(), '.') > kMostDots) {
    return UsageFault(absl::StrCat(kDotted, path, " is nested too deep"));
  }
  json parsed = ParseSmall(value);
  if (parsed.is_discarded()) parsed = value;
  const std::string* const before = runtime->Find("--hf-overrides");
  json merged = before == nullptr ? json::object() : json::parse(*before);
  merged.merge_patch(Nested(path, std::move(parsed)));
  runtime->flags.emplace_back("--hf-overrides", merged.dump());
  return absl::OkStatus();
}

// Returns llama.cpp's flag for an environment variable, as in
// "LLAMA_ARG_ROPE_SCALE=4 llama-server ...". Returns other words unchanged.
std::string FlagOf(absl::string_view word) {
  const std::size_t equals = word.find('=');
  if (equals == word.npos || !absl::ConsumePrefix(&word, "LLAMA_ARG_")) {
    return std::string(word);
  }
  std::vector<std::string> parts =
      absl::StrSplit(word, absl::MaxSplits('=', 1));
  if (parts[0] == "ROPE_SCALING_TYPE") parts[0] = "ROPE_SCALING";
  return absl::StrCat("--", absl::AsciiStrToLower(parts[0]), "=", parts[1]);
}

Engine EngineOf(absl::string_view word) {
  if (absl::StrContains(word, "vllm")) return Engine::kVllm;
  if (absl::StrContains(word, "sglang")) return Engine::kSglang;
  return absl::StrContains(word, "llama-") ||
                 absl::StrContains(word, "llama.cpp")
             ? Engine::kLlamaCpp
             : Engine::kUnknown;
}

// Parses a number of tokens with vLLM's suffixes (32k = 32000, 32K = 32768, 1M,
// 25.6k). Returns 0 for other text, for example "auto".
std::int64_t LengthOf(absl::string_view text) {
  constexpr std::pair<char, double> kUnits[] = {{'k', 1e3},    {'m', 1e6},
                                                {'g', 1e9},    {'K', 0x1p10},
                                                {'M', 0x1p20}, {'G', 0x1p30}};
  double unit = 1;
  for (const auto& [letter, size] : kUnits) {
    if (!text.empty() && text.back() == letter) unit = size;
  }
  if (unit > 1) text.remove_suffix(1);
  double number = 0;
  if (text.empty() || !absl::ascii_isdigit(text.front()) ||
      !absl::SimpleAtod(text, &number)) {
    return 0;
  }
  const double length = std::floor(number * unit);
  return length >= 1 && length <= 0x1p31 ? static_cast<std::int64_t>(length)
                                         : 0;
}

// Replaces a key of the GGUF. `text` is the value of --override-kv, such as
// "llama.rope.freq_base=float:500000".
void OverrideKey(absl::string_view text, GgufRope* gguf) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits('=', 1));
  const absl::string_view value =
      parts.second.substr(parts.second.find(':') + 1);
  const auto is = [&](absl::string_view name) {
    return parts.first == gguf->Key(name);
  };
  if (is("rope.scaling.type")) gguf->scaling_type = std::string(value);
  if (is("rope.scaling.finetuned") && gguf->HasSwitch()) {
    gguf->rotates = value == "true";
  }
  double number = 0;
  if (!absl::SimpleAtod(value, &number)) return;
  for (const KeyFlag& row : kNumbers) {
    if (is(row.key) && number > row.above) gguf->*row.number = number;
  }
  if (!(number >= 1 && number < 0x1p31)) return;
  for (const auto& [key, member] : kWholeNumbers) {
    if (is(key)) gguf->*member = static_cast<std::int64_t>(number);
  }
}

}  // namespace

const std::string* Runtime::Find(absl::string_view flag) const {
  const auto found =
      std::find_if(flags.rbegin(), flags.rend(),
                   [flag](const auto& one) { return one.first == flag; });
  return found == flags.rend() ? nullptr : &found->second;
}

std::optional<double> Runtime::Number(absl::string_view flag) const {
  const std::string* const text = Find(flag);
  double number = 0;
  if (text == nullptr || !absl::SimpleAtod(*text, &number)) return std::nullopt;
  return number;
}

absl::StatusOr<Runtime> ParseRuntime(absl::string_view command) {
  constexpr std::size_t kMaxCommand = std::size_t{1} << 20;
  if (command.size() > kMaxCommand) {
    return UsageFault(absl::StrCat("has ", command.size(), " bytes; at most ",
                                   kMaxCommand, " are read"));
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> words, Words(command));
  Runtime runtime;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string word = FlagOf(words[i]);
    if (word != words[i]) runtime.engine = Engine::kLlamaCpp;
    if (!absl::StartsWith(word, "-")) {
      if (runtime.engine == Engine::kUnknown) {
        runtime.engine = EngineOf(word);
      }
      continue;
    }
    const std::size_t equals = word.find('=');
    std::string name = word.substr(0, equals);
    // vLLM also takes single keys: --hf-overrides.rope_parameters.factor 4
    std::string path;
    // vLLM and SGLang accept "-" and "_" in names.
    std::replace(name.begin() + (name.size() > 2 ? 2 : 0), name.end(), '_',
                 '-');
    if (absl::StartsWith(name, kDotted)) {
      path = word.substr(0, equals).substr(kDotted.size());
      name = "--hf-overrides";
    }
    if (name == "--ctx-size") name = "-c";
    if (std::ranges::count(kFlags, name) == 0) {
      // Skips the value of an unknown flag, because text such as a model's path
      // does not name the engine.
      const bool has_value = absl::StartsWith(name, "--") &&
                             equals == word.npos && i + 1 < words.size() &&
                             !absl::StartsWith(words[i + 1], "-");
      if (has_value) ++i;
      continue;
    }
    std::string value;
    if (equals != word.npos) {
      value = word.substr(equals + 1);
    } else if (i + 1 < words.size()) {
      value = words[++i];
    } else {
      return UsageFault(absl::StrCat(name, " has no value"));
    }
    if (!path.empty()) {
      RETURN_IF_ERROR(SetKey(path, value, &runtime));
      continue;
    }
    // The old --rope-scaling of vLLM takes JSON. llama.cpp's flag takes a word.
    if ((IsOverride(name) ||
         (name == "--rope-scaling" && absl::StartsWith(value, "{"))) &&
        !ParseSmall(value).is_object()) {
      return UsageFault(absl::StrCat(name, " is no JSON object"));
    }
    if (name == "--override-kv") {
      // llama.cpp also takes several values with commas between them.
      for (const absl::string_view one : absl::StrSplit(value, ',')) {
        runtime.flags.emplace_back(name, std::string(one));
      }
      continue;
    }
    runtime.flags.emplace_back(std::move(name), std::move(value));
  }
  return runtime;
}

std::int64_t RuntimeLength(const Runtime& runtime) {
  for (const char* flag : kLengthFlags) {
    const std::string* const text = runtime.Find(flag);
    if (text == nullptr) continue;
    if (const std::int64_t length = LengthOf(*text); length > 0) return length;
  }
  return 0;
}

void ApplyRuntime(const Runtime& runtime, GgufRope* gguf) {
  for (const auto& [flag, text] : runtime.flags) {
    if (flag == "--override-kv" && absl::StrContains(text, '=')) {
      OverrideKey(text, gguf);
    }
  }
  if (runtime.engine == Engine::kVllm) return;
  const std::string* const scaling = runtime.Find("--rope-scaling");
  if (scaling != nullptr &&
      interpretation::IsAmong(*scaling, "none linear yarn")) {
    gguf->scaling_type = *scaling;
  }
  const double scale = runtime.Number("--rope-freq-scale").value_or(0);
  if (scale > 0) gguf->factor = 1 / scale;
  for (const KeyFlag& row : kNumbers) {
    const auto number = runtime.Number(row.flag);
    if (number && *number > row.above) gguf->*row.number = number;
  }
  // --yarn-orig-ctx is only for YaRN. The original length of longrope comes
  // from the file.
  const double original = runtime.Number("--yarn-orig-ctx").value_or(0);
  if (original > 0 && original < 0x1p31 && gguf->scaling_type == "yarn") {
    gguf->original_context_length = static_cast<std::int64_t>(original);
  }
}

namespace {

// Returns the model's rotary keys that do not scale: base, share, sections.
json OwnKeys(const ConfigCase& config) {
  const ResolvedRope& rope = config.rope();
  json own = json::object();
  for (const char* name : {"rope_parameters", "rope_scaling"}) {
    const json& dict = ValueAt(config.part(), name);
    for (const auto& [key, value] : dict.items()) {
      if (dict.is_object() && !IsScalingKey(key)) own[key] = value;
    }
  }
  if (rope.spec.rope_theta) own["rope_theta"] = *rope.spec.rope_theta;
  const interpretation::Family& family = config.family();
  const bool has_share =
      family.width == interpretation::RotaryWidth::kPartial ||
      family.width == interpretation::RotaryWidth::kRotaryDimElsewhere;
  if (has_share && rope.spec.rotary_dim < rope.head_dim &&
      !own.contains("partial_rotary_factor")) {
    own["partial_rotary_factor"] =
        config.Number(family.partial_key)
            .value_or(static_cast<double>(rope.spec.rotary_dim) /
                      static_cast<double>(rope.head_dim));
  }
  return own;
}

// Returns an override of the configuration that adds `scaling` to the model.
// Engines replace the whole dict, so the override also has the model's own
// keys. Returns nullopt if one dict cannot express this, for example because
// each layer type has its own dict.
std::optional<json> MergedOverride(const ConfigCase& config,
                                   const json& scaling) {
  if (config.reference() == nullptr || config.groups().size() != 1) {
    return std::nullopt;
  }
  const RopeSpec& spec = config.rope().spec;
  json override = OwnKeys(config);
  override.update(scaling);
  // Reads the configuration that the engine has after the override. The engine
  // no longer reads the keys beside the dict.
  const auto taken = config.ResolveChanged([&](json* part) {
    for (const absl::string_view key :
         {absl::string_view("rope_scaling"), absl::string_view("rope_theta"),
          absl::string_view("partial_rotary_factor"), config.family().theta_key,
          config.family().partial_key}) {
      part->erase(std::string(key));
    }
    (*part)["rope_parameters"] = override;
  })[0];
  const auto sections = [](const RopeSpec& of) {
    return of.axes ? std::optional(of.axes->sections) : std::nullopt;
  };
  if (!taken.ok() || taken->spec.rotary_dim != spec.rotary_dim ||
      sections(taken->spec) != sections(spec) ||
      // Some classes ignore the scaling in the dict.
      (scaling.contains("factor") && !IsScaled(*taken)) ||
      (!scaling.contains("rope_theta") &&
       taken->spec.rope_theta != spec.rope_theta)) {
    return std::nullopt;
  }
  return std::make_optional(
      Nested(config.KeyPath("rope_parameters"), std::move(override)));
}

// Returns the dicts of rotary parameters in an override or its parts, with
// their paths.
std::vector<std::pair<std::string, json>> OverridingDicts(
    const json& override) {
  std::vector<std::pair<std::string, json>> dicts;
  for (const auto& [key, value] : override.items()) {
    if (!value.is_object()) continue;
    if (key == "rope_parameters" || key == "rope_scaling") {
      dicts.emplace_back(key, value);
    } else if (absl::EndsWith(key, "_config")) {
      for (auto& [name, dict] : OverridingDicts(value)) {
        dicts.emplace_back(absl::StrCat(key, ".", name), dict);
      }
    }
  }
  return dicts;
}

bool GivesTheta(const json& dict) {
  return dict.contains("rope_theta") ||
         std::ranges::any_of(dict, [](const json& value) {
           return value.is_object() && value.contains("rope_theta");
         });
}

struct RuntimeChecks {
  const Runtime& runtime;
  const ConfigCase* const config;  // may be null
  const GgufRope* const gguf;      // may be null
  std::vector<Finding>* const findings;
  const Reading* const reference =
      config == nullptr ? nullptr : config->reference();

  void Add(absl::string_view id, const Values& values, const std::string& key,
           std::vector<Verdict> readers = {}) {
    std::vector<std::string> inputs;
    if (config != nullptr) inputs.push_back(config->path());
    AddFinding(id, values, std::move(inputs), {key}, findings,
               std::move(readers));
  }

  // Engines keep the base in rope_parameters after they load a model. An
  // override that replaces the whole dict loses the base.
  void CheckOverrides() {
    if (reference == nullptr || !config->rope().spec.rope_theta) return;
    const double theta = *config->rope().spec.rope_theta;
    const Reader& reader =
        *FindReader(runtime.engine == Engine::kSglang ? "sglang" : "vllm");
    for (const auto& [flag, text] : runtime.flags) {
      // If a flag is given several times, the last one counts.
      if (!IsOverride(flag) || &text != runtime.Find(flag)) continue;
      const json override = json::parse(text, nullptr, false);
      if (override.contains("rope_theta")) continue;
      for (const auto& [path, dict] : OverridingDicts(override)) {
        if (GivesTheta(dict)) continue;
        const auto taken_from = [&](json parameters) {
          const auto replace = [&](json* part) {
            part->erase("rope_scaling");
            part->erase("rope_theta");
            part->erase(std::string(config->family().theta_key));
            (*part)["rope_parameters"] = std::move(parameters);
          };
          return config->ResolveChanged(replace, reader)[0];
        };
        const auto taken = taken_from(dict);
        json with_base = dict;
        with_base["rope_theta"] = theta;
        const auto meant = taken_from(with_base);
        if (!meant.ok() || !taken.ok()) continue;
        const Comparison comparison = Compare(*meant, *taken, config->reach());
        if (!comparison.any()) continue;
        Add("runtime.override-drops-theta",
            {absl::StrCat(flag, " ", path), reader.title,
             taken->spec.rope_theta.value_or(0), theta},
            absl::StrCat(path, ".rope_theta"),
            {VerdictOf(comparison, reader, *taken)});
      }
    }
  }

  // Proposes one override in place of the flags that vLLM has removed.
  void CheckGoneFlags() {
    const std::string* const scaling = runtime.Find("--rope-scaling");
    const std::string* const theta = runtime.Find("--rope-theta");
    json parameters = scaling == nullptr ? json() : ParseSmall(*scaling);
    // llama.cpp also has a flag --rope-scaling, which takes a word, not JSON.
    if (runtime.engine != Engine::kVllm &&
        (runtime.engine != Engine::kUnknown ||
         (!parameters.is_object() && theta == nullptr))) {
      return;
    }
    if (!parameters.is_object()) parameters = json::object();
    if (parameters.contains("type") && !parameters.contains("rope_type")) {
      parameters["rope_type"] = parameters["type"];
      parameters.erase("type");
    }
    if (const auto base = runtime.Number("--rope-theta")) {
      parameters["rope_theta"] = *base;
    }
    const auto override =
        config == nullptr ? std::optional(json{{"rope_parameters", parameters}})
                          : MergedOverride(*config, parameters);
    const std::string fix =
        override ? absl::StrCat("--hf-overrides '", override->dump(), "'")
                 : Say("runtime.into-each", {});
    for (const char* flag : {"--rope-scaling", "--rope-theta"}) {
      if (runtime.Find(flag) != nullptr) {
        Add("runtime.flag-gone", {flag, fix}, flag);
      }
    }
  }

  bool HasYarnInFiles() const {
    if (gguf != nullptr) return gguf->ScalingType() == "yarn";
    return reference != nullptr &&
           std::holds_alternative<YarnScaling>(config->rope().spec.scaling);
  }

  void CheckUnreadFlags() {
    const auto tell = [&](const char* flag, const std::string& why,
                          const std::string& fix) {
      if (runtime.Find(flag) == nullptr) return;
      Add("runtime.flag-unread", {flag, why, fix}, flag);
    };
    const std::string* const scaling = runtime.Find("--rope-scaling");
    if (scaling != nullptr ? *scaling == "yarn" : HasYarnInFiles()) {
      tell("--yarn-attn-factor", Say("runtime.attn-factor", {}),
           Say("runtime.attn-factor-fix", {}));
    }
    for (const char* flag : {"--rope-scale", "--rope-freq-scale"}) {
      if (scaling == nullptr || *scaling != "none") continue;
      tell(flag, Say("runtime.none", {}), Say("runtime.none-fix", {flag}));
    }
    const std::string* const base = runtime.Find("--rope-freq-base");
    if (base == nullptr || gguf == nullptr || !gguf->freq_base_swa) return;
    const std::string key = gguf->Key("rope.freq_base_swa");
    for (const auto& [flag, value] : runtime.flags) {
      if (flag == "--override-kv" &&
          absl::StartsWith(value, absl::StrCat(key, "="))) {
        return;
      }
    }
    tell("--rope-freq-base", Say("runtime.sliding", {}),
         Say("runtime.sliding-fix", {key, *base}));
  }

  // True if the command line changes the rope, or the model's length.
  bool ChangesRope() const {
    for (const auto& [flag, text] : runtime.flags) {
      if (IsOverride(flag)
              ? &text == runtime.Find(flag) &&
                    (absl::StrContains(text, "rope") ||
                     absl::StrContains(text, "position"))
              : absl::StartsWith(flag, "--rope-") || flag == "--override-kv") {
        return true;
      }
    }
    return false;
  }

  // Returns flags that apply YaRN to a model of `claimed` positions. Returns ""
  // if flags cannot express this, for example because only some layers must be
  // scaled, or because the model has several position axes.
  std::string YarnFlags(double factor, std::int64_t claimed) const {
    const bool vllm = runtime.engine == Engine::kVllm;
    const bool sglang = runtime.engine == Engine::kSglang;
    if (config != nullptr) {
      if (reference == nullptr || config->groups().size() > 1) return "";
      const RopeSpec& spec = config->rope().spec;
      if (spec.axes || spec.nope || !spec.rope_theta) return "";
    } else if (vllm || sglang || gguf->freq_base_swa ||
               !gguf->sections.empty()) {
      return "";
    }
    if (runtime.engine == Engine::kLlamaCpp || config == nullptr) {
      return absl::StrCat("--rope-scaling yarn --rope-scale ",
                          PlainNumber(factor), " --yarn-orig-ctx ", claimed);
    }
    const auto override = MergedOverride(
        *config, {{"rope_type", "yarn"},
                  {"factor", factor},
                  {"original_max_position_embeddings", claimed}});
    if (!override) return "";
    return absl::StrCat(
        sglang ? "--json-model-override-args" : "--hf-overrides", " '",
        override->dump(), "'");
  }

  // Reports a served length that exceeds the model's length, if nothing scales
  // the model.
  void CheckServedLength() {
    const std::int64_t served = RuntimeLength(runtime);
    if (served == 0 || ChangesRope()) return;
    std::int64_t claimed = 0;
    std::string by;
    bool scaled = false;
    if (config != nullptr) {
      claimed = config->MaxPositions().value_or(0);
      by = absl::StrCat("max_position_embeddings of ", config->path());
      // Some scaled files still state the length before scaling.
      scaled = reference != nullptr &&
               std::ranges::any_of(reference->ropes, [](const auto& rope) {
                 return IsScaled(*rope);
               });
    } else if (gguf != nullptr) {
      claimed = gguf->context_length.value_or(0);
      by = gguf->Key("context_length");
      scaled = gguf->factor || !gguf->rope_freqs.empty() ||
               !gguf->factors_long.empty();
    }
    if (claimed == 0 || served <= claimed || scaled) return;
    const double factor =
        std::ceil(static_cast<double>(served) / static_cast<double>(claimed));
    const std::string flag = *std::ranges::find_if(
        kLengthFlags,
        [&](const char* one) { return runtime.Find(one) != nullptr; });
    const std::string yarn = YarnFlags(factor, claimed);
    Add("runtime.length-beyond",
        {flag, served, by, claimed,
         yarn.empty() ? "" : absl::StrCat(", or scale: ", yarn)},
        flag);
  }
};

}  // namespace

void CheckRuntime(const Runtime& runtime, const ConfigCase* config,
                  const interpretation::GgufRope* gguf,
                  std::vector<Finding>* findings) {
  RuntimeChecks checks = {runtime, config, gguf, findings};
  checks.CheckOverrides();
  checks.CheckGoneFlags();
  checks.CheckUnreadFlags();
  checks.CheckServedLength();
}

}  // namespace posenc::core::doctor
