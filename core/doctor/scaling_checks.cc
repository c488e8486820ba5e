// Checks of a configuration's scaling: factors, lengths, lists.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/doctor/config_case.h"
#include "core/interpretation/classes/profile.h"

namespace posenc::core::doctor {
namespace {

// Returns a fix that removes the scaling from a dict and keeps the dict's base
// and rotated share.
std::string Unscaled(const NamedDict& named, const ConfigCase& config) {
  bool scaling_alone = named.path == config.KeyPath("rope_scaling") ||
                       named.path == config.KeyPath("rope_parameters");
  std::vector<std::string> types;
  for (const auto& [key, value] : named.dict->items()) {
    scaling_alone &= IsScalingKey(key);
    if (key == "type" || key == "rope_type") types.push_back(key);
  }
  if (scaling_alone) return absl::StrCat("remove ", named.path);
  return absl::StrCat(
      "in ", named.path, " set ",
      types.empty() ? "rope_type" : absl::StrJoin(types, " and "),
      " to default and remove factor");
}

void CheckFactor(const NamedDict& named, ConfigCase* config) {
  const double factor = NumberAt(*named.dict, "factor").value_or(0);
  if (!(factor > 0)) return;  // readers refuse a wrong factor
  const std::string key = named.path + ".factor";
  if (factor < 1) {
    config->Add("config.factor-below-one",
                {named.path, factor, 1 / factor, Unscaled(named, *config)},
                {key});
  }
  const double original = config->Original(*named.dict).value_or(0);
  const auto maximum = static_cast<double>(config->MaxPositions().value_or(0));
  if (!(original >= 1) || maximum == 0) return;
  const std::string type = ConfigCase::TypeOf(*named.dict);
  const std::string length_key = config->KeyPath("max_position_embeddings");
  const double raised = std::round(factor * original);
  const double ratio = maximum / original;
  // A published factor may be rounded, which changes only its last decimals.
  if (interpretation::IsAmong(type, "yarn longrope") &&
      std::abs(factor - ratio) > 1e-6 * ratio) {
    config->Add("config.factor-ratio",
                {named.path, factor, maximum, original, ratio, raised},
                {key, length_key});
  }
  if (factor > 1 && maximum == original && !type.empty() && type != "default") {
    config->Add("config.length-not-raised", {factor, maximum, raised},
                {length_key});
  }
}

// Returns the original length that a reader assumes. Returns kRefuses if the
// reader's error names the key, and "" for any other reader.
std::string OriginalTaken(const Reading& reading) {
  constexpr absl::string_view kKey = "original_max_position_embeddings";
  if (const std::string* const value = reading.Assumed(kKey)) return *value;
  return absl::StrContains(reading.status().message(), kKey) ? kRefuses : "";
}

void CheckOriginal(const NamedDict& named, ConfigCase* config) {
  if (!interpretation::IsAmong(ConfigCase::TypeOf(*named.dict),
                               "yarn llama3 longrope") ||
      config->Original(*named.dict)) {
    return;
  }
  const NamesByText taken = config->TakenForAbsent(OriginalTaken);
  if (taken.empty()) return;
  const bool one = taken[0].first != kRefuses;
  config->Add("config.original-absent",
              {named.path, TakenText(taken),
               one ? taken[0].first : "the length of its training"},
              {named.path + ".original_max_position_embeddings"},
              config->Explain([](const Reading& reading) {
                return !OriginalTaken(reading).empty();
              }));
}

void CheckLongRope(const NamedDict& named, ConfigCase* config) {
  const json& dict = *named.dict;
  if (!interpretation::IsAmong(ConfigCase::TypeOf(dict), "longrope yarn") ||
      !(dict.contains("short_factor") || dict.contains("long_factor"))) {
    return;
  }
  const std::vector<std::string> keys = {named.path + ".short_factor",
                                         named.path + ".long_factor"};
  const std::vector<double> shorter = NumbersOf(ValueAt(dict, "short_factor"));
  const std::vector<double> longer = NumbersOf(ValueAt(dict, "long_factor"));
  // Reads the width from the file without its scaling, because the width does
  // not depend on the scaling.
  const auto bare = config->ResolveChanged([](json* language) {
    language->erase("rope_scaling");
    language->erase("rope_parameters");
    if (!language->contains("rope_theta")) (*language)["rope_theta"] = 1e4;
  })[0];
  const std::size_t pairs = bare.ok() && !bare->spec.nope ? bare->pairs() : 0;
  if (pairs > 0 && (shorter.size() != pairs || longer.size() != pairs)) {
    config->Add("config.longrope-lengths",
                {Say("longrope.lengths", {shorter.size(), longer.size()}),
                 pairs, bare->spec.rotary_dim},
                keys);
    return config->MarkRefusals();
  }
  const auto original = config->Original(dict);
  const auto maximum = static_cast<double>(config->MaxPositions().value_or(0));
  if (shorter == longer || maximum <= original.value_or(0)) return;
  const double switches =
      original.value_or(config->reference() == nullptr
                            ? 0
                            : config->rope().original_max_position_embeddings);
  config->Add("config.longrope-switch",
              {switches >= 1 ? PlainNumber(switches) : "some", maximum}, keys,
              config->ExplainAll());
}

void CheckDynamic(const NamedDict& named, ConfigCase* config) {
  if (ConfigCase::TypeOf(*named.dict) != "dynamic") return;
  // Adds no finding if no rope is dynamic. For example, HunYuan's alpha in a
  // dict of type dynamic sets one base for every length.
  const Reading* const reference = config->reference();
  if (reference != nullptr &&
      std::ranges::none_of(reference->ropes, [](const auto& rope) {
        return std::holds_alternative<DynamicNtkScaling>(rope->spec.scaling);
      })) {
    return;
  }
  const auto maximum = config->MaxPositions();
  // With alpha, vLLM's modules compute a different encoding, which this finding
  // does not explain.
  const bool has_alpha = IsGiven(*named.dict, "alpha");
  config->Add(
      "config.dynamic-ntk", {maximum ? absl::StrCat(*maximum) : "the maximum"},
      {named.path + ".rope_type"},
      config->Explain([has_alpha](const Reading& reading) {
        return !has_alpha ||
               !interpretation::RulesOf(reading.reader->profile).vllm_modules;
      }));
}

// True if the reference ignores the scaling in the dict.
bool Drops(const NamedDict& named, const ConfigCase& config) {
  return config.ReadsTheSame([&named](json* part) {
    json& dict = (*part)[named.place];
    for (const auto& [key, value] : named.dict->items()) {
      if (IsScalingKey(key)) dict.erase(key);
    }
  });
}

}  // namespace

void CheckScaling(ConfigCase* config) {
  // In a file with more than kMostTried dicts, Drops() is not called, because
  // each call takes long. No class has so many dicts.
  constexpr std::size_t kMostTried = 4;
  const std::vector<NamedDict> dicts = config->Dicts();
  for (const NamedDict& named : dicts) {
    // A scaling that the reference drops needs no advice.
    if (dicts.size() <= kMostTried && Drops(named, *config)) continue;
    CheckFactor(named, config);
    CheckOriginal(named, config);
    CheckLongRope(named, config);
    CheckDynamic(named, config);
  }
}

}  // namespace posenc::core::doctor
