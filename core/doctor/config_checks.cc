// Checks of a configuration's spellings: its keys, and the readers of each.

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/doctor/config_case.h"
#include "core/error.h"
#include "core/interpretation/content_hash.h"
#include "core/interpretation/families.h"
#include "core/interpretation/presets.h"
#include "core/interpretation/profile.h"

namespace posenc::core::doctor {
namespace {

using nlohmann::json;

// Upper bound on findings about one file's unread keys or warnings.
constexpr std::size_t kMostTold = 64;

// True for a dict without entries for layer types.
bool IsFlat(const json& dict) {
  return dict.is_object() && !dict.empty() &&
         std::none_of(dict.begin(), dict.end(),
                      [](const json& value) { return value.is_object(); });
}

bool IsGiven(const json& part, const char* key) {
  const auto it = part.find(key);
  return it != part.end() && !it->is_null() && *it != json::object();
}

// Returns verdict.says without its version.
std::string Says(const Verdict& verdict) {
  const std::size_t at = verdict.says.find(": ");
  return at == std::string::npos ? verdict.says : verdict.says.substr(at + 2);
}

// Describes the reference's rope of the first group; "" without a reference.
std::string ReferenceText(const ConfigCase& config) {
  const Reading* const reference = config.reference();
  return reference == nullptr ? "" : DescribeRope(*reference->ropes[0]);
}

// Returns the reader's rule for the two spellings.
interpretation::ReadingRule Spelling(const Reading& reading,
                                     const ConfigCase& config) {
  const interpretation::Reader& reader = *reading.reader;
  return interpretation::SpellingRow(
             reader.profile, interpretation::VersionOf(reader), config.type())
      .rule;
}

bool Drops(const Reading& reading, const ConfigCase& config) {
  return Spelling(reading, config) ==
         interpretation::ReadingRule::kParametersUnread;
}

// Returns the keys that older classes had for a rope_parameters with an entry
// for each layer type: those of full attention, and the sliding layers' base.
json OlderKeys(const json& nested, const interpretation::Family& family) {
  json keys = json::object();
  for (const interpretation::LayerKind& kind : family.kinds) {
    const auto entry = nested.find(std::string(kind.type));
    if (kind.type.empty() || entry == nested.end() || !entry->is_object()) {
      continue;
    }
    if (!kind.theta_key.empty() && entry->contains("rope_theta")) {
      keys[std::string(kind.theta_key)] = (*entry)["rope_theta"];
    }
    if (kind.scaled &&
        entry->value("rope_type", json("default")) != "default") {
      keys["rope_scaling"] = *entry;
      keys["rope_scaling"].erase("rope_theta");
    }
  }
  return keys;
}

// Returns `parameters` in the old spelling, as text to paste.
std::string OlderSpelling(const json& parameters,
                          const interpretation::Family& family) {
  json beside = json::object();
  json dict = parameters;
  for (const char* key : {"rope_theta", "partial_rotary_factor"}) {
    if (!dict.contains(key)) continue;
    beside[key] = dict[key];
    dict.erase(key);
  }
  // A renamed dict may still have the older key of the type.
  if (dict.value("rope_type", dict.value("type", json("default"))) !=
      "default") {
    beside["rope_scaling"] = dict;
  }
  if (beside.empty()) beside = OlderKeys(parameters, family);
  if (beside.empty()) return "the model's rope_theta and rope_scaling";
  const std::string text = beside.dump();
  return text.substr(1, text.size() - 2);
}

// Returns "A, B take this; C takes that" for the readers' interpretations.
std::string TakenText(const std::vector<Verdict>& verdicts) {
  std::vector<std::pair<std::string, std::vector<std::string>>> by_text;
  for (const Verdict& verdict : verdicts) {
    const std::string says = Says(verdict);
    const auto at =
        std::find_if(by_text.begin(), by_text.end(),
                     [&](const auto& group) { return group.first == says; });
    if (at == by_text.end()) {
      by_text.push_back({says, {verdict.name}});
    } else {
      at->second.push_back(verdict.name);
    }
  }
  std::vector<std::string> parts;
  parts.reserve(by_text.size());
  for (const auto& [says, names] : by_text) {
    parts.push_back(absl::StrCat(absl::StrJoin(names, ", "),
                                 names.size() == 1 ? " takes " : " take ",
                                 says));
  }
  return absl::StrJoin(parts, "; ");
}

void CheckNewSpelling(ConfigCase* config) {
  const json& part = config->part();
  if (!IsGiven(part, "rope_parameters") || IsGiven(part, "rope_scaling")) {
    return;
  }
  // A class with one dict for all layers drops entries for layer types, and a
  // warning says so: no other spelling would help.
  if (config->known_family() &&
      config->family().dicts == interpretation::DictRule::kOne &&
      config->family().kinds[0].type.empty() &&
      !IsFlat(part["rope_parameters"])) {
    return;
  }
  const std::vector<Verdict> readers =
      config->Explain([&](const Reading& reading) {
        return Drops(reading, *config) && !config->IsExplained(reading);
      });
  if (readers.empty()) return;
  Finding& finding =
      config->Add("config.new-spelling-only",
                  {ReferenceText(*config), TakenText(readers),
                   OlderSpelling(part["rope_parameters"], config->family())},
                  {config->KeyPath("rope_parameters")});
  finding.readers = readers;
  JudgeBySize(&finding);
}

std::string TextOf(const std::vector<std::optional<ResolvedRope>>& ropes) {
  return !ropes.empty() && ropes[0] ? DescribeRope(*ropes[0])
                                    : "what cannot be read";
}

void CheckBothSpellings(ConfigCase* config) {
  const json& part = config->part();
  if (!IsGiven(part, "rope_parameters") || !IsGiven(part, "rope_scaling")) {
    return;
  }
  const auto old_one = config->ResolveOther(config->Changed(
      [](json* language) { language->erase("rope_parameters"); }));
  const auto new_one = config->ResolveOther(
      config->Changed([](json* language) { language->erase("rope_scaling"); }));
  const bool alike = SameRopes(old_one, new_one);
  Finding& finding = config->Add(
      "config.both-spellings",
      {TextOf(old_one), TextOf(new_one),
       alike ? "rope_scaling, or keep both: they say the same"
             : "the one that the model was not trained with"},
      {config->KeyPath("rope_scaling"), config->KeyPath("rope_parameters")});
  if (alike) {
    finding.severity = Severity::kNote;
  } else {
    finding.readers = config->Explain([&](const Reading& reading) {
      return Spelling(reading, *config) ==
             interpretation::ReadingRule::kParametersReplace;
    });
  }
}

void CheckThetaConflict(ConfigCase* config) {
  std::string key;
  const json* const dict = config->FlatDict(&key);
  if (dict == nullptr) return;
  const auto outer = config->Number("rope_theta");
  const auto inner = config->Number(*dict, "rope_theta");
  if (!outer || !inner || *outer == *inner) return;
  // If the class reads neither key, the choice does not matter.
  const Reading* const reference = config->reference();
  if (reference != nullptr &&
      std::none_of(reference->ropes.begin(), reference->ropes.end(),
                   [&](const auto& rope) {
                     return rope->spec.rope_theta == inner ||
                            rope->spec.rope_theta == outer;
                   })) {
    return;
  }
  Finding& finding = config->Add(
      "config.theta-conflict", {PlainNumber(*outer), key, PlainNumber(*inner)},
      {config->KeyPath("rope_theta"), key + ".rope_theta"});
  const auto base = [](const Reading& reading) {
    return reading.ropes[0]->spec.rope_theta;
  };
  finding.readers = config->Explain([&](const Reading& reading) {
    return Drops(reading, *config) ||
           base(reading) != base(*config->reference());
  });
}

// Returns the bases of published presets with the same model type.
std::set<double> PublishedBases(const ConfigCase& config) {
  std::set<double> bases;
  const Reach reach = {4096, config.reach().stop};
  for (const interpretation::Preset& preset : interpretation::Presets()) {
    json root = json::parse(preset.config_json, nullptr, false);
    std::string type;
    LanguagePartOf(&root, &type, nullptr);
    if (interpretation::ModelKey(type) != config.type()) continue;
    const auto groups = GroupLayers(root, reach);
    const auto rope =
        ResolveText(std::string(preset.config_json),
                    *interpretation::FindReader("hf"), groups[0], reach);
    if (rope.ok() && rope->spec.rope_theta) {
      bases.insert(*rope->spec.rope_theta);
    }
  }
  return bases;
}

// Returns the base of the frequencies, or else the assumed one.
std::optional<double> BaseOf(const ResolvedRope& rope) {
  if (rope.spec.rope_theta) return rope.spec.rope_theta;
  for (const Assumption& assumption : rope.assumptions) {
    double base = 0;
    if (assumption.field == "rope_theta" &&
        absl::SimpleAtod(assumption.value, &base)) {
      return base;
    }
  }
  return std::nullopt;
}

// True if the reader fails because the base is absent.
bool MissesBase(const Reading& reading) {
  const auto details = GetErrorDetails(reading.status());
  if (!details) return false;
  return std::any_of(
      details->metadata.begin(), details->metadata.end(), [](const auto& item) {
        return item.first == "key" && absl::EndsWith(item.second, "rope_theta");
      });
}

void CheckThetaAbsent(ConfigCase* config) {
  const Reading* const reference = config->reference();
  if (reference == nullptr || !BaseOf(*reference->ropes[0])) return;
  const interpretation::Family& family = config->family();
  if (family.theta_key.empty() || !family.kinds[0].type.empty() ||
      !family.rope_parameters.empty()) {
    return;
  }
  for (const absl::string_view key :
       {absl::string_view("rope_theta"), family.theta_key}) {
    if (config->Number(key)) return;
  }
  for (const NamedDict& dict : config->Dicts()) {
    if (config->Number(*dict.dict, "rope_theta")) return;
  }
  if (config->HasOtherBase()) return;
  const auto attention = config->part().find("attn_config");
  if (attention != config->part().end() &&
      config->Number(*attention, "rope_theta")) {
    return;
  }
  const double taken = *BaseOf(*reference->ropes[0]);
  std::vector<std::string> facts;
  facts.push_back(
      absl::StrCat(reference->reader->title, " takes ", PlainNumber(taken)));
  const auto other_base = [&](const Reading& reading) {
    return reading.status().ok() &&
           BaseOf(*reading.ropes[0]).value_or(taken) != taken;
  };
  for (const Reading& reading : config->readings()) {
    if (other_base(reading)) {
      facts.push_back(absl::StrCat(reading.reader->title, " ",
                                   PlainNumber(*BaseOf(*reading.ropes[0]))));
    }
  }
  for (const Reading& reading : config->readings()) {
    if (!MissesBase(reading)) continue;
    facts.push_back(absl::StrCat(reading.reader->title, " refuses"));
    config->MarkExplained(reading);
  }
  const std::set<double> published = PublishedBases(*config);
  double wanted = taken;
  if (!published.empty() && published.count(taken) == 0) {
    wanted = *published.begin();
    facts.push_back(absl::StrCat(
        "models of type ", config->type(), " were published with ",
        absl::StrJoin(published, ", ", [](std::string* out, double base) {
          absl::StrAppend(out, PlainNumber(base));
        })));
  }
  if (facts.size() < 2) return;
  Finding& finding = config->Add(
      "config.theta-absent", {absl::StrJoin(facts, ", "), PlainNumber(wanted)},
      {config->KeyPath(family.theta_key)});
  finding.readers = config->Explain(other_base);
}

// Finds a flat rope_parameters that its class drops or refuses, because the
// class has a dict for each layer type.
void CheckDictDropped(ConfigCase* config) {
  const json& part = config->part();
  const interpretation::Family& family = config->family();
  const bool refuses = family.dicts != interpretation::DictRule::kMerged;
  if ((refuses && family.dicts != interpretation::DictRule::kTyped &&
       family.dicts != interpretation::DictRule::kNested) ||
      family.kinds[0].type.empty() || !IsGiven(part, "rope_parameters") ||
      !IsFlat(part["rope_parameters"])) {
    return;
  }
  json nested = json::object();
  for (const interpretation::LayerKind& kind : family.kinds) {
    json& entry = nested[std::string(kind.type)];
    if (kind.scaled) entry = part["rope_parameters"];
    // The base in the dict is full attention's.
    if (kind.theta != family.kinds[0].theta) entry["rope_theta"] = kind.theta;
    if (!entry.contains("rope_type")) entry["rope_type"] = "default";
    if (!entry.contains("rope_theta")) entry["rope_theta"] = kind.theta;
  }
  Finding& finding = config->Add(
      "config.dict-dropped",
      {config->KeyPath("rope_parameters"), config->model_type(),
       refuses ? "refuses the file"
               : absl::StrCat("drops it, and takes ", ReferenceText(*config)),
       nested.dump()},
      {config->KeyPath("rope_parameters")});
  finding.readers = config->Explain([](const Reading&) { return true; });
}

std::string Canonical(const std::string& type) {
  return ConfigCase::TypeOf(json{{"type", type}});
}

void CheckTypes(ConfigCase* config) {
  for (const NamedDict& named : config->Dicts()) {
    const json& dict = *named.dict;
    const auto type = dict.find("type");
    const auto rope_type = dict.find("rope_type");
    const bool has_type = type != dict.end() && type->is_string();
    const bool has_rope_type =
        rope_type != dict.end() && rope_type->is_string();
    if (has_type && has_rope_type &&
        Canonical(type->get<std::string>()) !=
            Canonical(rope_type->get<std::string>())) {
      Finding& finding = config->Add(
          "config.type-conflict",
          {type->get<std::string>(), rope_type->get<std::string>(), named.path},
          {named.path + ".type", named.path + ".rope_type"});
      finding.readers = config->Explain([&](const Reading& reading) {
        return reading.reader->profile == interpretation::Profile::kMlx;
      });
    }
    if (has_type || has_rope_type) continue;
    const auto factor = config->Number(dict, "factor");
    const bool lists = dict.contains("long_factor");
    if (!factor && !lists) continue;
    const char* const guess = lists                              ? "longrope"
                              : dict.contains("low_freq_factor") ? "llama3"
                              : config->Original(dict)           ? "yarn"
                                                                 : "linear";
    if (config->ReadsTheSame(config->Changed(
            [&](json* part) { (*part)[named.place]["rope_type"] = guess; }))) {
      continue;  // the class drops the dict
    }
    Finding& finding = config->Add(
        "config.type-missing",
        {named.path,
         factor ? absl::StrCat("factor ", PlainNumber(*factor)) : "long_factor",
         guess},
        {named.path + ".rope_type"});
    finding.readers = config->Explain([](const Reading&) { return true; });
  }
}

// True if the reader refuses the type of scaling.
bool RefusesType(const Reading& reading) {
  const auto details = GetErrorDetails(reading.status());
  if (!details) return false;
  for (const auto& [name, value] : details->metadata) {
    if (name == "key" && (absl::EndsWith(value, "rope_type") ||
                          absl::EndsWith(value, ".type"))) {
      return absl::StrContains(reading.status().message(), "known");
    }
  }
  return false;
}

// Returns the type with the same letters and digits: llama3 for "Llama-3".
std::string SameLetters(absl::string_view text) {
  std::string letters;
  for (const char c : text) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c))) {
      letters.push_back(absl::ascii_tolower(static_cast<unsigned char>(c)));
    }
  }
  for (const absl::string_view type :
       {"default", "linear", "dynamic", "yarn", "longrope", "llama3"}) {
    if (letters == type) return std::string(type);
  }
  return "";
}

void CheckTypeUnknown(ConfigCase* config) {
  std::vector<std::string> refuse, know;
  for (const Reading& reading : config->readings()) {
    if (RefusesType(reading)) {
      refuse.emplace_back(reading.reader->title);
      config->MarkExplained(reading);
    } else if (reading.status().ok()) {
      know.emplace_back(reading.reader->title);
    }
  }
  if (refuse.empty()) return;
  std::string type = "(absent)", path = config->KeyPath("rope_scaling");
  std::string spelling =
      "as one of the types that its readers know: linear, "
      "dynamic, yarn, longrope, llama3";
  for (const NamedDict& named : config->Dicts()) {
    for (const char* key : {"type", "rope_type"}) {
      const auto it = named.dict->find(key);
      if (it == named.dict->end() || !it->is_string()) continue;
      const auto text = it->get<std::string>();
      if (text == "default") continue;
      type = text;
      path = absl::StrCat(named.path, ".", key);
      if (absl::StrContains(text, "yarn")) {
        spelling =
            "yarn, with the attention_factor that the model was trained "
            "with";
      } else if (const std::string near = SameLetters(text); !near.empty()) {
        spelling = near;
      }
    }
  }
  Finding& finding =
      config->Add("config.type-unknown",
                  {type,
                   know.empty() ? "none of its readers"
                                : absl::StrJoin(know, ", ") + " alone",
                   absl::StrJoin(refuse, ", "), spelling},
                  {path});
  if (type == spelling) {
    finding.fix = absl::StrCat("run it with a reader that knows ", type);
  }
  for (const Reading& reading : config->readings()) {
    if (RefusesType(reading)) finding.readers.push_back(reading.verdict());
  }
}

// True if a finding names the key, or the type of its dict.
bool IsTold(const std::string& key, const std::set<std::string>& told) {
  const std::string dict = key.substr(0, key.rfind('.'));
  return told.count(key) > 0 ||
         (dict != key && told.count(dict + ".rope_type") > 0);
}

}  // namespace

void CheckConfig(ConfigCase* config) {
  CheckDictDropped(config);
  CheckTypes(config);
  CheckTypeUnknown(config);
  CheckThetaConflict(config);
  CheckThetaAbsent(config);
  CheckBothSpellings(config);
  CheckNewSpelling(config);
}

void CheckUnreadKeys(ConfigCase* config) {
  // These keys have findings that say more.
  std::set<std::string> told_keys;
  for (const Finding& finding : config->findings()) {
    told_keys.insert(finding.keys.begin(), finding.keys.end());
  }
  std::map<std::string, std::vector<std::string>> by_key;
  std::map<std::string, std::size_t> unread;  // number of readers, of all
  constexpr char kMark[] = " is not read";
  for (const Reading& reading : config->readings()) {
    if (!reading.status().ok()) continue;
    std::set<std::string> keys;
    for (const auto& rope : reading.ropes) {
      for (const std::string& warning : rope->warnings) {
        const std::size_t at = warning.find(kMark);
        if (at == std::string::npos) continue;
        const std::string key = warning.substr(0, at);
        if (key.find(' ') == std::string::npos &&
            !absl::EndsWith(key, "rope_parameters")) {
          keys.insert(key);
        }
      }
    }
    for (const std::string& key : keys) {
      ++unread[key];
      if (!reading.differs()) by_key[key].emplace_back(reading.reader->title);
    }
  }
  std::size_t told = 0;
  for (const auto& [key, readers] : by_key) {
    if (IsTold(key, told_keys)) continue;
    if (++told > kMostTold) break;
    // A key that another reader reads must stay.
    config->Add(
        "config.key-unread",
        {key, absl::StrJoin(readers, ", "),
         unread[key] == config->readings().size()
             ? absl::StrCat("remove ", key,
                            ", or leave it: the numbers are the same without "
                            "it")
             : absl::StrCat("nothing is to be done: their numbers are the same "
                            "without ",
                            key, ", which others read")},
        {key});
  }
}

void CheckWarnings(ConfigCase* config) {
  const Reading* const reference = config->reference();
  if (reference == nullptr) return;
  std::set<std::string> told;
  for (const Finding& finding : config->findings()) {
    // Other files' values say nothing of what this file's key does.
    if (finding.id == "config.unlike-published") continue;
    told.insert(finding.keys.begin(), finding.keys.end());
  }
  std::set<std::string> warned;
  for (const auto& rope : reference->ropes) {
    for (const std::string& warning : rope->warnings) {
      const std::string key = warning.substr(0, warning.find(' '));
      if (IsTold(key, told) || warned.size() == kMostTold ||
          !warned.insert(warning).second) {
        continue;
      }
      Finding& finding = config->Add("config.warned", {warning}, {key});
      // Reading a type as another class changes no number.
      if (key == "model_type") finding.severity = Severity::kNote;
    }
  }
}

}  // namespace posenc::core::doctor
