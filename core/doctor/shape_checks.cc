// Checks of a configuration's widths, layers and axes, also against presets.

#include <algorithm>
#include <bit>
#include <cmath>
#include <initializer_list>
#include <numeric>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/doctor/config_case.h"
#include "core/interpretation/classes/class_defaults.h"

namespace posenc::core::doctor {
namespace {

void CheckPartialDefault(ConfigCase* config) {
  const Family& family = config->family();
  if (config->reference() == nullptr || config->Number(family.partial_key) ||
      config->reference()->Assumed(family.partial_key) == nullptr) {
    return;
  }
  const auto width = [](const Reading& reading) {
    return reading.status().ok()
               ? absl::StrCat(reading.ropes[0]->spec.rotary_dim)
               : "";
  };
  const NamesByText taken = config->TakenForAbsent(width);
  if (taken.size() < 2) return;
  config->Add("config.partial-default",
              {family.partial_key, family.partial, TakenText(taken)},
              {config->KeyPath(family.partial_key)},
              config->Explain([&](const Reading& reading) {
                return width(reading) != taken[0].first;
              }));
}

void CheckPartialConflict(ConfigCase* config) {
  std::int64_t head =
      config->reference() == nullptr ? 0 : config->rope().head_dim;
  if (head == 0) {
    head = static_cast<std::int64_t>(
        std::min(config->Number("head_dim").value_or(0), 0x1p31));
  }
  if (head <= 0) return;
  std::vector<std::string> facts, keys, dropped;
  std::set<double> widths;
  const auto tell = [&](const std::string& key, std::optional<double> value,
                        bool is_share) {
    if (!value) return;
    const double width =
        is_share ? std::floor(*value * static_cast<double>(head)) : *value;
    widths.insert(width);
    keys.push_back(key);
    facts.push_back(Say("partial.width", {key, *value, width, head}));
    // The fix removes the keys that the reference drops, if there are any.
    if (!config->WarningOf(key).empty()) dropped.push_back(key);
  };
  for (const char* key : {"partial_rotary_factor", "rotary_pct", "rope_pct"}) {
    tell(config->KeyPath(key), config->Number(key), true);
  }
  tell(config->KeyPath("rotary_dim"), config->Number("rotary_dim"), false);
  std::string path;
  if (const json* const dict = config->FlatDict(&path)) {
    tell(path + ".partial_rotary_factor",
         NumberAt(*dict, "partial_rotary_factor"), true);
  }
  // If the class reads none of these keys, it uses its own width, and the keys
  // do not matter.
  if (widths.size() < 2 || dropped.size() == keys.size()) return;
  const std::string removed =
      !dropped.empty() ? absl::StrJoin(dropped, " and ")
                       : absl::StrJoin(keys.begin(), keys.end() - 1, ", ") +
                             " or " + keys.back();
  config->Add("config.partial-conflict", {absl::StrJoin(facts, ", "), removed},
              keys, config->Explain([](const Reading& reading) {
                return reading.differs(&Comparison::pairing);
              }));
}

// Returns the first number among the values of `keys`; 0 if no key has a
// number.
double FirstOf(const ConfigCase& config,
               std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (const auto number = config.Number(key)) return *number;
  }
  return 0;
}

// True if the number of heads must divide the width even if head_dim is set.
// Such a class refuses any other number of heads, or does not read head_dim.
bool NeedsDividedWidth(const ConfigCase& config) {
  const interpretation::ClassDefaults* const defaults =
      interpretation::FindClassDefaults(config.type());
  return config.family().derives_head_dim ||
         (defaults != nullptr &&
          (defaults->divided || defaults->ignores_head_dim));
}

void CheckHeadDim(ConfigCase* config) {
  const Family& family = config->family();
  if (family.head_dim != 0 ||
      family.width == interpretation::RotaryWidth::kMla ||
      family.width == interpretation::RotaryWidth::kProjected ||
      family.nope == interpretation::NopeRule::kEveryLayer ||
      config->Number("qk_rope_head_dim")) {
    return;
  }
  const double width = FirstOf(*config, {"hidden_size", "n_embd", "d_model"});
  const double heads =
      FirstOf(*config, {"num_attention_heads", "n_head", "n_heads"});
  if (!(heads >= 1) || heads != std::floor(heads)) return;
  const bool has_width = width >= 1 && width <= 0x1p31;
  if (has_width && std::fmod(width, heads) != 0 && NeedsDividedWidth(*config)) {
    const double below = std::floor(width / heads) * heads;
    config->Add(
        "config.head-dim-derived",
        {Say("head-dim.undivided", {width, heads, config->model_type()}),
         Say("head-dim.undivided-fix",
             {below > 0 ? absl::StrCat(PlainNumber(below), " and ") : "",
              below + heads})},
        {config->KeyPath("hidden_size"),
         config->KeyPath("num_attention_heads")});
    return;
  }
  // Adds the finding. The fix ends with the number `wanted` and with `hint`.
  const auto tell = [&](const std::string& fact, double wanted,
                        const char* hint = "") {
    config->Add("config.head-dim-derived",
                {fact, Say("head-dim.write", {wanted, hint})},
                {config->KeyPath("head_dim")});
  };
  // The number of rows that k_proj.weight has for each head proves the width of
  // a head, even if the width is not a power of two. Quantised weights have
  // other shapes, so they prove nothing.
  constexpr double kWidest = 1024;
  const double kv = config->Number("num_key_value_heads").value_or(heads);
  const auto key_rows = static_cast<double>(config->key_rows.value_or(0));
  const double rows = kv >= 1 ? key_rows / kv : 0;
  const bool proven = rows > 0 && rows <= kWidest && std::fmod(rows, 2) == 0;
  auto given = config->Number(family.head_dim_key);
  if (!given) given = config->Number("head_dim");
  if (!given && !has_width) return;
  const double quotient = width / heads;
  const std::string derived =
      given ? absl::StrCat("head_dim is ", PlainNumber(*given))
            : Say("head-dim.derived", {width, heads, quotient});
  // Layers of different groups may have heads of different widths, so a model
  // with several groups gets no finding about a given width.
  if (proven && rows != given.value_or(quotient) &&
      (!given || config->groups().size() == 1)) {
    tell(derived + Say("head-dim.rows", {key_rows, kv, rows}), rows);
  }
  if (given || proven || family.derives_head_dim) return;
  if (quotient != std::floor(quotient)) {
    return tell(derived + ", which is no whole number of channels",
                std::floor(quotient),
                ", or the width that the rows of k_proj.weight show");
  }
  if (std::has_single_bit(static_cast<std::uint64_t>(quotient))) return;
  const auto published = FindPublishedHead(*config);
  if (!published) {
    tell(derived +
             ", which is no power of two (Mistral Nemo: 160 instead of 128)",
         quotient, ", if k_proj.weight has as many rows for each key head");
  } else if (static_cast<double>(published->head_dim) != quotient) {
    tell(absl::StrCat(derived, ", and ", published->preset,
                      " of this shape has ", published->head_dim),
         static_cast<double>(published->head_dim));
  }
}

void CheckLayers(ConfigCase* config) {
  const Reading* const reference = config->reference();
  if (reference == nullptr || config->groups().size() < 2) return;
  std::vector<std::string> facts;
  facts.reserve(config->groups().size());
  for (std::size_t g = 0; g < config->groups().size(); ++g) {
    facts.push_back(absl::StrCat(config->groups()[g].Name(), ": ",
                                 DescribeRope(*reference->ropes[g])));
  }
  config->Add("config.layers-differ", {absl::StrJoin(facts, "; ")}, {});
}

// Returns the number of rotated pairs, which does not depend on the sections; 0
// if it is not known.
double PairsOf(const ConfigCase& config) {
  if (config.reference() != nullptr) return config.rope().pairs();
  const auto bare = config.ResolveChanged([](json* part) {
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
      json& dict = (*part)[key];
      if (dict.is_object()) dict.erase("mrope_section");
    }
  })[0];
  return bare.ok() ? bare->pairs() : 0;
}

void CheckSections(ConfigCase* config) {
  const auto& [a, b, c] = config->family().sections;
  const bool has_axes = config->family().known() && a > 0;
  const double pairs = PairsOf(*config);
  const std::string by_sum =
      pairs == 0 ? "a list" : Say("sections.sum", {pairs});
  const std::string own = ListText({1. * a, 1. * b, 1. * c});
  for (const NamedDict& named : config->Dicts()) {
    const json& dict = *named.dict;
    const std::string key = named.path + ".mrope_section";
    const std::string warning = config->WarningOf(key);
    // Sections that transformers drops need no advice.
    if (config->readings()[0].status().ok() &&
        absl::StrContains(warning, " is not read")) {
      continue;
    }
    const std::vector<double> sections =
        NumbersOf(ValueAt(dict, "mrope_section"));
    const std::string type = ConfigCase::TypeOf(dict);
    const double sum = std::accumulate(sections.begin(), sections.end(), 0.);
    const auto bad = std::ranges::find_if(sections, [](double section) {
      return section < 0 || section != std::floor(section);
    });
    std::string fact;
    if (sections.empty()) {
      if (TextAt(dict, "rope_type") == "mrope" ||
          TextAt(dict, "type") == "mrope") {
        fact = Say(has_axes ? "sections.absent" : "sections.unknown",
                   {named.path});
      } else if (has_axes && !type.empty() && type != "default") {
        fact = Say("sections.dropped", {named.path, type});
      }
    } else if (bad != sections.end()) {
      fact = Say("sections.element", {ListText(sections), *bad});
    } else if (pairs != 0 && sum != pairs) {
      fact = Say("sections.other-sum", {ListText(sections), sum, pairs});
    }
    // transformers' class may fail on sections that posenc can read, or refuse
    // them. The warning then becomes the finding.
    if (fact.empty() && (absl::StrContains(warning, " fails") ||
                         absl::StrContains(warning, " refuses"))) {
      fact = warning;
    }
    if (fact.empty()) continue;
    const bool own_fit = has_axes && (sections.empty() || a + b + c == pairs);
    Finding& finding = config->Add(
        "config.sections", {fact, own_fit ? own : by_sum, named.path}, {key});
    if (!sections.empty()) {
      config->MarkRefusals();
    } else {
      finding.readers = config->Explain([](const Reading& reading) {
        return reading.differs(&Comparison::axes);
      });
    }
  }
}

}  // namespace

void CheckShape(ConfigCase* config) {
  CheckPartialDefault(config);
  CheckPartialConflict(config);
  CheckHeadDim(config);
  CheckLayers(config);
  CheckSections(config);
}

}  // namespace posenc::core::doctor
