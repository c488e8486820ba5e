// Checks of a configuration's keys: how they are spelled, and which readers
// read each spelling.

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/error.h"
#include "core/doctor/config_case.h"
#include "core/interpretation/classes/families.h"
#include "core/interpretation/classes/profile.h"

namespace posenc::core::doctor {
namespace {

// Upper bound on the findings about unread keys of one file, and on the
// findings about warnings.
constexpr std::size_t kMostReported = 64;

// Returns a condition that is true for readers that have `rule` for the
// spellings rope_scaling and rope_parameters.
ConfigCase::Condition Spells(ReadingRule rule, const ConfigCase& config) {
  return [rule, type = config.type()](const Reading& reading) {
    const Reader& reader = *reading.reader;
    return interpretation::SpellingRow(reader.profile,
                                       interpretation::VersionOf(reader), type)
               .rule == rule;
  };
}

// Returns the flat keys that older classes read in place of a rope_parameters
// dict with an entry for each layer type. A layer type may have its own key for
// the base. rope_scaling is for the layer type that is scaled.
json OlderKeys(const json& nested, const Family& family) {
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
std::string OlderSpelling(const json& parameters, const Family& family) {
  json beside = json::object();
  json dict = parameters;
  for (const char* key : {"rope_theta", "partial_rotary_factor"}) {
    if (!dict.contains(key)) continue;
    beside[key] = dict[key];
    dict.erase(key);
  }
  // A rope_scaling that was only renamed to rope_parameters still has the older
  // key `type`.
  if (dict.value("rope_type", dict.value("type", json("default"))) !=
      "default") {
    beside["rope_scaling"] = dict;
  }
  if (beside.empty()) beside = OlderKeys(parameters, family);
  if (beside.empty()) return "the model's rope_theta and rope_scaling";
  const std::string text = beside.dump();
  return text.substr(1, text.size() - 2);
}

void CheckNewSpelling(ConfigCase* config) {
  const json& part = config->part();
  if (!IsGiven(part, "rope_parameters") || IsGiven(part, "rope_scaling")) {
    return;
  }
  // Adds no finding if the dict has entries for layer types, but the class has
  // one dict for all layers. A warning already says that the class drops the
  // entries in any spelling.
  if (config->family().known() &&
      config->family().dicts == interpretation::DictRule::kOne &&
      config->family().kinds[0].type.empty() &&
      !IsFlat(part["rope_parameters"])) {
    return;
  }
  const auto drops = Spells(ReadingRule::kParametersUnread, *config);
  const auto drops_share = [&](const Reading& reading) {
    const Reader& reader = *reading.reader;
    return FindReadingRow(reader.profile, interpretation::VersionOf(reader),
                          config->type(),
                          ReadingRule::kShareBeside) != nullptr &&
           reading.ropes[0]->spec.rotary_dim != config->rope().spec.rotary_dim;
  };
  const auto readers = config->Explain([&](const Reading& reading) {
    return !config->IsExplained(reading) &&
           (drops(reading) || drops_share(reading));
  });
  if (readers.empty()) return;
  const auto without_version = [](const Verdict& verdict) {
    return verdict.says.substr(verdict.says.find(": ") + 2);
  };
  NamesByText taken;
  for (const Verdict& verdict : readers) {
    AddName(without_version(verdict), verdict.name, &taken);
  }
  config->Add(
      "config.new-spelling-only",
      {without_version(config->reference()->verdict()), TakenText(taken, "; "),
       OlderSpelling(part["rope_parameters"], config->family())},
      {config->KeyPath("rope_parameters")}, readers);
}

void CheckBothSpellings(ConfigCase* config) {
  const json& part = config->part();
  if (!IsGiven(part, "rope_parameters") || !IsGiven(part, "rope_scaling")) {
    return;
  }
  const auto without = [&](const char* key) {
    return config->ResolveChanged(
        [key](json* language) { language->erase(key); });
  };
  const Ropes older = without("rope_parameters");
  const Ropes newer = without("rope_scaling");
  // Adds no finding if the class merges the dicts or does not read
  // rope_scaling, because a warning already reports this.
  const Reading& hf = config->readings()[0];
  if (hf.status().ok() && !std::ranges::equal(hf.ropes, older, IsSameRope)) {
    return;
  }
  std::size_t group = 0;  // the first group that differs
  while (group < older.size() && IsSameRope(older[group], newer[group])) {
    ++group;
  }
  const bool alike = group == older.size();
  const auto text = [&](const Ropes& ropes) {
    const auto& rope = ropes[alike ? 0 : group];
    return rope.ok() ? DescribeRope(*rope) : "what cannot be read";
  };
  Finding& finding = config->Add(
      "config.both-spellings",
      {text(older), text(newer),
       alike ? "rope_scaling, or keep both: they say the same"
             : "the one that the model was not trained with"},
      {config->KeyPath("rope_scaling"), config->KeyPath("rope_parameters")});
  if (alike) {
    finding.severity = Severity::kNote;
  } else {
    finding.readers =
        config->Explain(Spells(ReadingRule::kParametersReplace, *config));
  }
}

void CheckThetaConflict(ConfigCase* config) {
  std::string key;
  const json* const dict = config->FlatDict(&key);
  if (dict == nullptr) return;
  const auto outer = config->Number("rope_theta");
  const auto inner = NumberAt(*dict, "rope_theta");
  if (!outer || !inner || *outer == *inner) return;
  const auto base = [](const Reading& reading) {
    return reading.ropes[0]->spec.rope_theta;
  };
  // Adds no finding if the class does not read the dict's base, because a
  // warning already reports this.
  const Reading* const reference = config->reference();
  if (reference != nullptr &&
      std::ranges::none_of(reference->ropes, [&](const auto& rope) {
        return rope->spec.rope_theta == inner;
      })) {
    return;
  }
  const auto drops = Spells(ReadingRule::kParametersUnread, *config);
  config->Add("config.theta-conflict",
              {PlainNumber(*outer), key, PlainNumber(*inner)},
              {config->KeyPath("rope_theta"), key + ".rope_theta"},
              config->Explain([&](const Reading& reading) {
                return drops(reading) || base(reading) != base(*reference);
              }));
}

// True if the error is about a key whose path ends in `key`.
bool IsAbout(const absl::Status& status, absl::string_view key) {
  const auto details = GetErrorDetails(status);
  return details &&
         std::ranges::any_of(details->metadata, [key](const auto& item) {
           return item.first == "key" && absl::EndsWith(item.second, key);
         });
}

// Returns the reader's base, or the base that the reader assumed for explicit
// frequencies. Returns nullopt if the reader has no base.
std::optional<double> BaseOf(const Reading& reading) {
  if (!reading.status().ok()) return std::nullopt;
  if (reading.ropes[0]->spec.rope_theta) {
    return reading.ropes[0]->spec.rope_theta;
  }
  const std::string* const assumed = reading.Assumed("rope_theta");
  double base = 0;
  return assumed != nullptr && absl::SimpleAtod(*assumed, &base)
             ? std::optional(base)
             : std::nullopt;
}

void CheckThetaAbsent(ConfigCase* config) {
  const Family& family = config->family();
  const Reading* const reference = config->reference();
  if (reference == nullptr || family.theta_key.empty() ||
      reference->Assumed(family.theta_key) == nullptr || !BaseOf(*reference) ||
      !family.kinds[0].type.empty() || config->HasOtherBase() ||
      config->InDicts("rope_theta").is_number()) {
    return;
  }
  const auto base = [](const Reading& reading) -> std::string {
    if (IsAbout(reading.status(), "rope_theta")) return kRefuses;
    const auto taken = BaseOf(reading);
    return taken ? PlainNumber(*taken) : "";
  };
  const NamesByText taken = config->TakenForAbsent(base);
  std::string facts = TakenText(taken);
  const std::string& usual = taken[0].first;
  std::string wanted = usual;
  const std::set<double> published = PublishedBases(*config);
  if (!published.empty() && published.count(*BaseOf(*reference)) == 0) {
    wanted = PlainNumber(*published.begin());
    facts +=
        Say("theta.published",
            {config->type(), ListText({published.begin(), published.end()})});
  } else if (taken.size() < 2) {
    return;
  }
  config->Add("config.theta-absent", {facts, wanted},
              {config->KeyPath(family.theta_key)},
              config->Explain([&](const Reading& reading) {
                return base(reading) != usual;
              }));
}

// Finds a flat rope_parameters that the class drops or refuses because the
// class has a dict for each layer type.
void CheckDictDropped(ConfigCase* config) {
  const json& part = config->part();
  const Family& family = config->family();
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
    // The flat dict's base is meant for full attention, so a layer type with
    // another default base keeps its default base.
    if (kind.theta != family.kinds[0].theta) entry["rope_theta"] = kind.theta;
    if (!entry.contains("rope_type")) entry["rope_type"] = "default";
    if (!entry.contains("rope_theta")) entry["rope_theta"] = kind.theta;
  }
  const std::string taken =
      config->reference() == nullptr ? "" : DescribeRope(config->rope());
  config->Add("config.dict-dropped",
              {config->KeyPath("rope_parameters"), config->model_type(),
               refuses ? "refuses the file"
                       : absl::StrCat("drops it, and takes ", taken),
               nested.dump()},
              {config->KeyPath("rope_parameters")}, config->ExplainAll());
}

void CheckTypeConflict(const NamedDict& named, ConfigCase* config) {
  const std::string type = TextAt(*named.dict, "type");
  const std::string rope_type = TextAt(*named.dict, "rope_type");
  if (type.empty() || rope_type.empty() ||
      ConfigCase::TypeOf({{"type", type}}) ==
          ConfigCase::TypeOf({{"type", rope_type}})) {
    return;
  }
  // Adds no finding if transformers' class drops the dict, because the class
  // then reads neither type nor rope_type.
  if (config->readings()[0].status().ok() &&
      config->ReadsTheSame(
          [&](json* part) { (*part)[named.place]["rope_type"] = type; })) {
    return;
  }
  config->Add("config.type-conflict", {type, rope_type, named.path},
              {named.path + ".type", named.path + ".rope_type"},
              config->Explain([](const Reading& reading) {
                return reading.reader->profile == interpretation::Profile::kMlx;
              }));
}

void CheckTypeMissing(const NamedDict& named, ConfigCase* config) {
  const json& dict = *named.dict;
  const auto factor = NumberAt(dict, "factor");
  const bool lists = dict.contains("long_factor");
  if (ValueAt(dict, "rope_type").is_string() ||
      ValueAt(dict, "type").is_string() || (!factor && !lists)) {
    return;
  }
  const char* const guess = lists                              ? "longrope"
                            : dict.contains("low_freq_factor") ? "llama3"
                            : IsGiven(dict, "alpha")           ? "dynamic"
                            : config->Original(dict)           ? "yarn"
                                                               : "linear";
  if (config->ReadsTheSame(
          [&](json* part) { (*part)[named.place]["rope_type"] = guess; })) {
    return;  // the class drops the dict
  }
  config->Add(
      "config.type-missing",
      {named.path,
       factor ? absl::StrCat("factor ", PlainNumber(*factor)) : "long_factor",
       guess},
      {named.path + ".rope_type"}, config->ExplainAll());
}

// True if the reader refuses the file because of the type of scaling.
bool RefusesType(const Reading& reading) {
  const absl::Status status = reading.status();
  return (IsAbout(status, "rope_type") || IsAbout(status, ".type")) &&
         absl::StrContains(status.message(), "known");
}

// Returns the known type with the same letters and digits (llama3 for
// "Llama-3"), else "".
std::string SameLetters(absl::string_view text) {
  std::string letters = absl::AsciiStrToLower(text);
  std::erase_if(letters,
                [](unsigned char c) { return !absl::ascii_isalnum(c); });
  const bool known = interpretation::IsAmong(
      letters, "default linear dynamic yarn longrope llama3");
  return known ? letters : "";
}

void CheckTypeUnknown(ConfigCase* config) {
  std::vector<std::string> refuse, know;
  std::vector<Verdict> readers;
  for (const Reading& reading : config->readings()) {
    if (RefusesType(reading)) {
      refuse.emplace_back(reading.reader->title);
      readers.push_back(reading.verdict());
      config->MarkExplained(reading);
    } else if (reading.status().ok()) {
      know.emplace_back(reading.reader->title);
    }
  }
  if (refuse.empty()) return;
  std::string type = "(absent)", path = config->KeyPath("rope_scaling");
  for (const NamedDict& named : config->Dicts()) {
    for (const char* key : {"type", "rope_type"}) {
      const std::string text = TextAt(*named.dict, key);
      if (text.empty() || text == "default") continue;
      type = text;
      path = absl::StrCat(named.path, ".", key);
    }
  }
  std::string spelling = SameLetters(type);
  if (absl::StrContains(type, "yarn")) {
    spelling = Say("type.yarn", {});
  } else if (spelling.empty()) {
    spelling = Say("type.known", {});
  }
  Finding& finding =
      config->Add("config.type-unknown",
                  {type,
                   know.empty() ? "none of its readers"
                                : absl::StrJoin(know, ", ") + " alone",
                   absl::StrJoin(refuse, ", "), spelling},
                  {path}, readers);
  if (type == spelling) {
    finding.fix = absl::StrCat("run it with a reader that knows ", type);
  }
}

// Returns the keys that the findings so far name.
std::set<std::string> ReportedKeys(ConfigCase* config) {
  std::set<std::string> reported;
  for (const Finding& finding : config->findings()) {
    // This finding compares the file with other models, and does not say what a
    // key of the file does.
    if (finding.id == "config.unlike-published") continue;
    reported.insert(finding.keys.begin(), finding.keys.end());
  }
  return reported;
}

// True if a finding names the key, or the rope_type of the key's dict.
bool IsReported(const std::string& key, const std::set<std::string>& reported) {
  const std::string dict = key.substr(0, key.rfind('.'));
  return reported.count(key) > 0 ||
         (dict != key && reported.count(dict + ".rope_type") > 0);
}

}  // namespace

void CheckConfig(ConfigCase* config) {
  CheckDictDropped(config);
  for (const NamedDict& named : config->Dicts()) {
    CheckTypeConflict(named, config);
    CheckTypeMissing(named, config);
  }
  CheckTypeUnknown(config);
  CheckThetaConflict(config);
  CheckThetaAbsent(config);
  CheckBothSpellings(config);
  CheckNewSpelling(config);
}

void CheckUnreadKeys(ConfigCase* config) {
  // Skips keys that a finding names, because the finding says more.
  const std::set<std::string> reported_keys = ReportedKeys(config);
  std::map<std::string, std::set<const Reading*>> unread;
  for (const Reading& reading : config->readings()) {
    if (!reading.status().ok()) continue;
    for (const auto& rope : reading.ropes) {
      for (const std::string& warning : rope->warnings) {
        const std::string key = warning.substr(0, warning.find(" is not read"));
        if (key.find(' ') == std::string::npos &&
            !absl::EndsWith(key, "rope_parameters")) {
          unread[key].insert(&reading);
        }
      }
    }
  }
  std::size_t reported = 0;
  for (const auto& [key, readings] : unread) {
    std::vector<std::string> names;
    for (const Reading* reading : readings) {
      if (!reading->differs()) names.emplace_back(reading->reader->title);
    }
    if (names.empty() || IsReported(key, reported_keys)) continue;
    if (++reported > kMostReported) break;
    // A key that another reader reads must stay.
    const bool none_reads = readings.size() == config->readings().size();
    config->Add("config.key-unread",
                {key, absl::StrJoin(names, ", "),
                 Say(none_reads ? "unread.remove" : "unread.leave", {key})},
                {key});
  }
}

void CheckWarnings(ConfigCase* config) {
  const Reading* const reference = config->reference();
  if (reference == nullptr) return;
  const std::set<std::string> reported = ReportedKeys(config);
  std::set<std::string> warned;
  for (const auto& rope : reference->ropes) {
    for (const std::string& warning : rope->warnings) {
      const std::string key = warning.substr(0, warning.find(' '));
      if (reported.count(key) > 0 || warned.size() == kMostReported ||
          !warned.insert(warning).second) {
        continue;
      }
      Finding& finding = config->Add("config.warned", {warning}, {key});
      // A warning about model_type is only a note, because no number changes.
      if (key == "model_type") finding.severity = Severity::kNote;
    }
  }
}

}  // namespace posenc::core::doctor
