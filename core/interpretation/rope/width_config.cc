// ReadWidth() of rope_config.h: the rotated width.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/interpretation/provenance.h"
#include "core/interpretation/rope/rope_config.h"

namespace posenc::core::interpretation {
namespace {

constexpr absl::string_view kShare = "partial_rotary_factor";

// False for a class that does not read partial_rotary_factor outside of its
// dict. Such a class sets the factor itself, or has a dict for each layer type.
bool ReadsShareOfConfig(const RopeDict& from) {
  if (from.family.fixed_partial && from.by_class()) return false;
  return !from.is_hf() ||
         (from.family.dicts != DictRule::kNested &&
          from.family.dicts != DictRule::kMerged) ||
         (from.nested && from.family.all_entries);
}

// True if the class does not read the share of the dict, because it writes its
// own share into a flat dict.
bool ReplacesShare(const RopeDict& from) {
  return from.by_class() && from.family.dicts == DictRule::kSplit &&
         !from.nested;
}

// Returns the number of channels that a share gives. The result keeps the key
// of the share.
Value ChannelsOf(const RopeDict& from, Value share) {
  share.value = std::floor(from.head.value * share.value);
  return share;
}

std::optional<Value> GivenChannels(const RopeDict& from) {
  const std::optional<Value> share = PartialFactor(from);
  if (!share) return std::nullopt;
  return ChannelsOf(from, *share);
}

// Returns the width by the given share, or else by the class's default share.
// For the share 1, returns from.head.
Value PartialWidth(const RopeDict& from) {
  if (const auto given = GivenChannels(from)) {
    return given->value == from.head.value ? from.head : *given;
  }
  const double share = DefaultShare(from);
  return share == 1 ? from.head
                    : ChannelsOf(from, Assumed(share, from.family.partial_key,
                                               DefaultOf(from.rules)));
}

// Returns the width of the rotated slice in latent attention. If head_dim or a
// share gives another width, transformers computes frequencies that its forward
// pass cannot apply.
Value LatentWidth(const RopeDict& from) {
  const std::optional<Value> slice = IntegerAt(from.config, "qk_rope_head_dim");
  if (!slice) {
    from.config.Fail("qk_rope_head_dim",
                     "is missing; this model rotates that slice");
    return {};
  }
  const auto has = [&from](ReadingRule rule) {
    return ClassRow(from.model_type, rule) != nullptr;
  };
  const bool derives_head = has(ReadingRule::kDerivesHeadDim);
  if (from.config.HasNull("head_dim") && from.is_hf() && !derives_head) {
    from.config.Warn(
        "head_dim",
        " is null, so transformers makes frequencies for hidden_size / "
        "num_attention_heads channels, or fails; qk_rope_head_dim ",
        slice->text, " is rotated");
  }
  const ReadingRow* const fails = from.Row(ReadingRule::kFailsAtType);
  if (fails != nullptr && IsAmong(from.type, fails->what)) return *slice;
  const bool is_dots = !from.family.kinds[0].type.empty();
  std::optional<Value> head_dim, share;
  if (!derives_head && !from.rules.vllm_modules) {
    head_dim = IntegerAt(from.config, "head_dim");
  }
  if (from.type != "default" || !from.is_hf() || is_dots ||
      has(ReadingRule::kReadsShare)) {
    share = PartialFactor(from);
  }
  // A proportional share decides which pairs rotate, not how many pairs there
  // are.
  if (from.type == "proportional") share.reset();
  // In Dots 3, the share in every dict gives the width of the slice.
  if (is_dots) return *slice;
  if (!head_dim && !share) return *slice;
  // If head_dim is not given, a share is a part of the slice, or of the whole
  // head in the classes with kFailsAtType.
  const double unit =
      has(ReadingRule::kFailsAtType) ? from.head.value : slice->value;
  const double theirs =
      std::floor((head_dim ? head_dim->value : unit) *
                 (share ? share->value : slice->value / unit));
  if (theirs == slice->value) return *slice;
  const Value& other = share ? *share : *head_dim;
  from.report().Warn(
      other.key, " is ", other.text, ", so ",
      from.rules.vllm_modules ? from.rules.project : "transformers",
      " makes frequencies for ", theirs, " channels; qk_rope_head_dim ",
      slice->text, " is rotated");
  return *slice;
}

// Returns the width by the key rotary_dim, or else by a share.
Choice KeyedWidth(const RopeDict& from) {
  std::optional<Value> width = IntegerAt(from.config, "rotary_dim");
  if (!width && from.family.slice == RotarySlice::kTrailing) {
    width = IntegerAt(from.config, "qk_rope_head_dim");
    // DeepSeek V4 writes this width only into a flat dict.
    if (width && from.nested && from.by_class()) {
      return {PartialWidth(from), {*width}};
    }
  }
  if (!width && from.family.rotary_dim > 0 && from.by_class() &&
      !from.config.HasNull("rotary_dim")) {
    return {Assumed(static_cast<double>(from.family.rotary_dim), "rotary_dim",
                    DefaultOf(from.rules))};
  }
  if (!width) return {PartialWidth(from)};
  const std::optional<Value> share = GivenChannels(from);
  if (!share) return {*width};
  if (from.is_hf() && from.family.dicts != DictRule::kNone) {
    return {*share, {*width}};
  }
  return {*width, {*share}};
}

// For an unknown model_type without partial_rotary_factor, returns the width by
// any other key that files use for the width. Returns nullopt for other
// configurations, or if no such key has a valid value.
std::optional<Choice> WidthByAnyName(const RopeDict& from) {
  if (!from.family.any_names || from.dict.Has(kShare) ||
      from.config.Has(kShare)) {
    return std::nullopt;
  }
  if (from.config.Has("rotary_dim")) return KeyedWidth(from);
  for (const absl::string_view key :
       {"rotary_pct", "rotary_emb_fraction", "rope_pct", "rope_percent"}) {
    const std::optional<double> share = from.config.Number(key);
    if (!share || !(*share > 0 && *share <= 1)) continue;
    return Choice{ChannelsOf(
        from, Assumed(*share, kShare,
                      absl::StrCat("by ", key,
                                   ", because model_type is not known")))};
  }
  return std::nullopt;
}

// Returns the source from which this reader takes the width.
RotaryWidth SourceOf(const RopeDict& from) {
  RotaryWidth source = from.family.width;
  if (source == RotaryWidth::kRotaryDimElsewhere ||
      source == RotaryWidth::kRotaryDimOrHead) {
    source = !from.is_hf()                             ? RotaryWidth::kRotaryDim
             : source == RotaryWidth::kRotaryDimOrHead ? RotaryWidth::kHead
                                                       : RotaryWidth::kPartial;
  }
  if (source == RotaryWidth::kRotaryDim &&
      from.Row(ReadingRule::kNoRotaryDim) != nullptr) {
    return RotaryWidth::kPartial;
  }
  if (source == RotaryWidth::kPartial &&
      from.Row(ReadingRule::kReadsRotaryDim) != nullptr) {
    return RotaryWidth::kRotaryDim;
  }
  return source;
}

Value ProjectedWidth(const JsonObject& config) {
  constexpr std::int64_t kLeast = 32;
  const std::int64_t heads = config.Integer("num_attention_heads").value_or(1);
  return Whole(std::max(config.Integer("projection_dim").value_or(0) /
                            (2 * std::max<std::int64_t>(heads, 1)),
                        kLeast),
               config.Path("projection_dim"));
}

Choice WidthOf(const RopeDict& from) {
  if (auto any = WidthByAnyName(from)) return *std::move(any);
  if (from.type == "proportional") return {from.head};
  const RotaryWidth source = SourceOf(from);
  if (from.Row(ReadingRule::kWholeHead) != nullptr &&
      !(source == RotaryWidth::kRotaryDim && from.config.Has("rotary_dim"))) {
    return {from.head,
            {PartialWidth(from)},
            absl::StrCat(from.Class(), " rotates the whole head")};
  }
  if (source == RotaryWidth::kRotaryDim) return KeyedWidth(from);
  if (source == RotaryWidth::kProjected) return {ProjectedWidth(from.config)};
  Choice choice;
  // vLLM applies a given share in every model.
  if (source == RotaryWidth::kHead && !from.rules.vllm_modules &&
      (from.type == "default" ||
       (from.type == "dynamic" && ScalesBaseByAlpha(from)))) {
    choice = {from.head,
              {},
              absl::StrCat(from.rules.project,
                           " rotates the whole head of this model type if rope "
                           "is not scaled")};
    if (const auto share = GivenChannels(from)) choice.left.push_back(*share);
  } else {
    choice.taken = PartialWidth(from);
  }
  if (const auto keyed = IntegerAt(from.config, "rotary_dim")) {
    choice.left.push_back(*keyed);
  }
  return choice;
}

Value RotatedWidth(const RopeDict& from) {
  if (from.family.width == RotaryWidth::kMla) return LatentWidth(from);
  Choice choice = WidthOf(from);
  const Value& taken = choice.taken;
  if (ReplacesShare(from)) {
    const auto share = NumberAt(from.dict, kShare);
    if (share) choice.left.push_back(ChannelsOf(from, *share));
  }
  if (choice.why.empty()) {
    choice.why = absl::StrCat(from.rules.project, " rotates ", taken.value,
                              " of the ", from.head.value, " channels, by ",
                              taken.key, " ", taken.text);
  }
  Tell(choice, "rotary_dim", from.rules, &from.report());
  return choice.taken;
}

// Reports the error that this number of channels cannot rotate.
void FailWidth(const RopeDict& from, const Value& width) {
  const auto channels = WholePart(width.value);
  from.report().Refuse(ConfigError(
      width.key,
      absl::StrCat(
          "is ", width.text, ", so ", channels, " of the ", from.head.value,
          " channels of a head would rotate; channels rotate in pairs: give an "
          "even number, 2 to ",
          kMaxRotaryDim,
          from.is_hf() && channels % 2 != 0 && channels > 0
              ? absl::StrCat("; transformers makes ", (channels + 1) / 2,
                             " frequencies for them and its layers cannot "
                             "apply these, or it refuses the file")
              : "")));
}

// Warns of a width that the class refuses, or that its layers cannot apply.
void WarnOfWidth(const RopeDict& from, const Value& width) {
  const ReadingRow* const row =
      ClassRow(from.model_type, ReadingRule::kWidthMultiple);
  const bool is_whole = row != nullptr ? row->number == 0
                                       : SourceOf(from) == RotaryWidth::kHead &&
                                             from.family.known() &&
                                             !IsRemote(from.model_type);
  // Only transformers' own layers must rotate the whole head. vLLM's layers can
  // rotate a slice of any even width.
  if (is_whole ? !from.is_hf() : row == nullptr || !from.by_class()) return;
  const double unit = is_whole ? from.head.value : row->number;
  if (std::fmod(width.value, unit) == 0) return;
  from.report().Warn(
      width.key, " gives ", width.value, " of ", from.head.value, " channels; ",
      ClassOf(from.model_type), " ",
      row != nullptr ? row->says : "rotates the whole head, and fails");
}

// True if transformers computes frequencies for this odd number of channels.
bool IsOddShare(const RopeDict& from, std::int64_t width) {
  return width % 2 != 0 && static_cast<double>(width) < from.head.value &&
         IsAmong(from.type, "default linear") && from.by_class();
}

}  // namespace

std::optional<Value> PartialFactor(const RopeDict& from) {
  const std::pair<const JsonObject*, absl::string_view> places[] = {
      {&from.dict, kShare}, {&from.config, from.family.partial_key}};
  for (const auto& [object, key] : places) {
    if (object == &from.config
            ? !ReadsShareOfConfig(from)
            : ReplacesShare(from) ||
                  from.Row(ReadingRule::kShareBeside) != nullptr) {
      continue;
    }
    const std::optional<Value> share = NumberAt(*object, key);
    if (!share) continue;
    if (!(share->value > 0 && share->value <= 1)) {
      object->Fail(key, "is ", share->text, "; it must be in (0, 1]");
    }
    return share;
  }
  return std::nullopt;
}

// In most classes a null removes the default share, so the whole head rotates.
double DefaultShare(const RopeDict& from) {
  const absl::string_view key = from.family.partial_key;
  if (from.is_hf() && from.config.Contains(key) &&
      from.config.At(key).is_null() && ReadsShareOfConfig(from) &&
      from.Row(ReadingRule::kNullShare) == nullptr) {
    return 1;
  }
  // A class with kSplit writes its own share only into a flat dict.
  if (from.by_class() && from.nested && from.family.dicts == DictRule::kSplit) {
    return 1;
  }
  const ReadingRow* const otherwise = from.Row(ReadingRule::kDefaultShare);
  if (otherwise != nullptr) return otherwise->number;
  return from.kind != nullptr && from.kind->partial > 0 ? from.kind->partial
                                                        : from.family.partial;
}

std::int64_t ReadWidth(const RopeDict& from) {
  const Value rotated = RotatedWidth(from);
  const auto width = WholePart(rotated.value);
  WarnOfWidth(from, rotated);
  if (width >= 1 && width <= kMaxRotaryDim &&
      (width % 2 == 0 || IsOddShare(from, width))) {
    return width;
  }
  FailWidth(from, rotated);
  return 0;
}

}  // namespace posenc::core::interpretation
