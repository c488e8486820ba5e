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
#include "core/interpretation/classes/profile.h"
#include "core/interpretation/json_object.h"

namespace posenc::core::doctor {
namespace {

using interpretation::GgufRope;
using Engine = Runtime::Engine;

// The known flags. Each flag has a value. Other words are skipped.
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
  json merged = before == nullptr ? json::object() : ParseSmall(*before);
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

json ParseSmall(const std::string& text) {
  // ParseText() limits size and depth, but accepts NaN and infinities, which
  // engines refuse in a flag.
  return interpretation::ParseText(text).text.fault.empty()
             ? json::parse(text, nullptr, false)
             : json(json::value_t::discarded);
}

json Nested(absl::string_view path, json value) {
  std::vector<std::string> keys = absl::StrSplit(path, '.');
  std::reverse(keys.begin(), keys.end());
  for (const std::string& key : keys) {
    value = json{{key, std::move(value)}};
  }
  return value;
}

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
    // vLLM and SGLang accept "-" and "_" in names of flags.
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
    // The old --rope-scaling of vLLM takes JSON. llama.cpp's --rope-scaling
    // takes a word.
    if ((IsOverride(name) ||
         (name == "--rope-scaling" && absl::StartsWith(value, "{"))) &&
        !ParseSmall(value).is_object()) {
      return UsageFault(absl::StrCat(name, " is no JSON object"));
    }
    if (name == "--override-kv") {
      // llama.cpp also takes several values for this flag, with commas between
      // them.
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

}  // namespace posenc::core::doctor
