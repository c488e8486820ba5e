// config.unlike-published: the configuration has the type and shape of a
// preset, but another base or scaling.
//
// Some models share their shape with a preset. For example,
// Qwen3-4B-Thinking-2507 is Qwen3-4B with base 5000000. published.jsonl has the
// configurations of these models. The check treats them like presets. "own":
// false marks a different model of the same shape, from other makers. A file
// with the frequencies, attention factor, softmax scale and length of a
// different model gets no finding. This check makes no other comparison with
// different models.

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/doctor/config_case.h"
#include "core/interpretation/compare.h"
#include "core/interpretation/presets.h"

namespace posenc::core::doctor {
namespace {

constexpr absl::string_view kMorePublished =
#include "published_configs.inc"
    ;

struct Published {
  std::string name;
  json root;
  bool preset = true;
  bool own = true;        // by the makers of the preset with this shape
  std::string type = {};  // spelled as by ModelKey()
};

std::vector<Published> ReadPublished() {
  std::vector<Published> models;
  for (const interpretation::Preset& preset : interpretation::Presets()) {
    models.push_back({std::string(preset.name),
                      json::parse(preset.config_json, nullptr, false)});
  }
  for (const absl::string_view line :
       absl::StrSplit(kMorePublished, '\n', absl::SkipEmpty())) {
    const json row = json::parse(line, nullptr, false);
    models.push_back({row["name"], row["config"], false, row["own"]});
  }
  for (Published& model : models) {
    std::string type;
    LanguagePartOf(&model.root, &type, nullptr);
    model.type = interpretation::ModelKey(type);
  }
  return models;
}

// Calls `use` for each published model of the configuration's model type.
void ForPublished(
    const ConfigCase& config,
    const std::function<void(const Published&, const ConfigCase&)>& use) {
  static const auto& all = *new std::vector<Published>(ReadPublished());
  for (const Published& model : all) {
    if (model.type != config.type()) continue;
    const ConfigCase published(model.name, model.root, {}, config.reach());
    if (published.reference() != nullptr) use(model, published);
  }
}

// Returns the number that the file gives for a key; 0 if the file gives none.
double NumberOf(const ConfigCase& config, const char* key) {
  return config.Number(key).value_or(0);
}

double HeadDim(const ConfigCase& config) {
  const double given = NumberOf(config, "head_dim");
  return given != 0 ? given
                    : NumberOf(config, "hidden_size") /
                          NumberOf(config, "num_attention_heads");
}

// True if both configurations have the same hidden size and the same number of
// heads. If both files give the number of layers or of key heads, this number
// must also be the same.
bool HaveSameShape(const ConfigCase& a, const ConfigCase& b) {
  const auto agree = [&](const char* key, bool required) {
    const double x = NumberOf(a, key), y = NumberOf(b, key);
    return x == 0 || y == 0 ? !required : x == y;
  };
  return agree("hidden_size", true) && agree("num_attention_heads", true) &&
         agree("num_hidden_layers", false) &&
         agree("num_key_value_heads", false);
}

// Tools write this base if they do not know the model's base.
constexpr double kUsualBase = 10000;

// Returns ScalingText() without the ramp and without the start of dynamic
// scaling. A ramp also depends on the base, and the start of dynamic scaling is
// the model's length.
std::string ScalingAlone(const RopeSpec& spec) {
  const std::string text = interpretation::ScalingText(spec);
  const bool dynamic = std::holds_alternative<DynamicNtkScaling>(spec.scaling);
  return text.substr(0, text.find(dynamic ? " beyond " : ", ramp"));
}

// Indices of two groups of layers that are compared: ours in the configuration,
// theirs in the preset.
struct Match {
  std::size_t ours, theirs;
};

// Comparison of a configuration (ours) with a published model of its shape
// (theirs), over all groups of layers.
struct Likeness {
  bool base = true, scaling = true, numbers = true;
  bool ours_scaled = false, theirs_scaled = false;
  Match differing = {0, 0};  // the first groups whose numbers differ
  bool same_length = false;
  // `reaches`: our length is at most our factor times their length, or one of
  // these three numbers is unknown. `extends`: our length is exactly our factor
  // times their length.
  bool reaches = true, extends = false;
  // True if our model is scaled from an original length that exceeds their
  // length, and their model is not scaled.
  bool beyond_original = false;
  // True if our file has lost base, scaling and length, because a tool rewrote
  // the file without them. No known model with the shape of a scaled preset was
  // trained with a default base and without scaling.
  bool lost = false;
  // True if the difference needs no finding, for one of four reasons:
  // - Frequencies, attention factor and softmax scale are the same.
  // - Our length and base are larger, because training extended the context.
  // - Only our model is scaled, or our factor is larger.
  // - Our model is their model before scaling.
  bool fits = false;
  // True if our file differs in only one key from a scaled model of the same
  // length.
  bool one_key = false;

  // True if our file is for another model that happens to have the same shape.
  bool is_other() const {
    return !base && !scaling && !same_length && !extends && !lost;
  }
};

// Matches each group of our layers with one of their groups: with a group of
// equal frequencies, or else with their next group without a match. The order
// of groups is not enough, because files that list layers order groups
// differently from files that list only types. If our file has only one group,
// this group is matched with each of their groups. Returns an empty list if the
// groups cannot be compared.
std::vector<Match> MatchGroups(const Reading& ours, const Reading& theirs) {
  const std::size_t n = ours.ropes.size(), m = theirs.ropes.size();
  std::vector<Match> matches;
  if (n == 1) {
    for (std::size_t h = 0; h < m; ++h) matches.push_back({0, h});
    return matches;
  }
  if (n != m) return {};
  std::vector<bool> matched(n, false), taken(n, false);
  for (const bool same : {true, false}) {
    for (std::size_t g = 0; g < n; ++g) {
      for (std::size_t h = 0; h < n && !matched[g]; ++h) {
        if (taken[h] ||
            (same && ours.ropes[g]->inv_freq != theirs.ropes[h]->inv_freq)) {
          continue;
        }
        matches.push_back({g, h});
        matched[g] = taken[h] = true;
      }
    }
  }
  return matches;
}

// True if our vocabulary differs from the preset's vocabulary by more than the
// few tokens that tuning may add. Presets have no vocab_size, so kVocabularies
// lists the sizes. The list has the presets whose base, scaling and length are
// lost in some published files.
bool HasOtherVocabulary(const ConfigCase& ours, absl::string_view preset) {
  constexpr std::pair<absl::string_view, double> kVocabularies[] = {
      {"exaone-4-32b", 102400}, {"gemma-3-", 262208}, {"llama-3.", 128256}};
  constexpr double kAdded = 0.01;
  const auto size = ours.Number("vocab_size");
  for (const auto& [name, published] : kVocabularies) {
    if (size && absl::StartsWith(preset, name)) {
      return std::abs(*size - published) > kAdded * published;
    }
  }
  return false;
}

Likeness Compare(const ConfigCase& ours, const ConfigCase& theirs,
                 const std::vector<Match>& matches, absl::string_view preset) {
  Likeness likeness;
  // A length is 0 if it is not known.
  const auto length = static_cast<double>(ours.MaxPositions().value_or(0));
  const auto published = static_cast<double>(theirs.MaxPositions().value_or(0));
  const bool longer = published > 0 && length > published;
  // `larger_bases`: each of our bases is at least as large as theirs.
  // `default_bases`: all our bases are defaults of the class or of a tool.
  bool larger_bases = true, default_bases = true, within_original = false;
  likeness.differing = matches.front();
  for (std::size_t i = matches.size(); i-- > 0;) {
    const ResolvedRope& a = *ours.reference()->ropes[matches[i].ours];
    const ResolvedRope& b = *theirs.reference()->ropes[matches[i].theirs];
    const auto base = a.spec.rope_theta, their_base = b.spec.rope_theta;
    const bool same = a.inv_freq == b.inv_freq &&
                      a.attention_factor == b.attention_factor &&
                      a.softmax_scale_multiplier == b.softmax_scale_multiplier;
    likeness.base &= base == their_base;
    larger_bases &= base && their_base && *base >= *their_base;
    default_bases &= (a.spec.nope && b.spec.nope) ||
                     base == ours.family().theta || base == kUsualBase;
    // The same scaling of another base gives other numbers, so for another base
    // only the texts are compared.
    likeness.scaling &= base == their_base
                            ? same
                            : ScalingAlone(a.spec) == ScalingAlone(b.spec);
    likeness.numbers &= same;
    likeness.ours_scaled |= IsScaled(a);
    likeness.theirs_scaled |= IsScaled(b);
    // A scaling without an original length of its own uses the model's length.
    // For linear scaling, the original length is the model's length divided by
    // the factor.
    const auto* const linear = std::get_if<LinearScaling>(&b.spec.scaling);
    const double original =
        static_cast<double>(b.original_max_position_embeddings) /
        (linear == nullptr ? 1 : linear->factor);
    within_original |= IsScaled(b) && length > 0 && length <= original;
    if (!same) likeness.differing = matches[i];
  }
  const RopeSpec& a = ours.rope().spec;
  const RopeSpec& b = theirs.rope().spec;
  const auto factor = FactorOf(a), their_factor = FactorOf(b);
  const double most = factor.value_or(1) * published;
  const bool may_reach = published == 0 || (IsScaled(ours.rope()) && !factor);
  likeness.same_length = length == published;
  likeness.reaches = may_reach || length <= most;
  likeness.extends = factor && length > 0 && length == most;
  const json* const dict = ours.FlatDict(nullptr);
  likeness.beyond_original = likeness.ours_scaled && !likeness.theirs_scaled &&
                             dict != nullptr && published > 0 &&
                             ours.Original(*dict).value_or(0) > published;
  likeness.lost = default_bases && !likeness.ours_scaled &&
                  likeness.theirs_scaled && !longer &&
                  !HasOtherVocabulary(ours, preset);
  const bool scaled_farther = longer && factor && their_factor &&
                              *factor > *their_factor &&
                              a.scaling.index() == b.scaling.index();
  const bool unscaled_yet =
      !likeness.ours_scaled && within_original && !likeness.same_length;
  likeness.fits = likeness.numbers ||
                  (longer && larger_bases && likeness.scaling) ||
                  (likeness.base && !likeness.beyond_original &&
                   (!likeness.theirs_scaled || scaled_farther || unscaled_yet));
  likeness.one_key = likeness.same_length && likeness.theirs_scaled &&
                     !likeness.numbers && likeness.base != likeness.scaling;
  return likeness;
}

// Returns text for a message that says how `rope` differs from `other`.
std::string Text(const ResolvedRope& rope, const ResolvedRope& other) {
  const auto factor = FactorOf(rope.spec), theirs = FactorOf(other.spec);
  std::vector<std::string> facts;
  if (rope.spec.rope_theta != other.spec.rope_theta) {
    facts.push_back(absl::StrCat(
        "base ", rope.spec.rope_theta ? PlainNumber(*rope.spec.rope_theta)
                                      : "of its own"));
  }
  if (factor && theirs && *factor != *theirs &&
      rope.spec.scaling.index() == other.spec.scaling.index()) {
    facts.push_back(absl::StrCat("factor ", PlainNumber(*factor)));
  } else if (ScalingAlone(rope.spec) != ScalingAlone(other.spec)) {
    facts.push_back(ScalingAlone(rope.spec));
  }
  if (!facts.empty()) return absl::StrJoin(facts, ", ");
  if (rope.inv_freq != other.inv_freq) {
    return interpretation::ScalingText(rope.spec);
  }
  return absl::StrCat("amplitude ", PlainNumber(rope.attention_factor),
                      ", softmax x ",
                      PlainNumber(rope.softmax_scale_multiplier));
}

constexpr const char* kRotaryKeys[] = {"rope_theta", "rope_local_base_freq",
                                       "partial_rotary_factor", "rope_scaling",
                                       "rope_parameters"};

// Names our rotary keys that a preset lacks, for example as "; and remove a,
// b". Does not name the base, because the preset may leave its base to the
// class.
std::string KeysToRemove(const ConfigCase& ours, const ConfigCase& published) {
  std::string text;
  for (const char* key : kRotaryKeys) {
    if (absl::string_view(key) == "rope_theta" || !IsGiven(ours.part(), key) ||
        IsGiven(published.part(), key)) {
      continue;
    }
    absl::StrAppend(&text, text.empty() ? "; and remove " : ", ",
                    ours.KeyPath(key));
  }
  return text;
}

// Returns a preset's rotary keys as text to paste. Names long lists without
// their elements.
std::string PublishedKeys(const ConfigCase& published) {
  json keys = json::object();
  for (const char* key : kRotaryKeys) {
    if (IsGiven(published.part(), key)) keys[key] = published.part()[key];
  }
  constexpr std::size_t kMost = 600;
  if (keys.empty()) return DescribeRope(published.rope());
  std::string lists;
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    const auto dict = keys.find(name);
    if (dict == keys.end() || !dict->is_object()) continue;
    if (dict->dump().size() <= kMost) continue;
    for (const char* list : {"short_factor", "long_factor"}) {
      if (dict->erase(list) > 0) {
        absl::StrAppend(&lists, " and ", list, " of its config.json");
      }
    }
  }
  const std::string text = keys.dump();
  return text.size() > kMost
             ? DescribeRope(published.rope())
             : absl::StrCat(text.substr(1, text.size() - 2), lists);
}

}  // namespace

std::optional<PublishedHead> FindPublishedHead(const ConfigCase& config) {
  std::optional<PublishedHead> found;
  ForPublished(config, [&](const Published& model, const ConfigCase& theirs) {
    if (!found && HaveSameShape(config, theirs)) {
      found = {model.name, theirs.rope().head_dim};
    }
  });
  return found;
}

std::set<double> PublishedBases(const ConfigCase& config) {
  std::set<double> bases;
  ForPublished(config, [&](const Published& model, const ConfigCase& theirs) {
    const auto base = theirs.rope().spec.rope_theta;
    if (model.preset && base) bases.insert(*base);
  });
  return bases;
}

void CheckPublished(ConfigCase* config) {
  const Reading* const reference = config->reference();
  if (reference == nullptr || config->type().empty()) return;
  struct Near {
    int distance;
    Likeness likeness;
    Values values;
  };
  std::optional<Near> nearest;
  bool fits = false, fits_reach = false, fits_length = false, one_key = false;
  ForPublished(*config, [&](const Published& model,
                            const ConfigCase& published) {
    const Reading* const theirs = published.reference();
    if (!HaveSameShape(*config, published) ||
        HeadDim(*config) != HeadDim(published)) {
      return;
    }
    const std::vector<Match> matches = MatchGroups(*reference, *theirs);
    if (matches.empty()) return;
    const Likeness likeness = Compare(*config, published, matches, model.name);
    // If only the preset has layers that differ, and our file has not lost this
    // difference, our file is for another model.
    if (published.groups().size() != config->groups().size() &&
        !likeness.lost) {
      return;
    }
    fits_length |= likeness.numbers && likeness.same_length;
    if (!model.own) return;
    if (likeness.fits) {
      fits = true;
      fits_reach |= likeness.reaches;
      fits_length |= likeness.same_length;
      return;
    }
    if (likeness.is_other()) return;
    one_key |= likeness.one_key;
    const int distance =
        (likeness.same_length || likeness.extends ? 0 : 8) +
        (likeness.base ? 0 : 2) + (likeness.scaling ? 0 : 1) +
        (likeness.ours_scaled == likeness.theirs_scaled ? 0 : 1);
    if (nearest && distance >= nearest->distance) return;
    const ResolvedRope& a = *reference->ropes[likeness.differing.ours];
    const ResolvedRope& b = *theirs->ropes[likeness.differing.theirs];
    const std::string found = Text(a, b);
    const std::string wanted =
        likeness.beyond_original && likeness.base
            ? absl::StrCat("no scaling and ", *published.MaxPositions(),
                           " positions")
            : Text(b, a);
    nearest = {distance,
               likeness,
               {model.name, wanted, found == wanted ? "other factors" : found,
                PublishedKeys(published) + KeysToRemove(*config, published)}};
  });
  if (!nearest || fits_length) return;
  // A file that fits some model still gets a finding in two cases. In the first
  // case, the file differs in only one key from another model. In the second
  // case, the file's length is right for the nearest model and too large for
  // the models that the file fits.
  const bool as_long =
      nearest->likeness.same_length || nearest->likeness.extends;
  if (fits && !one_key && (fits_reach || !as_long)) return;
  // An absent base already has the finding config.theta-absent.
  for (const Finding& finding : config->findings()) {
    if (finding.id == "config.theta-absent" && nearest->likeness.scaling) {
      return;
    }
  }
  config->Add("config.unlike-published", nearest->values,
              {config->KeyPath("rope_theta"), config->KeyPath("rope_scaling")});
}

}  // namespace posenc::core::doctor
