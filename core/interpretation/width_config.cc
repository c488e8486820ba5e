// The rotated width: ReadWidth() of rope_config.h.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/error.h"
#include "core/interpretation/layers.h"
#include "core/interpretation/provenance.h"
#include "core/interpretation/rope_config.h"
#include "core/interpretation/rope_dicts.h"
#include "core/interpretation/scaling_config.h"

namespace posenc::core::interpretation {

namespace {

// False for a class that reads no share beside its dict: it sets the share
// itself, or has an entry for each type.
bool ReadsShareOfConfig(const RopeDict& from) {
  if (from.family.fixed_partial && ReadsByClass(from.rules)) return false;
  return from.rules.profile != Profile::kHf ||
         (from.family.dicts != DictRule::kNested &&
          from.family.dicts != DictRule::kMerged);
}

}  // namespace

// partial_rotary_factor, of the layer's dict or else of the configuration.
std::optional<double> PartialFactor(const RopeDict& from) {
  constexpr absl::string_view kKey = "partial_rotary_factor";
  const std::pair<const JsonObject*, absl::string_view> places[] = {
      {&from.dict, kKey},
      {&from.config, kKey},
      {&from.config, from.family.partial_key}};
  for (const auto& [object, key] : places) {
    if (object == &from.config && !ReadsShareOfConfig(from)) continue;
    // A class with a key of its own does not read the usual one.
    if (object == &from.config && key != from.family.partial_key) continue;
    const std::optional<double> factor = object->Number(key);
    if (!factor) continue;
    if (!(*factor > 0 && *factor <= 1)) {
      object->Fail(key, absl::StrCat("is ", NumberText(*factor),
                                     "; it must be in (0, 1]"));
    }
    return factor;
  }
  return std::nullopt;
}

// The class's own share. A null in the place of a number leaves none, but in
// DeepSeek V4's class, which takes it for an absent one.
double DefaultShare(const RopeDict& from) {
  const nlohmann::json* given = from.config.Find(from.family.partial_key);
  if (from.rules.profile == Profile::kHf && given != nullptr &&
      given->is_null() && ReadsShareOfConfig(from) &&
      from.model_type != "deepseek_v4") {
    return 1;
  }
  const ReadingRow* const otherwise = from.Row(ReadingRule::kDefaultShare);
  if (otherwise != nullptr) return otherwise->number;
  return from.kind != nullptr && from.kind->partial > 0 ? from.kind->partial
                                                        : from.family.partial;
}

namespace {

std::int64_t PartialWidth(const RopeDict& from, ModelRope* rope) {
  std::optional<double> factor = PartialFactor(from);
  if (!factor) {
    factor = DefaultShare(from);
    if (*factor != 1) {
      Assume(std::string(from.family.partial_key), NumberText(*factor),
             DefaultOf(from.rules), rope);
    }
  }
  return static_cast<std::int64_t>(static_cast<double>(from.head_dim) *
                                   *factor);
}

// The rotated slice of latent attention. A head_dim or a share that says
// otherwise would give transformers frequencies that its forward cannot apply.
std::int64_t LatentWidth(const RopeDict& from, const std::string& type,
                         ModelRope* rope) {
  const auto width = from.config.Integer("qk_rope_head_dim");
  if (!width) {
    from.config.Fail("qk_rope_head_dim",
                     "is missing; this model rotates that slice");
    return 0;
  }
  const auto head_dim = from.config.Integer("head_dim");
  if (from.config.HasNull("head_dim") && from.rules.profile == Profile::kHf &&
      !IsAmong(from.model_type, "deepseek_v2 minicpm3")) {
    Warn(&rope->warnings, from.config, "head_dim",
         " is null, by which transformers makes frequencies for hidden_size / "
         "num_attention_heads channels, or fails; qk_rope_head_dim ",
         *width, " is rotated");
  }
  // Mistral 4's class gives yarn alone the share that fits.
  if (from.model_type == "mistral4" && from.rules.profile == Profile::kHf &&
      IsAmong(type, "default proportional")) {
    Warn(&rope->warnings, from.dict, TypeKey(from.dict), " is ", type,
         ", for which transformers' class of model_type mistral4 makes "
         "frequencies of qk_nope_head_dim + qk_rope_head_dim channels, ",
         from.head_dim, ", and cannot apply them; qk_rope_head_dim ", *width,
         " is rotated");
    return *width;
  }
  const auto given = PartialFactor(from);
  // A proportional share says which pairs turn, not how many there are.
  const bool factor = given.has_value() && type != "proportional";
  const double share = factor ? *given : 1;
  const auto channels = [share](std::int64_t head) {
    return static_cast<std::int64_t>(static_cast<double>(head) * share);
  };
  // A class's own dict, and Dots 3 in every case, have the share that fits.
  if ((from.from_class && !from.config.Has("partial_rotary_factor")) ||
      !from.family.kinds[0].type.empty()) {
    return *width;
  }
  if ((!head_dim || channels(*head_dim) == *width) &&
      (!factor || head_dim || channels(*width) == *width ||
       channels(from.head_dim) == *width)) {
    return *width;
  }
  rope->warnings.push_back(absl::StrCat(
      factor ? from.dict.Path("partial_rotary_factor") : "head_dim", " is ",
      factor ? NumberText(share) : absl::StrCat(*head_dim),
      ", by which transformers makes frequencies for ",
      channels(head_dim.value_or(*width)), " channels; qk_rope_head_dim ",
      *width, " is rotated"));
  return *width;
}

// The key rotary_dim, and what a share says beside it.
std::int64_t KeyedWidth(const RopeDict& from, ModelRope* rope) {
  const auto width =
      from.family.slice == RotarySlice::kTrailing
          ? from.config.FirstInteger({"rotary_dim", "qk_rope_head_dim"})
          : from.config.Integer("rotary_dim");
  if (!width && from.family.rotary_dim > 0 && ReadsByClass(from.rules) &&
      !from.config.HasNull("rotary_dim")) {
    Assume("rotary_dim", absl::StrCat(from.family.rotary_dim),
           DefaultOf(from.rules), rope);
    return from.family.rotary_dim;
  }
  if (!width) return PartialWidth(from, rope);
  const auto factor = PartialFactor(from);
  if (!factor) return *width;
  const auto partial =
      static_cast<std::int64_t>(static_cast<double>(from.head_dim) * *factor);
  if (partial == *width) return *width;
  const bool share = from.rules.profile == Profile::kHf &&
                     from.family.dicts != DictRule::kNone;
  rope->warnings.push_back(
      absl::StrCat("rotary_dim is ", *width, ", and partial_rotary_factor ",
                   NumberText(*factor), " of head_dim ", from.head_dim, " is ",
                   partial, "; ",
                   share ? "transformers reads the latter, which is used"
                         : "rotary_dim is used"));
  return share ? partial : *width;
}

// The key that decides the width, and its object.
std::pair<const JsonObject*, absl::string_view> WidthKey(const RopeDict& from,
                                                         std::int64_t width) {
  const JsonObject& config = from.config;
  if (from.family.width == RotaryWidth::kMla) {
    return {&config, "qk_rope_head_dim"};
  }
  if (config.Has("rotary_dim")) return {&config, "rotary_dim"};
  // A share has no part in the width of a whole head.
  const bool is_share = width != from.head_dim;
  if (is_share && from.dict.Has("partial_rotary_factor")) {
    return {&from.dict, "partial_rotary_factor"};
  }
  if (is_share && config.Has(from.family.partial_key)) {
    return {&config, from.family.partial_key};
  }
  if (config.PeekInteger("global_head_dim") == from.head_dim) {
    return {&config, "global_head_dim"};
  }
  for (const absl::string_view key :
       {from.family.head_dim_key, absl::string_view("head_dim"),
        absl::string_view("attention_head_dim")}) {
    if (config.Has(key)) return {&config, key};
  }
  return {&config, "hidden_size"};
}

}  // namespace

void FailWidth(const RopeDict& from, std::int64_t width) {
  const auto [object, key] = WidthKey(from, width);
  const nlohmann::json* value = object->Find(key);
  const nlohmann::json* heads = from.config.Find("num_attention_heads");
  object->Fail(
      key,
      absl::StrCat(
          value == nullptr ? "is absent"
                           : absl::StrCat("is ", Shortened(*value)),
          key == "hidden_size" && heads != nullptr
              ? absl::StrCat(", and num_attention_heads ", Shortened(*heads))
              : "",
          ", by which ", width, " of the ", from.head_dim,
          " channels of a head turn; they turn in pairs: give an even number, "
          "2 to ",
          kMaxRotaryDim,
          from.rules.profile == Profile::kHf && width % 2 != 0 && width > 0
              ? absl::StrCat("; transformers makes ", (width + 1) / 2,
                             " frequencies of them, which its layers cannot "
                             "apply, or refuses the file")
              : ""));
}

std::int64_t ReadWidth(const RopeDict& from, const std::string& type,
                       ModelRope* rope) {
  RotaryWidth source = from.family.width;
  if (from.family.any_names && source == RotaryWidth::kPartial &&
      !from.dict.Has("partial_rotary_factor") &&
      !from.config.Has("partial_rotary_factor")) {
    if (from.config.Has("rotary_dim")) return KeyedWidth(from, rope);
    for (const absl::string_view key :
         {"rotary_pct", "rotary_emb_fraction", "rope_pct", "rope_percent"}) {
      const std::optional<double> share = from.config.Number(key);
      if (!share || !(*share > 0 && *share <= 1)) continue;
      Assume("partial_rotary_factor", NumberText(*share),
             absl::StrCat("by ", key, ", as model_type is not known"), rope);
      return static_cast<std::int64_t>(static_cast<double>(from.head_dim) *
                                       *share);
    }
  }
  if (source == RotaryWidth::kMla) return LatentWidth(from, type, rope);
  if (type == "proportional") return from.head_dim;
  if (from.Row(ReadingRule::kWholeHead) != nullptr) {
    const double factor = PartialFactor(from).value_or(from.family.partial);
    if (factor != 1) {
      rope->warnings.push_back(absl::StrCat(
          from.family.partial_key, " is ", NumberText(factor), ", by which ",
          static_cast<std::int64_t>(static_cast<double>(from.head_dim) *
                                    factor),
          " channels turn; ", from.rules.project, "'s class of model_type ",
          from.model_type, " rotates the whole head of ", from.head_dim));
    }
    return from.head_dim;
  }
  if (source == RotaryWidth::kRotaryDimElsewhere ||
      source == RotaryWidth::kRotaryDimOrHead) {
    source = from.rules.profile != Profile::kHf        ? RotaryWidth::kRotaryDim
             : source == RotaryWidth::kRotaryDimOrHead ? RotaryWidth::kHead
                                                       : RotaryWidth::kPartial;
  }
  if (source == RotaryWidth::kRotaryDim &&
      from.Row(ReadingRule::kNoRotaryDim) != nullptr) {
    source = RotaryWidth::kPartial;
  }
  if (source == RotaryWidth::kRotaryDim) return KeyedWidth(from, rope);
  if (source == RotaryWidth::kProjected) {
    const std::int64_t heads =
        from.config.Integer("num_attention_heads").value_or(1);
    constexpr std::int64_t kLeast = 32;
    return std::max(from.config.Integer("projection_dim").value_or(0) /
                        (2 * std::max<std::int64_t>(heads, 1)),
                    kLeast);
  }
  std::int64_t width = 0;
  const bool is_unscaled =
      type == "default" || (type == "dynamic" && TurnsByAlpha(from));
  // vLLM takes the share for every model that gives it.
  if (source == RotaryWidth::kHead && is_unscaled && !from.rules.vllm_modules) {
    const double factor = PartialFactor(from).value_or(1);
    if (factor != 1) {
      rope->warnings.push_back(absl::StrCat(
          "partial_rotary_factor ", NumberText(factor),
          " is ignored: ", from.rules.project,
          " rotates the whole head of this model type where rope is not "
          "scaled"));
    }
    width = from.head_dim;
  } else {
    width = PartialWidth(from, rope);
  }
  const auto keyed = from.config.Integer("rotary_dim");
  if (keyed && *keyed != width) {
    Warn(&rope->warnings, from.config, "rotary_dim", " is ", *keyed, ", and ",
         source == RotaryWidth::kHead && is_unscaled
             ? absl::StrCat("head_dim ", from.head_dim)
             : absl::StrCat("partial_rotary_factor ",
                            NumberText(PartialFactor(from).value_or(1)),
                            " of head_dim ", from.head_dim, " is ", width),
         "; ", from.rules.project, " reads the latter for this model type");
  }
  return width;
}

}  // namespace posenc::core::interpretation
