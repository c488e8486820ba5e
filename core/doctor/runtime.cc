// runtime.*: what an engine's command line says about rotary encodings.

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/doctor/input_checks.h"
#include "core/doctor/merged_override.h"
#include "core/error.h"
#include "core/interpretation/json_object.h"
#include "core/interpretation/profile.h"

namespace posenc::core::doctor {
namespace {

using nlohmann::json;

// The known flags. All take a value; other words are skipped.
constexpr absl::string_view kFlags[] = {"--hf-overrides",
                                        "--json-model-override-args",
                                        "--rope-scaling",
                                        "--rope-theta",
                                        "--max-model-len",
                                        "--context-length",
                                        "--rope-scale",
                                        "--rope-freq-base",
                                        "--rope-freq-scale",
                                        "--yarn-orig-ctx",
                                        "--yarn-ext-factor",
                                        "--yarn-attn-factor",
                                        "--yarn-beta-slow",
                                        "--yarn-beta-fast",
                                        "--override-kv",
                                        "--ctx-size",
                                        "-c"};

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
    if (quote != 0) {
      if (c == quote) {
        quote = 0;
      } else if (c == '\\' && quote == '"' && i + 1 < command.size() &&
                 (command[i + 1] == '"' || command[i + 1] == '\\')) {
        word.push_back(command[++i]);
      } else {
        word.push_back(c);
      }
    } else if (c == '\'' || c == '"') {
      quote = c;
      in_word = true;
    } else if (c == '\\') {
      if (i + 1 >= command.size()) return UsageFault("ends with a backslash");
      if (command[++i] != '\n') word.push_back(command[i]);
      in_word = true;
    } else if (c == ' ' || c == '\t' || c == '\n') {
      if (in_word) words.push_back(word);
      word.clear();
      in_word = false;
    } else {
      word.push_back(c);
      in_word = true;
    }
  }
  if (quote != 0) {
    return UsageFault(
        absl::StrCat("a quote ", std::string(1, quote), " is not closed"));
  }
  if (in_word) words.push_back(word);
  return words;
}

constexpr absl::string_view kDotted = "--hf-overrides.";

// Sets one key of the overrides by its path. A value that is no JSON is a
// string.
absl::Status SetKey(absl::string_view path, const std::string& value,
                    Runtime* runtime) {
  const std::vector<std::string> keys = absl::StrSplit(path, '.');
  constexpr std::size_t kDeepest = 8;
  if (keys.size() > kDeepest) {
    return UsageFault(absl::StrCat(kDotted, path, " is nested too deep"));
  }
  json parsed = interpretation::CheckJsonSize(value).ok()
                    ? json::parse(value, nullptr, false)
                    : json(value);
  if (parsed.is_discarded()) parsed = value;
  for (std::size_t i = keys.size(); i-- > 0;) {
    json outer = json::object();
    outer[keys[i]] = std::move(parsed);
    parsed = std::move(outer);
  }
  const std::string* const before = runtime->Find("--hf-overrides");
  json merged = before == nullptr ? json::object() : json::parse(*before);
  merged.merge_patch(parsed);
  runtime->flags.emplace_back("--hf-overrides", merged.dump());
  return absl::OkStatus();
}

// llama.cpp's variables: "LLAMA_ARG_ROPE_SCALE=4 llama-server ...".
constexpr absl::string_view kEnvironment = "LLAMA_ARG_";
constexpr std::pair<absl::string_view, absl::string_view> kVariables[] = {
    {"ROPE_SCALING_TYPE", "--rope-scaling"},
    {"ROPE_SCALE", "--rope-scale"},
    {"ROPE_FREQ_BASE", "--rope-freq-base"},
    {"ROPE_FREQ_SCALE", "--rope-freq-scale"},
    {"YARN_ORIG_CTX", "--yarn-orig-ctx"},
    {"YARN_EXT_FACTOR", "--yarn-ext-factor"},
    {"YARN_ATTN_FACTOR", "--yarn-attn-factor"},
    {"YARN_BETA_SLOW", "--yarn-beta-slow"},
    {"YARN_BETA_FAST", "--yarn-beta-fast"},
    {"CTX_SIZE", "-c"}};

// Stores a variable as its flag; a later flag overrides it.
void SetFromEnvironment(absl::string_view assignment, Runtime* runtime) {
  for (const auto& [name, flag] : kVariables) {
    if (!absl::StartsWith(assignment, absl::StrCat(name, "="))) continue;
    runtime->engine = Runtime::Engine::kLlamaCpp;
    runtime->flags.emplace_back(
        std::string(flag), std::string(assignment.substr(name.size() + 1)));
  }
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

bool WantsJson(absl::string_view flag) {
  return flag == "--hf-overrides" || flag == "--json-model-override-args";
}

std::optional<double> NumberOf(const Runtime& runtime, absl::string_view flag) {
  const std::string* const text = runtime.Find(flag);
  double number = 0;
  if (text == nullptr || !absl::SimpleAtod(*text, &number)) return std::nullopt;
  return number;
}

bool IsVllm(const Runtime& runtime) {
  return runtime.engine == Runtime::Engine::kVllm;
}

Finding& Add(absl::string_view id, const std::vector<std::string>& values,
             std::vector<std::string> keys, const ConfigCase* config,
             std::vector<Finding>* findings) {
  Finding& finding = AddFinding(id, values, {}, std::move(keys), findings);
  if (config != nullptr) finding.inputs = {config->path()};
  return finding;
}

// Returns the dicts of rotary parameters in an override, or in its parts.
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
  if (dict.contains("rope_theta")) return true;
  for (const auto& [key, value] : dict.items()) {
    if (value.is_object() && value.contains("rope_theta")) return true;
  }
  return false;
}

// After loading, engines keep the base in rope_parameters: an override that
// replaces the whole dict loses the base.
void CheckOverrides(const Runtime& runtime, const ConfigCase& config,
                    std::vector<Finding>* findings) {
  const Reading* const reference = config.reference();
  if (reference == nullptr || !reference->ropes[0]->spec.rope_theta) return;
  const double theta = *reference->ropes[0]->spec.rope_theta;
  for (const auto& [flag, text] : runtime.flags) {
    // The last of several equal flags counts.
    if (!WantsJson(flag) || &text != runtime.Find(flag)) continue;
    const json override = json::parse(text, nullptr, false);
    if (override.contains("rope_theta")) continue;
    for (const auto& [path, dict] : OverridingDicts(override)) {
      if (GivesTheta(dict)) continue;
      const auto with = [&, &dict = dict](bool keeps_theta) {
        return config.Changed([&](json* part) {
          part->erase("rope_scaling");
          part->erase("rope_theta");
          part->erase(std::string(config.family().theta_key));
          (*part)["rope_parameters"] = dict;
          if (keeps_theta) (*part)["rope_parameters"]["rope_theta"] = theta;
        });
      };
      const interpretation::Reader& reader = *interpretation::FindReader(
          runtime.engine == Runtime::Engine::kSglang ? "sglang" : "vllm");
      const auto meant = config.ResolveOther(with(true), &reader);
      const auto taken = config.ResolveOther(with(false), &reader);
      if (meant.empty() || !meant[0] || !taken[0]) continue;
      const Comparison comparison =
          Compare(*meant[0], *taken[0], config.reach());
      if (!comparison.any()) continue;
      Finding& finding =
          Add("runtime.override-drops-theta",
              {absl::StrCat(flag, " ", path), std::string(reader.title),
               PlainNumber(taken[0]->spec.rope_theta.value_or(0)),
               PlainNumber(theta)},
              {absl::StrCat(path, ".rope_theta")}, &config, findings);
      finding.readers = {VerdictOf(comparison, reader, *taken[0])};
      JudgeBySize(&finding);
    }
  }
}

// Replaces vLLM's removed flags by one override.
void CheckGoneFlags(const Runtime& runtime, const ConfigCase* config,
                    std::vector<Finding>* findings) {
  const std::string* const scaling = runtime.Find("--rope-scaling");
  const std::string* const theta = runtime.Find("--rope-theta");
  const json dict =
      scaling == nullptr || !interpretation::CheckJsonSize(*scaling).ok()
          ? json()
          : json::parse(*scaling, nullptr, false);
  // llama.cpp's flag of the same name takes a word, not JSON.
  const bool is_vllm =
      IsVllm(runtime) || (runtime.engine == Runtime::Engine::kUnknown &&
                          (dict.is_object() || theta != nullptr));
  if (!is_vllm || (scaling == nullptr && theta == nullptr)) return;
  json parameters = dict.is_object() ? dict : json::object();
  if (parameters.contains("type") && !parameters.contains("rope_type")) {
    parameters["rope_type"] = parameters["type"];
    parameters.erase("type");
  }
  double base = 0;
  if (theta != nullptr && absl::SimpleAtod(*theta, &base)) {
    parameters["rope_theta"] = base;
  }
  std::optional<json> override = json{{"rope_parameters", parameters}};
  if (config != nullptr) override = MergedOverride(*config, parameters);
  const std::string fix =
      override ? absl::StrCat("--hf-overrides '", override->dump(), "'")
               : "write what it says into each rope_parameters of config.json";
  for (const auto& [flag, text] : {std::pair("--rope-scaling", scaling),
                                   std::pair("--rope-theta", theta)}) {
    if (text == nullptr) continue;
    Add("runtime.flag-gone", {flag, fix}, {flag}, config, findings);
  }
}

// True if --override-kv sets that key.
bool Overrides(const Runtime& runtime, const std::string& key) {
  return std::any_of(
      runtime.flags.begin(), runtime.flags.end(), [&](const auto& flag) {
        return flag.first == "--override-kv" &&
               absl::StartsWith(flag.second, absl::StrCat(key, "="));
      });
}

void CheckUnreadFlags(const Runtime& runtime, const ConfigCase* config,
                      const interpretation::GgufRope* gguf,
                      std::vector<Finding>* findings) {
  const std::string* const scaling = runtime.Find("--rope-scaling");
  const bool yarn_in_files =
      (gguf != nullptr && gguf->ScalingType() == "yarn") ||
      (gguf == nullptr && config != nullptr && config->reference() != nullptr &&
       std::holds_alternative<YarnScaling>(
           config->reference()->ropes[0]->spec.scaling));
  const bool yarn = scaling != nullptr ? *scaling == "yarn" : yarn_in_files;
  const auto tell = [&](const char* flag, const std::string& why,
                        const std::string& fix) {
    Add("runtime.flag-unread", {flag, why, fix}, {flag}, config, findings);
  };
  if (runtime.Find("--yarn-attn-factor") != nullptr && yarn) {
    tell(
        "--yarn-attn-factor", "llama.cpp overwrites it while YaRN is on",
        "remove it; write rope.scaling.attn_factor with --override-kv instead");
  }
  if (scaling != nullptr && *scaling == "none") {
    for (const char* flag : {"--rope-scale", "--rope-freq-scale"}) {
      if (runtime.Find(flag) == nullptr) continue;
      tell(flag, "--rope-scaling none sets the scale to 1",
           absl::StrCat("remove ", flag, ", or give --rope-scaling linear"));
    }
  }
  const std::string* const base = runtime.Find("--rope-freq-base");
  if (base != nullptr && gguf != nullptr && gguf->freq_base_swa &&
      !Overrides(runtime, gguf->Key("rope.freq_base_swa"))) {
    tell("--rope-freq-base",
         "it does not reach the sliding layers, which keep rope.freq_base_swa",
         absl::StrCat("give --override-kv ", gguf->Key("rope.freq_base_swa"),
                      "=float:", *base, " beside it if they are meant, too"));
  }
}

// True if the command line changes the rope, or the model's length.
bool ChangesRope(const Runtime& runtime) {
  for (const char* flag : {"--hf-overrides", "--json-model-override-args"}) {
    const std::string* const text = runtime.Find(flag);
    if (text != nullptr && (absl::StrContains(*text, "rope") ||
                            absl::StrContains(*text, "position"))) {
      return true;
    }
  }
  for (const char* flag : {"--rope-scaling", "--rope-scale", "--rope-theta",
                           "--rope-freq-base", "--rope-freq-scale"}) {
    if (runtime.Find(flag) != nullptr) return true;
  }
  return runtime.Find("--override-kv") != nullptr;
}

// Returns the flag that sets the longest sequence, or null.
const char* LengthFlag(const Runtime& runtime) {
  for (const char* flag : {"--max-model-len", "--context-length", "-c"}) {
    if (runtime.Find(flag) != nullptr) return flag;
  }
  return nullptr;
}

// Returns flags that apply YaRN to a model of `claimed` positions. Returns ""
// if one flag cannot express it: layers differ and must not all be scaled, or
// the model has several position axes.
std::string YarnFlags(const Runtime& runtime, const ConfigCase* config,
                      const interpretation::GgufRope* gguf, double factor,
                      std::int64_t claimed) {
  if (config != nullptr) {
    if (config->reference() == nullptr || config->groups().size() > 1) {
      return "";
    }
    const RopeSpec& spec = config->reference()->ropes[0]->spec;
    if (spec.axes || spec.nope || !spec.rope_theta) return "";
  } else if (IsVllm(runtime) || runtime.engine == Runtime::Engine::kSglang ||
             gguf->freq_base_swa || !gguf->sections.empty()) {
    return "";
  }
  if (runtime.engine == Runtime::Engine::kLlamaCpp || config == nullptr) {
    return absl::StrCat("--rope-scaling yarn --rope-scale ",
                        PlainNumber(factor), " --yarn-orig-ctx ", claimed);
  }
  const auto override =
      MergedOverride(*config, {{"rope_type", "yarn"},
                               {"factor", factor},
                               {"original_max_position_embeddings", claimed}});
  if (!override) return "";
  return absl::StrCat(runtime.engine == Runtime::Engine::kSglang
                          ? "--json-model-override-args"
                          : "--hf-overrides",
                      " '", override->dump(), "'");
}

// Finds a served length beyond the model's length, without a scaling.
void CheckServedLength(const Runtime& runtime, const ConfigCase* config,
                       const interpretation::GgufRope* gguf,
                       std::vector<Finding>* findings) {
  const std::int64_t served = RuntimeLength(runtime);
  if (served == 0 || ChangesRope(runtime)) return;
  std::int64_t claimed = 0;
  std::string by;
  if (config != nullptr) {
    claimed = config->MaxPositions().value_or(0);
    by = absl::StrCat("max_position_embeddings of ", config->path());
    // Some scaled files still state the length before scaling.
    if (config->reference() != nullptr) {
      for (const auto& rope : config->reference()->ropes) {
        if (rope->spec.scaling.index() != 0) return;
      }
    }
  } else if (gguf != nullptr && gguf->context_length) {
    claimed = *gguf->context_length;
    by = gguf->Key("context_length");
    if (gguf->factor || !gguf->rope_freqs.empty() ||
        !gguf->factors_long.empty()) {
      return;
    }
  }
  if (claimed == 0 || served <= claimed) return;
  const double factor =
      std::ceil(static_cast<double>(served) / static_cast<double>(claimed));
  const std::string flag = LengthFlag(runtime);
  const std::string yarn = YarnFlags(runtime, config, gguf, factor, claimed);
  Add("runtime.length-beyond",
      {flag, absl::StrCat(served), by, absl::StrCat(claimed),
       yarn.empty() ? "" : absl::StrCat(", or scale: ", yarn)},
      {flag}, config, findings);
}

}  // namespace

const std::string* Runtime::Find(absl::string_view flag) const {
  const std::string* found = nullptr;
  for (const auto& [name, value] : flags) {
    if (name == flag) found = &value;  // the last flag counts
  }
  return found;
}

absl::StatusOr<Runtime> ParseRuntime(absl::string_view command) {
  constexpr std::size_t kMaxCommand = std::size_t{1} << 20;
  if (command.size() > kMaxCommand) {
    return UsageFault(absl::StrCat("has ", command.size(), " bytes; at most ",
                                   kMaxCommand, " are read"));
  }
  const absl::StatusOr<std::vector<std::string>> words = Words(command);
  if (!words.ok()) return words.status();
  Runtime runtime;
  for (std::size_t i = 0; i < words->size(); ++i) {
    const absl::string_view word = (*words)[i];
    if (absl::StartsWith(word, kEnvironment)) {
      SetFromEnvironment(word.substr(kEnvironment.size()), &runtime);
      continue;
    }
    if (!absl::StartsWith(word, "-")) {
      if (runtime.engine != Runtime::Engine::kUnknown) continue;
      if (absl::StrContains(word, "vllm")) {
        runtime.engine = Runtime::Engine::kVllm;
      } else if (absl::StrContains(word, "sglang")) {
        runtime.engine = Runtime::Engine::kSglang;
      } else if (absl::StrContains(word, "llama-") ||
                 absl::StrContains(word, "llama.cpp")) {
        runtime.engine = Runtime::Engine::kLlamaCpp;
      }
      continue;
    }
    const std::size_t equals = word.find('=');
    std::string flag(word.substr(0, equals));
    // vLLM and SGLang take both spellings.
    std::replace(flag.begin() + (flag.size() > 2 ? 2 : 0), flag.end(), '_',
                 '-');
    // vLLM also takes single keys: --hf-overrides.rope_parameters.factor 4
    std::string path;
    if (absl::StartsWith(flag, kDotted)) {
      path = std::string(word.substr(0, equals)).substr(kDotted.size());
      flag = "--hf-overrides";
    }
    if (std::find(std::begin(kFlags), std::end(kFlags), flag) ==
        std::end(kFlags)) {
      continue;
    }
    std::string value;
    if (equals != absl::string_view::npos) {
      value = std::string(word.substr(equals + 1));
    } else if (i + 1 < words->size()) {
      value = (*words)[++i];
    } else {
      return UsageFault(absl::StrCat(flag, " has no value"));
    }
    if (flag == "--ctx-size") flag = "-c";
    if (!path.empty()) {
      const absl::Status set = SetKey(path, value, &runtime);
      if (!set.ok()) return set;
      continue;
    }
    if (WantsJson(flag) && (!interpretation::CheckJsonSize(value).ok() ||
                            !json::parse(value, nullptr, false).is_object())) {
      return UsageFault(absl::StrCat(flag, " is no JSON object"));
    }
    if (flag == "--rope-scaling" && absl::StartsWith(value, "{") &&
        (!interpretation::CheckJsonSize(value).ok() ||
         !json::parse(value, nullptr, false).is_object())) {
      return UsageFault(absl::StrCat(flag, " is no JSON object"));
    }
    if (flag == "--override-kv") {
      // llama.cpp also takes several values with commas between them.
      for (const absl::string_view one : absl::StrSplit(value, ',')) {
        runtime.flags.emplace_back(flag, std::string(one));
      }
      continue;
    }
    runtime.flags.emplace_back(std::move(flag), std::move(value));
  }
  return runtime;
}

std::int64_t RuntimeLength(const Runtime& runtime) {
  for (const char* flag : {"--max-model-len", "--context-length", "-c"}) {
    const std::string* const text = runtime.Find(flag);
    if (text == nullptr || text->empty()) continue;
    if (const std::int64_t length = LengthOf(*text); length > 0) return length;
  }
  return 0;
}

void ApplyRuntime(const Runtime& runtime, interpretation::GgufRope* gguf) {
  for (const auto& [flag, text] : runtime.flags) {
    if (flag != "--override-kv") continue;
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos) continue;
    const std::string key = text.substr(0, equals);
    const std::string value = text.substr(text.find(':', equals) + 1);
    double number = 0;
    const bool is_number = absl::SimpleAtod(value, &number);
    const auto is = [&](absl::string_view name) {
      return key == gguf->Key(name);
    };
    if (is("rope.scaling.type")) gguf->scaling_type = value;
    if (!is_number) continue;
    if (is("rope.freq_base") && number > 1) gguf->freq_base = number;
    if (is("rope.freq_base_swa") && number > 1) gguf->freq_base_swa = number;
    if (is("rope.scaling.factor") && number > 0) gguf->factor = number;
    if (is("rope.scaling.attn_factor")) gguf->attn_factor = number;
    if (is("rope.scaling.yarn_ext_factor")) gguf->yarn_ext_factor = number;
    if (is("rope.scaling.yarn_log_multiplier")) {
      gguf->yarn_log_multiplier = number;
    }
    if (!(number >= 1 && number < 0x1p31)) continue;
    const auto whole = static_cast<std::int64_t>(number);
    if (is("rope.dimension_count")) gguf->dimension_count = whole;
    if (is("rope.dimension_count_swa")) gguf->dimension_count_swa = whole;
    if (is("rope.scaling.original_context_length")) {
      gguf->original_context_length = whole;
    }
  }
  if (IsVllm(runtime)) return;
  const std::string* const scaling = runtime.Find("--rope-scaling");
  if (scaling != nullptr &&
      interpretation::IsAmong(*scaling, "none linear yarn")) {
    gguf->scaling_type = *scaling;
  }
  const auto positive = [&](const char* flag) {
    const auto number = NumberOf(runtime, flag);
    return number && *number > 0 ? number : std::nullopt;
  };
  if (const auto base = positive("--rope-freq-base"); base && *base > 1) {
    gguf->freq_base = base;
  }
  if (const auto scale = positive("--rope-freq-scale")) {
    gguf->factor = 1 / *scale;
  }
  if (const auto factor = positive("--rope-scale")) gguf->factor = factor;
  // The flag is for YaRN; longrope's length can only be in the file.
  if (const auto original = positive("--yarn-orig-ctx");
      original && *original < 0x1p31 && gguf->scaling_type == "yarn") {
    gguf->original_context_length = static_cast<std::int64_t>(*original);
  }
  if (const auto ext = NumberOf(runtime, "--yarn-ext-factor")) {
    gguf->yarn_ext_factor = ext;
  }
  if (const auto beta = positive("--yarn-beta-fast")) {
    gguf->yarn_beta_fast = beta;
  }
  if (const auto beta = positive("--yarn-beta-slow")) {
    gguf->yarn_beta_slow = beta;
  }
}

void CheckRuntime(const Runtime& runtime, const ConfigCase* config,
                  const interpretation::GgufRope* gguf,
                  std::vector<Finding>* findings) {
  if (config != nullptr) CheckOverrides(runtime, *config, findings);
  CheckGoneFlags(runtime, config, findings);
  CheckUnreadFlags(runtime, config, gguf, findings);
  CheckServedLength(runtime, config, gguf, findings);
}

}  // namespace posenc::core::doctor
