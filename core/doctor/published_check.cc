// config.unlike-published: a configuration that has the type and shape of a
// preset, but another base or scaling.
//
// Some models share their shape with a preset: Qwen3-4B-Thinking-2507 is
// Qwen3-4B with base 5000000. published.jsonl has their configurations, which
// count like presets. "own": false marks a different model that others trained
// in that shape: a file exactly like it, length included, gets no finding, and
// no other file is compared with it.

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/doctor/config_case.h"
#include "core/error.h"
#include "core/interpretation/compare.h"
#include "core/interpretation/presets.h"

namespace posenc::core::doctor {
namespace {

using nlohmann::json;

constexpr absl::string_view kMorePublished =
#include "published_configs.inc"
    ;

struct Published {
  std::string name;
  std::string type;  // by ModelKey()
  json root;
  bool own = true;  // by the makers of the preset with this shape
};

Published PublishedOf(std::string name, json root, bool own) {
  std::string type;
  LanguagePartOf(&root, &type, nullptr);
  return {std::move(name), interpretation::ModelKey(type), std::move(root),
          own};
}

const std::vector<Published>& AllPublished() {
  static const auto* const all = [] {
    auto* const models = new std::vector<Published>;
    for (const interpretation::Preset& preset : interpretation::Presets()) {
      models->push_back(
          PublishedOf(std::string(preset.name),
                      json::parse(preset.config_json, nullptr, false), true));
    }
    for (const absl::string_view line :
         absl::StrSplit(kMorePublished, '\n', absl::SkipEmpty())) {
      const json row = json::parse(line, nullptr, false);
      models->push_back(PublishedOf(row["name"], row["config"], row["own"]));
    }
    return models;
  }();
  return *all;
}

// Returns the shape that identifies a model; 0 for keys that the file lacks.
std::vector<double> ShapeOf(const ConfigCase& config) {
  std::vector<double> shape;
  for (const char* key :
       {"hidden_size", "num_attention_heads", "num_hidden_layers", "head_dim",
        "num_key_value_heads"}) {
    shape.push_back(config.Number(key).value_or(0));
  }
  return shape;
}

constexpr std::size_t kHeadDim = 3;

// Tools write this for a base that they do not know.
constexpr double kUsualBase = 10000;

// True if both shapes have a number, and the numbers differ.
bool Contradicts(const std::vector<double>& a, const std::vector<double>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] != 0 && b[i] != 0 && a[i] != b[i]) return true;
  }
  return false;
}

bool HasWidthAndHeads(const std::vector<double>& shape) {
  return shape[0] != 0 && shape[1] != 0;
}

bool SameShape(const std::vector<double>& a, const std::vector<double>& b) {
  if (!HasWidthAndHeads(a) || !HasWidthAndHeads(b) || Contradicts(a, b)) {
    return false;
  }
  const auto head = [](const std::vector<double>& shape) {
    return shape[kHeadDim] != 0 ? shape[kHeadDim] : shape[0] / shape[1];
  };
  return head(a) == head(b);
}

bool IsScaled(const ResolvedRope& rope) {
  return rope.spec.scaling.index() != 0;
}

// Describes the scaling without the parts that follow from other keys: a ramp's
// pairs, from the base, and dynamic scaling's start, from the model's length.
std::string ScalingAlone(const RopeSpec& spec) {
  const std::string text = interpretation::ScalingText(spec);
  const bool dynamic = std::holds_alternative<DynamicNtkScaling>(spec.scaling);
  return text.substr(0, text.find(dynamic ? " beyond " : ", ramp"));
}

// A group of our layers, and the group of theirs that it is compared with.
struct Match {
  std::size_t ours, theirs;
};

// Comparison of a configuration (ours) with a preset of its shape (theirs),
// over all groups of layers.
struct Likeness {
  bool base = true, scaling = true, numbers = true;
  bool ours_scaled = false, theirs_scaled = false;
  Match differing = {0, 0};  // the first groups whose numbers differ
  bool same_length = false;
  bool within_original = false;  // our length <= theirs before scaling
  // Our length is at most (reaches), or exactly (extends), our factor times
  // their length.
  bool reaches = true, extends = false;
  bool same_but_farther = false;  // the same scaling, by a larger factor
  // Ours is scaled from a length that exceeds theirs; theirs is not scaled.
  bool beyond_original = false;
  // Ours is longer and has larger bases: training extended the context.
  bool longer = false, larger_bases = true;

  // Ours has the bases that the class, or a tool, uses for absent bases.
  bool default_bases = true;

  // Ours has another vocabulary: it was trained anew.
  bool other_vocabulary = false;

  // Base, scaling and length are all lost, as in a rewritten file that leaves
  // them to the class. No known model was trained like this in the shape of a
  // preset with another base and a scaling.
  bool is_lost() const {
    return default_bases && !ours_scaled && theirs_scaled && !longer &&
           !other_vocabulary;
  }
  // True for another model that happens to have the same shape.
  bool is_other() const {
    return !base && !scaling && !same_length && !extends && !is_lost();
  }
};

std::optional<double> FactorOf(const RopeSpec& spec) {
  if (const auto* s = std::get_if<LinearScaling>(&spec.scaling)) {
    return s->factor;
  }
  if (const auto* s = std::get_if<YarnScaling>(&spec.scaling)) return s->factor;
  if (const auto* s = std::get_if<Llama3Scaling>(&spec.scaling)) {
    return s->factor;
  }
  return std::nullopt;
}

// An unknown length counts as sufficient.
void CompareLengths(const ConfigCase& ours, const ConfigCase& theirs,
                    Likeness* likeness) {
  const auto length = ours.MaxPositions(), published = theirs.MaxPositions();
  const RopeSpec& a = ours.reference()->ropes[0]->spec;
  const RopeSpec& b = theirs.reference()->ropes[0]->spec;
  likeness->same_length = length.value_or(0) == published.value_or(0);
  const auto factor = FactorOf(a), their_factor = FactorOf(b);
  if (length && published) {
    likeness->longer = *length > *published;
    const double most = factor.value_or(1) * static_cast<double>(*published);
    likeness->reaches = (a.scaling.index() > 0 && !factor) ||
                        static_cast<double>(*length) <= most;
    likeness->extends = factor && static_cast<double>(*length) == most;
    likeness->same_but_farther = *length > *published && factor &&
                                 their_factor && *factor > *their_factor &&
                                 a.scaling.index() == b.scaling.index();
  }
}

// Matches each group of our layers with one of theirs: the equal one, or else
// the next, because files that list their layers have another order than files
// that list only types. If all our layers are alike, each of their groups is
// matched with this one. Empty if the layers cannot be compared.
std::vector<Match> MatchGroups(const ConfigCase& ours,
                               const ConfigCase& theirs) {
  const std::size_t n = ours.groups().size(), m = theirs.groups().size();
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
        if (taken[h] || (same && ours.reference()->ropes[g]->inv_freq !=
                                     theirs.reference()->ropes[h]->inv_freq)) {
          continue;
        }
        matches.push_back({g, h});
        matched[g] = taken[h] = true;
      }
    }
  }
  return matches;
}

// Returns the length before scaling that the scaling's own keys name.
std::optional<double> OriginalOf(const ConfigCase& config) {
  const json* const dict = config.FlatDict(nullptr);
  return dict == nullptr ? std::nullopt : config.Original(*dict);
}

Likeness Compare(const ConfigCase& ours, const ConfigCase& theirs,
                 const std::vector<Match>& matches) {
  Likeness likeness;
  const std::int64_t length = ours.MaxPositions().value_or(0);
  CompareLengths(ours, theirs, &likeness);
  likeness.differing = matches.front();
  for (std::size_t i = matches.size(); i-- > 0;) {
    const ResolvedRope& a = *ours.reference()->ropes[matches[i].ours];
    const ResolvedRope& b = *theirs.reference()->ropes[matches[i].theirs];
    likeness.base &= a.spec.rope_theta == b.spec.rope_theta;
    likeness.larger_bases &= a.spec.rope_theta && b.spec.rope_theta &&
                             *a.spec.rope_theta >= *b.spec.rope_theta;
    likeness.default_bases &= (a.spec.nope && b.spec.nope) ||
                              a.spec.rope_theta == ours.family().theta ||
                              a.spec.rope_theta == kUsualBase;
    const bool same = a.inv_freq == b.inv_freq &&
                      a.attention_factor == b.attention_factor &&
                      a.softmax_scale_multiplier == b.softmax_scale_multiplier;
    // With another base, the same scaling gives other numbers.
    likeness.scaling &= a.spec.rope_theta == b.spec.rope_theta
                            ? same
                            : ScalingAlone(a.spec) == ScalingAlone(b.spec);
    likeness.numbers &= same;
    likeness.ours_scaled |= IsScaled(a);
    likeness.theirs_scaled |= IsScaled(b);
    // A scaling without its own original length has the whole model's length;
    // linear scaling divides that by its factor.
    const auto* const linear = std::get_if<LinearScaling>(&b.spec.scaling);
    const double original =
        static_cast<double>(b.original_max_position_embeddings) /
        (linear == nullptr ? 1 : linear->factor);
    if (IsScaled(b) && !likeness.same_length && length > 0 &&
        static_cast<double>(length) <= original) {
      likeness.within_original = true;
    }
    if (!same) likeness.differing = matches[i];
  }
  const auto from = OriginalOf(ours);
  const auto theirs_at_most = theirs.MaxPositions();
  likeness.beyond_original = likeness.ours_scaled && !likeness.theirs_scaled &&
                             from && theirs_at_most &&
                             *from > static_cast<double>(*theirs_at_most);
  return likeness;
}

// True if the vocabulary is not the preset's; tuning may add a few tokens.
// Presets have no vocab_size, so it is here for presets that files lost base,
// scaling and length of.
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

// True if the difference needs no finding: the two are the same; ours is longer
// with a larger base, which is how contexts are extended; only ours is scaled,
// or by a larger factor; or ours is the model before scaling.
bool Fits(const Likeness& likeness) {
  return likeness.numbers ||
         (likeness.longer && likeness.larger_bases && likeness.scaling) ||
         (likeness.base && !likeness.beyond_original &&
          (!likeness.theirs_scaled || likeness.same_but_farther ||
           (!likeness.ours_scaled && likeness.within_original)));
}

// True if one key separates ours from a model of the same length.
bool IsOneKeyAway(const Likeness& likeness) {
  return likeness.same_length && likeness.theirs_scaled && !likeness.numbers &&
         likeness.base != likeness.scaling;
}

// Describes a rope for a message, by what distinguishes it from the other.
std::string Text(const ResolvedRope& rope, const ResolvedRope& other) {
  const auto base = [](const ResolvedRope& one) {
    return absl::StrCat("base ", one.spec.rope_theta
                                     ? PlainNumber(*one.spec.rope_theta)
                                     : "of its own");
  };
  const auto factor = FactorOf(rope.spec), theirs = FactorOf(other.spec);
  std::string text;
  if (rope.spec.rope_theta != other.spec.rope_theta) text = base(rope);
  if (factor && theirs && *factor != *theirs &&
      rope.spec.scaling.index() == other.spec.scaling.index()) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", "factor ",
                    PlainNumber(*factor));
  } else if (ScalingAlone(rope.spec) != ScalingAlone(other.spec)) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", ScalingAlone(rope.spec));
  }
  if (text.empty() && rope.inv_freq != other.inv_freq) {
    text = interpretation::ScalingText(rope.spec);
  }
  if (text.empty()) {
    text = absl::StrCat("amplitude ", PlainNumber(rope.attention_factor),
                        ", softmax x ",
                        PlainNumber(rope.softmax_scale_multiplier));
  }
  return text;
}

constexpr const char* kRotaryKeys[] = {"rope_theta", "rope_local_base_freq",
                                       "partial_rotary_factor", "rope_scaling",
                                       "rope_parameters"};

bool IsGiven(const ConfigCase& config, const char* key) {
  const auto it = config.part().find(key);
  return it != config.part().end() && !it->is_null();
}

// Names our rotary keys that a preset lacks: "; and remove a, b". The base is
// not among them, because it may be the class's.
std::string KeysToRemove(const ConfigCase& ours, const ConfigCase& published) {
  std::string text;
  for (const char* key : kRotaryKeys) {
    if (absl::string_view(key) == "rope_theta" || !IsGiven(ours, key) ||
        IsGiven(published, key)) {
      continue;
    }
    absl::StrAppend(&text, text.empty() ? "; and remove " : ", ",
                    ours.KeyPath(key));
  }
  return text;
}

// Returns a preset's rotary keys as text to paste; long lists by name only.
std::string PublishedKeys(const ConfigCase& published) {
  json keys = json::object();
  for (const char* key : kRotaryKeys) {
    if (IsGiven(published, key)) keys[key] = published.part()[key];
  }
  constexpr std::size_t kMost = 600;
  if (keys.empty()) return DescribeRope(*published.reference()->ropes[0]);
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
             ? DescribeRope(*published.reference()->ropes[0])
             : absl::StrCat(text.substr(1, text.size() - 2), lists);
}

}  // namespace

std::optional<PublishedHead> FindPublishedHead(const ConfigCase& config) {
  const std::vector<double> shape = ShapeOf(config);
  for (const Published& model : AllPublished()) {
    if (model.type != config.type()) continue;
    const ConfigCase published(model.name, model.root, {}, config.reach());
    // The heads' width is the result, so it is not compared.
    std::vector<double> ours = shape, known = ShapeOf(published);
    ours[kHeadDim] = known[kHeadDim] = 1;
    if (published.reference() == nullptr || !HasWidthAndHeads(ours) ||
        !HasWidthAndHeads(known) || Contradicts(ours, known)) {
      continue;
    }
    return PublishedHead{model.name, published.reference()->ropes[0]->head_dim};
  }
  return std::nullopt;
}

void CheckPublished(ConfigCase* config) {
  const Reading* const reference = config->reference();
  if (reference == nullptr || config->type().empty()) return;
  const std::vector<double> shape = ShapeOf(*config);
  struct Near {
    int distance;
    std::vector<std::string> values;
    Likeness likeness;
  };
  std::optional<Near> nearest;
  bool fits = false, fits_reach = false, fits_length = false, one_key = false;
  for (const Published& model : AllPublished()) {
    if (model.type != config->type()) continue;
    const ConfigCase published(model.name, model.root, {}, config->reach());
    const Reading* const theirs = published.reference();
    if (theirs == nullptr || !SameShape(shape, ShapeOf(published))) continue;
    const std::vector<Match> matches = MatchGroups(*config, published);
    if (matches.empty()) continue;
    Likeness likeness = Compare(*config, published, matches);
    likeness.other_vocabulary = HasOtherVocabulary(*config, model.name);
    // Only their layers differ: ours lost that, or are another model's.
    if (published.groups().size() != config->groups().size() &&
        !likeness.is_lost()) {
      continue;
    }
    if (!model.own) {
      fits_length |= likeness.numbers && likeness.same_length;
      continue;
    }
    if (Fits(likeness)) {
      fits = true;
      fits_reach |= likeness.reaches;
      fits_length |= likeness.same_length;
      continue;
    }
    if (likeness.is_other()) continue;
    one_key |= IsOneKeyAway(likeness);
    const int distance =
        (likeness.same_length || likeness.extends ? 0 : 8) +
        (likeness.base ? 0 : 2) + (likeness.scaling ? 0 : 1) +
        (likeness.ours_scaled == likeness.theirs_scaled ? 0 : 1);
    if (nearest && distance >= nearest->distance) continue;
    const ResolvedRope& a = *reference->ropes[likeness.differing.ours];
    const ResolvedRope& b = *theirs->ropes[likeness.differing.theirs];
    const std::string found = Text(a, b);
    const std::string wanted =
        likeness.beyond_original && likeness.base
            ? absl::StrCat("no scaling and ", *published.MaxPositions(),
                           " positions")
            : Text(b, a);
    nearest =
        Near{distance,
             {model.name, wanted, found == wanted ? "other factors" : found,
              PublishedKeys(published) + KeysToRemove(*config, published)},
             likeness};
  }
  if (!nearest || fits_length) return;
  // If another model fits, there is a finding only for a file that is too long
  // for that model, and as long as the nearest.
  const bool as_long =
      nearest->likeness.same_length || nearest->likeness.extends;
  if (fits && !one_key && (fits_reach || !as_long)) return;
  // An absent base has its own check.
  for (const Finding& finding : config->findings()) {
    if (finding.id == "config.theta-absent" && nearest->likeness.scaling)
      return;
  }
  config->Add("config.unlike-published", nearest->values,
              {config->KeyPath("rope_theta"), config->KeyPath("rope_scaling")});
}

}  // namespace posenc::core::doctor
