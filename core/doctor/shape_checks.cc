// Checks of a configuration's widths, layers and axes, also against presets.

#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/doctor/config_case.h"
#include "core/error.h"
#include "core/interpretation/class_defaults.h"
#include "core/interpretation/profile.h"

namespace posenc::core::doctor {
namespace {

using nlohmann::json;

std::optional<double> ShareInDicts(const ConfigCase& config) {
  for (const NamedDict& named : config.Dicts()) {
    const auto share = config.Number(*named.dict, "partial_rotary_factor");
    if (share) return share;
  }
  return std::nullopt;
}

void CheckPartialDefault(ConfigCase* config) {
  const interpretation::Family& family = config->family();
  const Reading* const reference = config->reference();
  if (!config->known_family() || family.partial == 1 || reference == nullptr ||
      config->Number(family.partial_key) || config->Number("rotary_dim") ||
      ShareInDicts(*config)) {
    return;
  }
  const std::int32_t width = reference->ropes[0]->spec.rotary_dim;
  const auto other_width = [&](const Reading& reading) {
    return reading.status().ok() && reading.ropes[0]->spec.rotary_dim != width;
  };
  std::vector<std::string> facts;
  for (const Reading& reading : config->readings()) {
    if (other_width(reading)) {
      facts.push_back(absl::StrCat(reading.reader->title, " rotates ",
                                   reading.ropes[0]->spec.rotary_dim,
                                   " channels"));
    }
  }
  if (facts.empty()) return;
  facts.push_back(absl::StrCat(reference->reader->title, " ", width));
  Finding& finding =
      config->Add("config.partial-default",
                  {std::string(family.partial_key), PlainNumber(family.partial),
                   absl::StrJoin(facts, ", ")},
                  {config->KeyPath(family.partial_key)});
  finding.readers = config->Explain(other_width);
  JudgeBySize(&finding);
}

void CheckPartialConflict(ConfigCase* config) {
  const Reading* const reference = config->reference();
  std::int64_t head = reference != nullptr && !config->groups().empty()
                          ? reference->ropes[0]->head_dim
                          : 0;
  if (const auto given = config->Number("head_dim"); given && head == 0) {
    head = static_cast<std::int64_t>(*given);
  }
  if (head <= 0) return;
  struct Told {
    std::string path;
    double value;
    double width;
  };
  std::vector<Told> told;
  for (const char* key :
       {"partial_rotary_factor", "rotary_pct", "rope_pct", "rotary_dim"}) {
    const auto value = config->Number(key);
    if (!value) continue;
    told.push_back({config->KeyPath(key), *value,
                    key == std::string("rotary_dim")
                        ? *value
                        : std::floor(*value * static_cast<double>(head))});
  }
  std::string path;
  const json* const dict = config->FlatDict(&path);
  if (dict != nullptr) {
    const auto value = config->Number(*dict, "partial_rotary_factor");
    if (value) {
      told.push_back({path + ".partial_rotary_factor", *value,
                      std::floor(*value * static_cast<double>(head))});
    }
  }
  if (told.size() < 2 ||
      std::all_of(told.begin(), told.end(), [&](const Told& one) {
        return one.width == told[0].width;
      })) {
    return;
  }
  // If the reference drops one of the keys, the key that it reads must stay.
  const auto is_dropped = [reference](const std::string& path) {
    if (reference == nullptr || reference->ropes.empty()) return false;
    const std::vector<std::string>& warnings = reference->ropes[0]->warnings;
    return std::any_of(warnings.begin(), warnings.end(),
                       [&path](const std::string& warning) {
                         return absl::StartsWith(warning, path + " ");
                       });
  };
  std::vector<std::string> facts, keys, dropped;
  for (const Told& one : told) {
    facts.push_back(absl::StrCat(one.path, " ", PlainNumber(one.value), " (",
                                 PlainNumber(one.width), " channels of ", head,
                                 ")"));
    keys.push_back(one.path);
    if (is_dropped(one.path)) dropped.push_back(one.path);
  }
  const bool some = !dropped.empty() && dropped.size() < keys.size();
  const std::string removed =
      some ? absl::StrJoin(dropped, " and ")
           : absl::StrJoin(keys.begin(), keys.end() - 1, ", ") + " or " +
                 keys.back();
  Finding& finding = config->Add("config.partial-conflict",
                                 {absl::StrJoin(facts, ", "), removed}, keys);
  finding.readers = config->Explain([](const Reading& reading) {
    return std::any_of(reading.comparisons.begin(), reading.comparisons.end(),
                       [](const Comparison& c) { return c.pairing; });
  });
}

// Returns the rows of k_proj for each head, if there is a checkpoint.
std::optional<double> RowsOfAHead(const ConfigCase& config, double heads) {
  const double kv = config.Number("num_key_value_heads").value_or(heads);
  if (!config.key_rows || !(kv >= 1)) return std::nullopt;
  const double rows = static_cast<double>(*config.key_rows) / kv;
  // Quantised weights are packed in other shapes.
  constexpr double kWidest = 1024;
  if (rows > kWidest || std::fmod(rows, 2) != 0) return std::nullopt;
  return rows;
}

// Adds config.head-dim-derived; `hint` follows the number in its fix.
void AddHeadDim(const std::string& fact, double wanted, ConfigCase* config,
                const std::string& hint = "") {
  config->Add(
      "config.head-dim-derived",
      {fact,
       absl::StrCat("write it: \"head_dim\": ", PlainNumber(wanted), hint)},
      {config->KeyPath("head_dim")});
}

std::string RowsText(const ConfigCase& config, double heads, double wanted) {
  return absl::StrCat(
      "k_proj has ", *config.key_rows, " rows for ",
      PlainNumber(config.Number("num_key_value_heads").value_or(heads)),
      " heads: ", PlainNumber(wanted));
}

// Types whose attention always divides the width by the number of heads.
constexpr absl::string_view kAlwaysDerived =
    "codegen falcon gpt_neox gpt_neox_japanese gptj persimmon stablelm "
    "stablelm_epoch";

// True if the number of heads must divide the width even if head_dim is set:
// the class refuses other files, or does not read the key.
bool NeedsDividedWidth(const std::string& type) {
  const interpretation::ClassDefaults* const defaults =
      interpretation::FindClassDefaults(type);
  return interpretation::IsAmong(type, kAlwaysDerived) ||
         (defaults != nullptr &&
          (defaults->divided || defaults->ignores_head_dim));
}

void AddUndividedWidth(double width, double heads, ConfigCase* config) {
  const double below = std::floor(width / heads) * heads;
  config->Add(
      "config.head-dim-derived",
      {absl::StrCat(
           "hidden_size ", PlainNumber(width),
           " is no multiple of num_attention_heads ", PlainNumber(heads),
           ", which transformers' class of model_type ", config->model_type(),
           " refuses or rounds down, whatever head_dim says"),
       absl::StrCat("correct the one that is wrong: hidden_size is the number "
                    "of columns of q_proj.weight (",
                    below > 0 ? absl::StrCat(PlainNumber(below), " and ") : "",
                    PlainNumber(below + heads), " would fit)")},
      {config->KeyPath("hidden_size"), config->KeyPath("num_attention_heads")});
}

void CheckHeadDim(ConfigCase* config) {
  const interpretation::Family& family = config->family();
  if (family.head_dim != 0 ||
      family.width == interpretation::RotaryWidth::kMla ||
      family.width == interpretation::RotaryWidth::kProjected ||
      family.nope == interpretation::NopeRule::kEveryLayer ||
      config->Number("qk_rope_head_dim")) {
    return;
  }
  std::optional<double> width, heads;
  for (const char* key : {"hidden_size", "n_embd", "d_model"}) {
    if (!width) width = config->Number(key);
  }
  for (const char* key : {"num_attention_heads", "n_head", "n_heads"}) {
    if (!heads) heads = config->Number(key);
  }
  if (!heads || !(*heads >= 1) || *heads != std::floor(*heads)) return;
  const bool has_width = width && *width >= 1 && *width <= 0x1p31;
  if (has_width && std::fmod(*width, *heads) != 0 &&
      NeedsDividedWidth(config->type())) {
    return AddUndividedWidth(*width, *heads, config);
  }
  const std::optional<double> rows = RowsOfAHead(*config, *heads);
  auto given = config->Number(family.head_dim_key);
  if (!given) given = config->Number("head_dim");
  if (given) {
    // Different layers may have heads of different widths.
    if (!rows || *rows == *given || config->groups().size() > 1) return;
    return AddHeadDim(absl::StrCat("head_dim is ", PlainNumber(*given),
                                   ", and ", RowsText(*config, *heads, *rows)),
                      *rows, config);
  }
  if (!has_width) return;
  const double quotient = *width / *heads;
  const auto head = static_cast<std::int64_t>(quotient);
  const std::string derived =
      absl::StrCat("head_dim is absent; hidden_size ", PlainNumber(*width),
                   " / num_attention_heads ", PlainNumber(*heads), " gives ",
                   PlainNumber(quotient));
  if (rows) {
    // The weights prove a width even if it is no power of two.
    if (*rows == quotient) return;
    return AddHeadDim(
        absl::StrCat(derived, ", and ", RowsText(*config, *heads, *rows)),
        *rows, config);
  }
  if (interpretation::IsAmong(config->type(), kAlwaysDerived)) return;
  if (quotient != static_cast<double>(head)) {
    return AddHeadDim(
        absl::StrCat(derived, ", which is no whole number of channels"),
        std::floor(quotient), config,
        ", or the width that k_proj.weight's rows tell");
  }
  if (!std::has_single_bit(static_cast<std::uint64_t>(head))) {
    const auto published = FindPublishedHead(*config);
    if (published && published->head_dim == quotient) return;
    if (published) {
      return AddHeadDim(
          absl::StrCat(derived, ", and ", published->preset,
                       " of this shape has ", published->head_dim),
          published->head_dim, config);
    }
    AddHeadDim(
        absl::StrCat(derived,
                     ", which is no power of two (Mistral Nemo: 160 for 128)"),
        quotient, config,
        ", if k_proj.weight has as many rows for each key head");
  }
}

// Returns runs of layers: "0-4, 6".
std::string LayersText(const std::vector<std::int32_t>& layers) {
  std::vector<std::string> runs;
  for (std::size_t i = 0; i < layers.size();) {
    std::size_t end = i;
    while (end + 1 < layers.size() && layers[end + 1] == layers[end] + 1) ++end;
    runs.push_back(end == i ? absl::StrCat(layers[i])
                            : absl::StrCat(layers[i], "-", layers[end]));
    i = end + 1;
  }
  constexpr std::size_t kShown = 6;
  if (runs.size() > kShown) {
    runs.resize(kShown);
    runs.emplace_back("...");
  }
  return absl::StrJoin(runs, ", ");
}

void CheckLayers(ConfigCase* config) {
  const Reading* const reference = config->reference();
  if (reference == nullptr || config->groups().size() < 2) return;
  std::vector<std::string> facts;
  for (std::size_t g = 0; g < config->groups().size(); ++g) {
    const LayerGroup& group = config->groups()[g];
    facts.push_back(absl::StrCat(
        group.type ? absl::StrCat("layers of type ", *group.type)
                   : absl::StrCat("layers ", LayersText(group.layers)),
        ": ", DescribeRope(*reference->ropes[g])));
  }
  config->Add("config.layers-differ", {absl::StrJoin(facts, "; ")}, {});
}

// Returns the number of pairs of each axis.
std::vector<double> Sections(const json& dict) {
  std::vector<double> sections;
  const auto it = dict.find("mrope_section");
  if (it == dict.end() || !it->is_array()) return sections;
  for (const json& value : *it) {
    if (value.is_number()) sections.push_back(value.get<double>());
  }
  return sections;
}

bool NamesType(const json& dict, absl::string_view name) {
  for (const char* key : {"rope_type", "type"}) {
    const auto it = dict.find(key);
    if (it != dict.end() && it->is_string() && it->get<std::string>() == name) {
      return true;
    }
  }
  return false;
}

// Reports a type with several axes but no sections, which assign pairs to axes.
void TellNoSections(const NamedDict& named, ConfigCase* config) {
  const Reading* const reference = config->reference();
  const auto& own = config->family().sections;
  const bool has_axes = config->known_family() && own[0] > 0;
  Finding& finding = config->Add(
      "config.sections",
      {absl::StrCat(named.path, " has type mrope and no mrope_section: ",
                    has_axes ? "readers take the family's sections, or refuse"
                             : "nothing says which pairs follow which axis"),
       has_axes ? absl::StrCat("[", own[0], ", ", own[1], ", ", own[2], "]")
       : reference == nullptr
           ? "a list"
           : absl::StrCat("with the sum ",
                          reference->ropes[0]->spec.rotary_dim / 2),
       named.path},
      {named.path + ".mrope_section"});
  finding.readers = config->Explain([](const Reading& reading) {
    return std::any_of(reading.comparisons.begin(), reading.comparisons.end(),
                       [](const Comparison& c) { return c.axes; });
  });
}

void CheckSections(ConfigCase* config) {
  const Reading* const reference = config->reference();
  const auto& own = config->family().sections;
  const bool has_axes = config->known_family() && own[0] > 0;
  for (const NamedDict& named : config->Dicts()) {
    const std::vector<double> sections = Sections(*named.dict);
    const std::string type = ConfigCase::TypeOf(*named.dict);
    const std::string path = named.path + ".mrope_section";
    if (sections.empty()) {
      if (NamesType(*named.dict, "mrope")) {
        TellNoSections(named, config);
        continue;
      }
      if (!has_axes || type.empty() || type == "default") continue;
      Finding& finding = config->Add(
          "config.sections",
          {absl::StrCat(named.path, " has rope_type ", type,
                        " and no mrope_section: the model's three position "
                        "axes are dropped"),
           absl::StrCat("[", own[0], ", ", own[1], ", ", own[2], "]"),
           named.path},
          {path});
      finding.readers = config->Explain([](const Reading& reading) {
        return std::any_of(reading.comparisons.begin(),
                           reading.comparisons.end(),
                           [](const Comparison& c) { return c.axes; });
      });
      continue;
    }
    std::int64_t pairs = 0;
    if (reference != nullptr) {
      pairs = reference->ropes[0]->spec.rotary_dim / 2;
    } else {
      const auto bare = config->ResolveOther(config->Changed([](json* part) {
        for (const char* key : {"rope_scaling", "rope_parameters"}) {
          if (part->contains(key)) (*part)[key].erase("mrope_section");
        }
      }));
      if (!bare.empty() && bare[0]) pairs = bare[0]->spec.rotary_dim / 2;
    }
    double sum = 0;
    for (const double section : sections) sum += section;
    if (pairs == 0 || sum == static_cast<double>(pairs)) continue;
    config->Add(
        "config.sections",
        {absl::StrCat("mrope_section [",
                      absl::StrJoin(sections, ", ",
                                    [](std::string* out, double s) {
                                      absl::StrAppend(out, PlainNumber(s));
                                    }),
                      "] sums to ", PlainNumber(sum), ", and there are ", pairs,
                      " pairs"),
         has_axes && own[0] + own[1] + own[2] == pairs
             ? absl::StrCat("[", own[0], ", ", own[1], ", ", own[2], "]")
             : absl::StrCat("with the sum ", pairs),
         named.path},
        {path});
    for (const Reading& reading : config->readings()) {
      if (!reading.status().ok()) config->MarkExplained(reading);
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
