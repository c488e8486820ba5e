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
#include "core/error.h"
#include "core/interpretation/profile.h"

namespace posenc::core::doctor {
namespace {

using nlohmann::json;

// Returns max_position_embeddings as text for messages.
std::string LengthText(double length) {
  return length < 0x1p53 ? absl::StrCat(static_cast<std::int64_t>(length))
                         : PlainNumber(length);
}

bool NeedsOriginal(const std::string& type) {
  return interpretation::IsAmong(type, "yarn llama3 longrope");
}

// Says how to remove the scaling from a dict and keep its base and share.
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
  const auto factor = config->Number(*named.dict, "factor");
  const std::string type = ConfigCase::TypeOf(*named.dict);
  const auto original = config->Original(*named.dict);
  const auto maximum = config->MaxPositions();
  if (!factor) return;
  const std::string key = named.path + ".factor";
  if (!(*factor > 0)) return;  // readers report it
  if (*factor < 1) {
    config->Add("config.factor-below-one",
                {named.path, PlainNumber(*factor), PlainNumber(1 / *factor),
                 Unscaled(named, *config)},
                {key});
  }
  if (!original || !maximum || !(*original >= 1)) return;
  const auto length = static_cast<double>(*maximum);
  const double ratio = length / *original;
  // Published factors are rounded in their last decimals, at most.
  if (interpretation::IsAmong(type, "yarn longrope") &&
      std::abs(*factor - ratio) > 1e-6 * ratio) {
    const std::string raised =
        absl::StrCat("\"max_position_embeddings\": ",
                     LengthText(std::round(*factor * *original)));
    config->Add("config.factor-ratio",
                {named.path, PlainNumber(*factor), absl::StrCat(*maximum),
                 LengthText(*original), PlainNumber(ratio), raised},
                {key, config->KeyPath("max_position_embeddings")});
  }
  if (*factor > 1 && length == *original && !type.empty() &&
      type != "default") {
    config->Add("config.length-not-raised",
                {PlainNumber(*factor), absl::StrCat(*maximum),
                 LengthText(std::round(*factor * *original))},
                {config->KeyPath("max_position_embeddings")});
  }
}

// Returns the original length that a reader assumes: a number, "refuses", or ""
// if it need not assume one.
std::string OriginalTaken(const Reading& reading) {
  constexpr absl::string_view kKey = "original_max_position_embeddings";
  for (const auto& rope : reading.ropes) {
    if (!rope.ok()) {
      return absl::StrContains(rope.status().message(), kKey) ? "refuses" : "";
    }
    for (const Assumption& assumption : rope->assumptions) {
      if (absl::EndsWith(assumption.field, kKey)) return assumption.value;
    }
  }
  return "";
}

// Returns "transformers and vLLM take 131072, mlx-lm 4096, llama.cpp refuses".
std::string OriginalsText(const ConfigCase& config) {
  std::vector<std::pair<std::string, std::vector<std::string>>> groups;
  for (const Reading& reading : config.readings()) {
    const std::string taken = OriginalTaken(reading);
    if (taken.empty()) continue;
    const auto at =
        std::find_if(groups.begin(), groups.end(),
                     [&](const auto& group) { return group.first == taken; });
    if (at == groups.end()) {
      groups.push_back({taken, {std::string(reading.reader->title)}});
    } else {
      at->second.emplace_back(reading.reader->title);
    }
  }
  std::vector<std::string> facts;
  bool has_verb = false;
  for (const auto& [taken, names] : groups) {
    const bool one = names.size() == 1;
    const char* verb = "";
    if (taken == "refuses") {
      facts.push_back(absl::StrCat(absl::StrJoin(names, ", "),
                                   one ? " refuses" : " refuse"));
      continue;
    }
    if (!has_verb) verb = one ? "takes " : "take ";
    has_verb = true;
    facts.push_back(absl::StrCat(absl::StrJoin(names, ", "), " ", verb, taken));
  }
  return absl::StrJoin(facts, ", ");
}

void CheckOriginal(const NamedDict& named, ConfigCase* config) {
  const std::string type = ConfigCase::TypeOf(*named.dict);
  if (!NeedsOriginal(type) || config->Original(*named.dict)) return;
  std::string taken;
  for (const Reading& reading : config->readings()) {
    const std::string own = OriginalTaken(reading);
    if (own == "refuses") config->MarkExplained(reading);
    if (taken.empty() && own != "refuses") taken = own;
  }
  const std::string facts = OriginalsText(*config);
  if (facts.empty()) return;
  if (taken.empty()) taken = "the length of its training";
  Finding& finding =
      config->Add("config.original-absent", {named.path, facts, taken},
                  {named.path + ".original_max_position_embeddings"});
  finding.readers = config->Explain(
      [](const Reading& reading) { return !OriginalTaken(reading).empty(); });
  JudgeBySize(&finding);
}

std::vector<double> List(const json& dict, const char* key) {
  std::vector<double> values;
  const auto it = dict.find(key);
  if (it == dict.end() || !it->is_array()) return values;
  for (const json& value : *it) {
    if (value.is_number()) values.push_back(value.get<double>());
  }
  return values;
}

void CheckLongRope(const NamedDict& named, ConfigCase* config) {
  const json& dict = *named.dict;
  const std::string type = ConfigCase::TypeOf(dict);
  const bool lists =
      dict.contains("short_factor") || dict.contains("long_factor");
  if (!(type == "longrope" || (type == "yarn" && lists)) || !lists) return;
  const std::vector<double> shorter = List(dict, "short_factor");
  const std::vector<double> longer = List(dict, "long_factor");
  // The width does not depend on the scaling.
  const auto bare = config->ResolveOther(config->Changed([](json* language) {
    language->erase("rope_scaling");
    language->erase("rope_parameters");
    if (!language->contains("rope_theta")) (*language)["rope_theta"] = 1e4;
  }));
  if (!bare.empty() && bare[0] && !bare[0]->spec.nope) {
    const auto pairs = static_cast<std::size_t>(bare[0]->pairs());
    if (shorter.size() != pairs || longer.size() != pairs) {
      config->Add("config.longrope-lengths",
                  {absl::StrCat("short_factor has ", shorter.size(),
                                " values and long_factor ", longer.size()),
                   absl::StrCat(pairs), absl::StrCat(bare[0]->spec.rotary_dim)},
                  {named.path + ".short_factor", named.path + ".long_factor"});
      for (const Reading& reading : config->readings()) {
        if (!reading.status().ok()) config->MarkExplained(reading);
      }
      return;
    }
  }
  const auto original = config->Original(dict);
  const auto maximum = config->MaxPositions();
  if (shorter == longer || !maximum ||
      (original && static_cast<double>(*maximum) <= *original)) {
    return;
  }
  const Reading* const reference = config->reference();
  const double switches =
      original ? *original
      : reference != nullptr
          ? static_cast<double>(
                reference->ropes[0]->original_max_position_embeddings)
          : 0;
  const std::string at = switches >= 1 ? LengthText(switches) : "some";
  Finding& finding = config->Add(
      "config.longrope-switch",
      {at,
       "transformers chooses by the call's length, vLLM and llama.cpp by the "
       "longest that they serve, mlx-lm always takes the long list",
       LengthText(static_cast<double>(*maximum))},
      {named.path + ".short_factor", named.path + ".long_factor"});
  finding.readers = config->Explain([](const Reading&) { return true; });
}

void CheckDynamic(const NamedDict& named, ConfigCase* config) {
  if (ConfigCase::TypeOf(*named.dict) != "dynamic") return;
  // HunYuan's alpha has this type, but sets one base for every length.
  const Reading* const reference = config->reference();
  if (reference != nullptr &&
      std::none_of(reference->ropes.begin(), reference->ropes.end(),
                   [](const auto& rope) {
                     return std::holds_alternative<DynamicNtkScaling>(
                         rope->spec.scaling);
                   })) {
    return;
  }
  const auto maximum = config->MaxPositions();
  Finding& finding =
      config->Add("config.dynamic-ntk",
                  {maximum ? absl::StrCat(*maximum) : "the maximum",
                   "transformers and mlx-lm compute it anew as a sequence "
                   "grows, vLLM once"},
                  {named.path + ".rope_type"});
  finding.readers = config->Explain([](const Reading&) { return true; });
}

}  // namespace

void CheckScaling(ConfigCase* config) {
  // No class has dicts for more layer types; a file may have more, and trying
  // each takes long.
  constexpr std::size_t kMostTried = 4;
  const std::vector<NamedDict> dicts = config->Dicts();
  for (const NamedDict& named : dicts) {
    // A scaling that the reference drops needs no advice.
    if (dicts.size() <= kMostTried && config->Drops(named)) continue;
    CheckFactor(named, config);
    CheckOriginal(named, config);
    CheckLongRope(named, config);
    CheckDynamic(named, config);
  }
}

}  // namespace posenc::core::doctor
