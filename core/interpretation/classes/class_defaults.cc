#include "core/interpretation/classes/class_defaults.h"

#include <cstdint>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace posenc::core::interpretation {
namespace {

constexpr ClassDefaults kDefaults[] = {
#include "class_defaults.inc"
};

// The names of a key, and the member with the class's default for that key.
struct KeyNames {
  absl::string_view names;
  std::int64_t ClassDefaults::*value;

  absl::string_view key() const { return names.substr(0, names.find(' ')); }
};
constexpr KeyNames kNames[] = {
    {kWidthNames, &ClassDefaults::hidden_size},
    {kHeadsNames, &ClassDefaults::num_attention_heads},
    {kLayersNames, &ClassDefaults::num_hidden_layers},
    {kLengthNames, &ClassDefaults::max_position_embeddings},
    {"head_dim attention_head_dim kv_channels", &ClassDefaults::head_dim}};

// Returns the class's other name for a key; empty if the class has only the
// usual name.
absl::string_view NameOf(const ClassDefaults& row, absl::string_view key) {
  for (const absl::string_view pair : absl::StrSplit(row.names, ' ')) {
    const std::pair<absl::string_view, absl::string_view> names =
        absl::StrSplit(pair, absl::MaxSplits('=', 1));
    if (names.second == key) return names.first;
  }
  return {};
}

// Fills in absent slices of latent attention with the class's defaults, or else
// with the project's defaults.
void FillSlices(const ClassDefaults* row, const ProfileRules& rules,
                const std::string& model_type, ClassKeys* keys) {
  for (const auto& [name, of_class, rule] :
       {std::tuple("qk_rope_head_dim", &ClassDefaults::qk_rope_head_dim,
                   ReadingRule::kDefaultSlice),
        std::tuple("qk_nope_head_dim", &ClassDefaults::qk_nope_head_dim,
                   ReadingRule::kDefaultRest)}) {
    const ReadingRow* const reading = FindReadingRow(
        rules.profile, rules.version, ModelKey(model_type), rule);
    const std::int64_t value = row != nullptr ? row->*of_class
                               : reading != nullptr
                                   ? static_cast<std::int64_t>(reading->number)
                                   : 0;
    if (keys->config.contains(name) || value == 0) continue;
    keys->config[name] = value;
    keys->filled.emplace_back(name);
  }
}

}  // namespace

const ClassDefaults* FindClassDefaults(absl::string_view model_type) {
  return FindRow(kDefaults, &ClassDefaults::model_types, model_type);
}

ClassKeys ReadAsClass(const JsonObject& config, const ClassDefaults* class_row,
                      const Family& family, const ProfileRules& rules,
                      const std::string& model_type) {
  ClassKeys keys = {.config = config.Copy()};
  if (class_row == nullptr) {
    if (!config.Path().empty() || keys.config.contains("hidden_size") ||
        keys.config.contains("num_attention_heads")) {
      FillSlices(nullptr, rules, model_type, &keys);
    }
    return keys;
  }
  const ClassDefaults& row = *class_row;
  const auto warn = [&](absl::string_view key, absl::string_view fact) {
    config.Warn(key, " ", Shortened(config.At(key)),
                " is not read: ", ClassOf(model_type, rules.project), " ",
                fact);
  };
  // A whole file without a width gets no defaults. A part gets the defaults,
  // because published parts leave out many keys. For example, LLaVA 1.5's part
  // has none of Llama's sizes.
  bool has_width = !config.Path().empty() && !config.Keys().empty();
  for (const KeyNames& one : kNames) {
    const absl::string_view key = one.key();
    if (!IsAmong(key, "hidden_size num_attention_heads head_dim")) continue;
    const std::string all = absl::StrCat(one.names, " ", NameOf(row, key));
    for (const std::string& given : config.Keys()) {
      has_width = has_width || (!given.empty() && IsAmong(given, all));
    }
  }
  for (const KeyNames& one : kNames) {
    const std::string name(one.key());
    const std::string own(NameOf(row, name));
    const std::int64_t of_class = row.*one.value;
    const bool is_width = own == "qk_rope_head_dim";
    const bool has_own = !own.empty() && !is_width && keys.config.contains(own);
    if (has_own) keys.config.emplace(name, keys.config[own]);
    const bool is_given = keys.config.contains(name);
    if (has_own && keys.config[own] != keys.config[name]) {
      // The file has the usual name and the class's name of the key, with
      // different values. The class takes the value of the usual name.
      warn(own, absl::StrCat("takes ", name, " ", Shortened(keys.config[name]),
                             ", which is given too"));
      keys.config[own] = keys.config[name];
    }
    for (const absl::string_view each : absl::StrSplit(one.names, ' ')) {
      const std::string other(each);
      if (other == name || other == own || !keys.config.contains(other) ||
          (of_class == 0 && name != "head_dim")) {
        continue;
      }
      if (!is_given && !keys.config[other].is_null() && of_class > 0 &&
          keys.config[other] != of_class) {
        warn(other, absl::StrCat("reads ", name,
                                 ", which is absent, and takes ", of_class));
      }
      keys.config.erase(other);
    }
    const bool fills =
        name == "hidden_size" || name == "num_attention_heads" ||
        (name == "head_dim" && !is_width && !row.ignores_head_dim);
    if (!is_given && fills && has_width && of_class > 0 &&
        !config.Has("speech_encoder_attention_heads")) {
      keys.config[name] = of_class;
      keys.filled.push_back(name);
    }
  }
  if (family.width == RotaryWidth::kMla && has_width) {
    FillSlices(&row, rules, model_type, &keys);
  }
  const json& head_dim = config.At("head_dim");
  if (row.ignores_head_dim && family.width != RotaryWidth::kMla &&
      config.Contains("head_dim")) {
    const json hidden = keys.config.value("hidden_size", json());
    const json heads = keys.config.value("num_attention_heads", json());
    const bool is_derived =
        hidden.is_number_integer() && heads.is_number_integer() && heads > 0 &&
        head_dim == hidden.get<std::int64_t>() / heads.get<std::int64_t>();
    if (!head_dim.is_null() && !is_derived) {
      warn("head_dim", "takes hidden_size / num_attention_heads");
    }
    keys.config.erase("head_dim");
  }
  if (family.global_head_dim == 0 && config.Contains("global_head_dim")) {
    if (!config.At("global_head_dim").is_null()) {
      warn("global_head_dim", "has heads of one width");
    }
    keys.config.erase("global_head_dim");
  }
  return keys;
}

}  // namespace posenc::core::interpretation
