#include "core/interpretation/rope/rope_config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "core/angle/wide.h"
#include "core/base/error.h"
#include "core/interpretation/classes/known_keys.h"

namespace posenc::core::interpretation {
namespace {

// Checks the keys without which the reader's class cannot be built.
void CheckNeededKeys(const RopeDict& from) {
  const ReadingRow* const row = from.Row(ReadingRule::kNeedsKeys);
  if (row == nullptr) return;
  for (const absl::string_view key : absl::StrSplit(row->what, ' ')) {
    if (from.config.Contains(key)) continue;
    from.config.Fail(key, "is missing; ", from.Class(), " needs it, and ",
                     row->says);
  }
}

void ReadPairing(const RopeDict& from, RopeSpec* spec) {
  spec->pairing = from.family.pairing;
  const bool is_latent = from.family.width == RotaryWidth::kMla;
  const absl::string_view key =
      is_latent ? "rope_interleave" : from.family.interleave_key;
  const std::optional<bool> interleaves =
      key.empty() ? std::nullopt : from.config.Flag(key);
  // vLLM's files of DeepSeek's models do not read the key.
  const bool is_read =
      !is_latent || (from.rules.profile != Profile::kVllm &&
                     (!from.is_hf() || from.family.reads_interleave));
  if (interleaves == false && is_read) {
    spec->pairing = Pairing::kHalfSplit;
  } else if (from.is_hf()) {
    // In other projects the output has the pairing of the input.
    spec->output_pairing = from.family.output_pairing;
  }
  const bool is_interleaved = from.family.pairing == Pairing::kInterleaved;
  if (interleaves && !is_read && *interleaves != is_interleaved) {
    from.config.Warn(key, " is ", *interleaves ? "true" : "false", ", which ",
                     from.Class(), " does not read: its pairs are ",
                     is_interleaved ? "interleaved" : "half-split",
                     ", and these are used");
  }
  if (spec->pairing != Pairing::kHalfSplit) return;
  if (from.rules.profile == Profile::kMlx &&
      from.config.Flag("rope_traditional").value_or(false)) {
    spec->pairing = Pairing::kInterleaved;
  } else if (const auto* row = from.Row(ReadingRule::kPermutesRows)) {
    if (row->what == "interleaved") spec->pairing = Pairing::kInterleaved;
    from.report().Assume("pairing", std::string(row->what),
                         std::string(row->says));
  }
}

void ReadProportional(const RopeDict& from, RopeSpec* spec) {
  const std::optional<Value> given = PartialFactor(from);
  const double share = given             ? given->value
                       : from.by_class() ? DefaultShare(from)
                                         : 1;
  // For proportional rotation, SGLang reads no factor.
  std::optional<double> factor;
  if (from.rules.profile != Profile::kSglang) {
    factor = from.dict.Number("factor");
  }
  // An invalid share gives a number that is refused later.
  const auto pairs = WholePart(
      std::clamp(std::floor(share * spec->rotary_dim / 2), -1.0, 0x1p30));
  spec->scaling = ProportionalScaling{factor, static_cast<std::int32_t>(pairs)};
}

// ggml gives a pair without an axis a fourth position. llama.cpp sets that
// position to 0, so the pair does not rotate. In other projects, a pair without
// an axis follows the time axis.
void StopLeftoverPairs(RopeSpec* spec, Report* report) {
  if (!spec->axes || spec->axes->assignment != AxisAssignment::kInterleaved ||
      spec->axes->sections.size() != 3) {
    return;
  }
  std::vector<std::int32_t> leftover;
  for (std::int32_t i = 0; i < spec->rotary_dim / 2; ++i) {
    if (i >= 3 * std::int64_t{spec->axes->sections[i % 3]}) {
      leftover.push_back(i);
    }
  }
  if (leftover.empty()) return;
  RopeSpec one_axis = *spec;
  one_axis.axes.reset();
  const auto resolved =
      ResolveSpec(one_axis, 0, std::nullopt, MissingLength::kAssumeOriginal);
  if (!resolved.ok()) return;  // the caller will report this error
  std::vector<double> inv_freq = resolved->inv_freq;
  for (const std::int32_t i : leftover) inv_freq[i] = 0;
  if (!spec->attention_factor) {
    spec->attention_factor = resolved->attention_factor;
  }
  WriteOutFrequencies(inv_freq, spec);
  report->Warn("llama.cpp does not turn pairs ", absl::StrJoin(leftover, ", "),
               ", which no section claims: it gives them a fourth position, "
               "always 0");
}

// If the number d of rotated channels is odd, transformers rotates ceil(d / 2)
// pairs, with exponents 2i / d.
void WriteOutOddWidth(std::int64_t width, RopeSpec* spec, Report* report) {
  const auto* linear = std::get_if<LinearScaling>(&spec->scaling);
  const double factor = linear != nullptr ? linear->factor : 1;
  const Wide ln_ratio =
      Log(*spec->rope_theta) * -2 / static_cast<double>(width);
  std::vector<double> inv_freq;
  for (const Wide& w : Powers(Exp(ln_ratio), (width + 1) / 2)) {
    inv_freq.push_back((w / factor).high);
  }
  report->Assume("rotary_dim", absl::StrCat(width + 1),
                 absl::StrCat("the file gives ", width,
                              " channels, which is odd; the last pair has a "
                              "channel more, and exponents are 2i / ",
                              width));
  WriteOutFrequencies(inv_freq, spec);
}

void ReadQueryScale(const RopeDict& from, ModelRope* rope) {
  // Most of transformers' classes do not read llama_4_scaling_beta.
  // WarnOfUnreadKeys() warns of this key.
  if (from.is_hf() && !from.family.reads_beta && !from.family.any_names) return;
  const auto beta = from.dict.Number("llama_4_scaling_beta");
  if (!beta) return;
  auto floor_scale = from.dict.Integer(kOriginal);
  if (!floor_scale) floor_scale = MaxPositions(from);
  if (!floor_scale) {
    from.config.Fail("max_position_embeddings",
                     "is missing; llama_4_scaling_beta needs a length");
    return;
  }
  rope->query_scale = QueryScale{*beta, static_cast<double>(*floor_scale), 0};
}

void WarnOfUnreadKeys(const RopeDict& from) {
  for (const std::string& key : from.dict.Keys()) {
    // Two keys need no warning. Mistral's dicts repeat the model's length, and
    // `finetuned` is about the training.
    if (key == "max_position_embeddings" || key == "finetuned") continue;
    // Qwen3-Omni's dicts have one flag under two names.
    if (key == "interleaved" && from.dict.Has("mrope_interleaved") &&
        from.dict.At(key) == from.dict.At("mrope_interleaved")) {
      continue;
    }
    if (from.dict.WasRead(key)) continue;
    from.dict.Warn(key, " is not read: ", from.rules.project,
                   " does not use it for rope type ", from.type);
  }
}

// `type` is the older name of rope_type, and some files have both keys. In two
// published combinations, the values differ but mean the same. In all other
// cases readers silently use one of the two keys, or refuse the file (vLLM).
void CheckTypesAgree(const RopeDict& from) {
  const auto newer = from.dict.Text("rope_type");
  const auto older = from.dict.Text("type");
  if (!newer || !older || *newer == *older ||
      (*older == "su" && *newer == "longrope") ||
      (*older == "mrope" && *newer == "default")) {
    return;
  }
  const std::string both = absl::StrCat("is \"", *older, "\", and rope_type \"",
                                        *newer, "\"; ", from.rules.project);
  if (from.Row(ReadingRule::kTypesConflict) != nullptr) {
    from.dict.Fail("type", both, " refuses types that differ: remove type");
    return;
  }
  const bool reads_older = from.Row(ReadingRule::kTypeFirst) != nullptr;
  from.dict.Warn(
      "type", " ", both, " reads ", reads_older ? "type" : "rope_type",
      ", so the layers turn by ", reads_older ? *older : *newer, " and not by ",
      reads_older ? *newer : *older, ": remove the one that is not meant");
}

// Refuses a rope type that the project knows but the class does not accept.
void CheckType(const RopeDict& from) {
  const absl::string_view key = TypeKey(from.dict);
  const absl::string_view accepted = from.family.rope_types;
  if (from.by_class() && !accepted.empty() &&
      IsAmong(from.type, KnownTypes(from.rules, from.model_type)) &&
      !IsAmong(from.type, accepted)) {
    from.dict.Fail(key, "is \"", from.type, "\"; ", ClassOf(from.model_type),
                   " takes ", absl::StrReplaceAll(accepted, {{" ", ", "}}),
                   " only");
  }
  const auto given = from.dict.Text(key);
  CheckTypesAgree(from);
  if (from.by_class() && from.family.merges_dicts() && given && key == "type" &&
      from.type == "default" && *given != "default" && *given != "mrope") {
    from.dict.Warn(key, " ", *given, " is not read: ", ClassOf(from.model_type),
                   " looks for rope_type, and rotates unscaled without it; the "
                   "file means ",
                   *given);
  }
  if (!from.is_hf()) return;
  const bool is_left = !from.config.Contains("head_dim") &&
                       from.defaults != nullptr &&
                       from.Row(ReadingRule::kNullHeadDim) != nullptr;
  const bool has_default =
      from.defaults != nullptr && from.defaults->head_dim > 0;
  const bool is_null = from.config.HasNull("head_dim") && !has_default;
  const bool may_fail =
      (is_null || is_left) && IsAmong(from.type, "yarn dynamic longrope");
  const bool by_alpha = may_fail && ScalesBaseByAlpha(from);
  if (may_fail && (!by_alpha || from.type == "dynamic")) {
    from.config.Warn("head_dim", is_left ? " is absent" : " is null",
                     ", and transformers' ", by_alpha ? "alpha" : from.type,
                     " fails on that",
                     by_alpha ? "" : " unless the class fills it in",
                     "; hidden_size / num_attention_heads is used");
  }
  const bool knows_mrope =
      IsAmong("mrope", KnownTypes(from.rules, from.model_type));
  if ((given == "mrope" && !knows_mrope) ||
      (given == "xdrope" && !from.family.reads_sections &&
       !IsRemote(from.model_type)) ||
      (given == "su" && !from.family.yarn_is_longrope)) {
    from.dict.Warn(key, " is \"", *given, "\", which ", from.Class(),
                   " refuses; read as ", from.type);
  }
  if (given == "su" && from.family.yarn_is_longrope &&
      !from.dict.Has(kOriginal)) {
    from.dict.Warn(
        kOriginal, " is absent, and ", from.Class(),
        " refuses that beside type \"su\", the earlier name of LongRoPE; read "
        "as longrope, with the length beside the dict");
  }
}

// Returns the type of scaling of the layers: the dict's type, or "default" if
// the dict's scaling does not apply to these layers.
std::string TypeOfLayers(const RopeDict& from, bool scaled) {
  const std::string type = RopeType(from);
  if (!scaled || type == "default") return "default";
  const ReadingRow* const unscaled = from.Row(ReadingRule::kUnscaled);
  const bool is_read = unscaled == nullptr || IsAmong(type, unscaled->what);
  if (from.scales && is_read) return type;
  from.dict.Warn(TypeKey(from.dict), " ", type, " is not used: ", from.Class(),
                 " ", from.scales ? unscaled->says : "does not scale",
                 "; its frequencies are unscaled");
  return "default";
}

}  // namespace

Value HeadDim(const Model& model, absl::string_view layer_type) {
  const auto& [config, model_type, family, rules, defaults] = model;
  const auto first = [&config](absl::string_view keys) {
    const absl::string_view key = config.FirstOf(keys);
    return key.empty() ? std::nullopt : IntegerAt(config, key);
  };
  if (family.width == RotaryWidth::kMla) {
    const std::int64_t rope = config.Integer("qk_rope_head_dim").value_or(0);
    const std::int64_t rest = config.Integer("qk_nope_head_dim").value_or(0);
    return Whole(rope + rest, config.Path("qk_nope_head_dim"));
  }
  if (auto of_type = LayerHeadDim(model, layer_type)) {
    return *std::move(of_type);
  }
  if (layer_type == "full_attention") {
    // The class's per_layer_config gives layers with full attention their
    // width. A per_layer_config in the file may replace the class's.
    const bool is_replaced =
        config.Contains("per_layer_config") &&
        (!family.merges_entries || config.At("per_layer_config").empty());
    if (family.global_head_dim > 0 && !is_replaced &&
        !config.Has("global_head_dim")) {
      return Whole(family.global_head_dim, config.Path("head_dim"));
    }
    if (auto given = first("global_head_dim")) return *std::move(given);
  }
  const std::string keys =
      absl::StrCat(family.head_dim_key, " head_dim attention_head_dim");
  if (auto given = first(keys)) return *std::move(given);
  // A null head_dim means the default of transformers' class. For other
  // readers, a null means hidden_size / num_attention_heads.
  const std::int64_t otherwise = !config.HasNull("head_dim") ? family.head_dim
                                 : model.is_hf() && defaults != nullptr
                                     ? defaults->head_dim
                                     : 0;
  if (otherwise > 0) return Whole(otherwise, config.Path("head_dim"));
  const auto hidden = first(kWidthNames);
  const auto heads =
      first(absl::StrCat(kHeadsNames, " speech_encoder_attention_heads"));
  if (!hidden || !heads) {
    config.Fail(hidden ? "num_attention_heads" : "hidden_size",
                "is missing, and head_dim is too; the width of a head is "
                "hidden_size / num_attention_heads");
    return {};
  }
  for (const Value& size : {*heads, *hidden}) {
    if (size.value >= 1) continue;
    config.report().Refuse(ConfigError(
        size.key, absl::StrCat("is ", size.text, "; it must be at least 1")));
    return {};
  }
  return {std::floor(static_cast<double>(family.states) * hidden->value /
                     heads->value),
          absl::StrCat(hidden->text, ", and num_attention_heads ", heads->text),
          hidden->key};
}

void WarnOfNulls(const RopeDict& from) {
  if (!from.is_hf() || from.from_class) return;
  for (const std::string& key : from.dict.Keys()) {
    if (!from.dict.At(key).is_null() ||
        !IsAmong(key,
                 "rope_type type rope_theta partial_rotary_factor "
                 "mrope_section original_max_position_embeddings")) {
      continue;
    }
    from.dict.Warn(key,
                   " is null, and transformers fails on it; read as absent");
  }
  if (from.nested && from.family.dicts == DictRule::kNested &&
      !from.family.fills_in() && !from.dict.Contains("rope_theta")) {
    from.dict.Warn("rope_theta",
                   " is absent, and transformers' class has no default for it "
                   "in an entry that is given: it fails");
  }
}

void WarnOfRange(const RopeDict& from, const RopeSpec& spec) {
  constexpr double kWidest = std::numeric_limits<float>::max();
  if (spec.rope_theta && *spec.rope_theta > kWidest) {
    from.dict.Warn(
        "rope_theta", " is ", NumberText(*spec.rope_theta),
        ", more than float32 holds: transformers takes powers of infinity and "
        "does not turn pairs past the first; the number is used");
  }
  // Dynamic scaling computes s * L / T - (s - 1) for lengths L and T. With a
  // factor s above 2^53, the difference loses all digits.
  const auto factor = from.dict.Peek().Number("factor");
  if (std::holds_alternative<DynamicNtkScaling>(spec.scaling) && factor &&
      *factor >= 0x1p53) {
    from.dict.Warn("factor", " is ", NumberText(*factor),
                   ", and transformers' class makes frequencies from it that "
                   "are not finite; the formula is used");
  }
  const std::string type = RopeType(from);
  // Classes without needs_original fill in an absent original length.
  if (from.family.needs_original && !from.from_class && from.scales &&
      IsAmong(type, "yarn llama3 longrope") && !from.dict.Contains(kOriginal)) {
    from.dict.Warn(kOriginal, " is absent, and ", from.Class(),
                   " needs it for ", type,
                   ": it refuses the file; max_position_embeddings is used");
  }
}

void WarnOfType(const RopeDict& from) {
  const std::string type = RopeType(from);
  const ReadingRow* const fails = from.Row(ReadingRule::kFailsAtType);
  if (fails != nullptr && IsAmong(type, fails->what)) {
    from.dict.Warn(TypeKey(from.dict), " is ", type, "; then ", from.Class(),
                   " ", fails->says,
                   from.is_hf() && from.family.width == RotaryWidth::kMla
                       ? "; qk_rope_head_dim is rotated"
                       : "");
  }
}

void ReadRopeDict(RopeDict from, ModelRope* rope) {
  const bool scaled =
      (from.kind == nullptr || from.nested || from.kind->scaled) &&
      !from.is_unscaled_layer;
  from.type = TypeOfLayers(from, scaled);
  from.report().dict_path = from.dict.Path();
  for (const std::string& key : from.dict.Keys()) {
    from.report().given_by[key] = from.dict.Path(key);
  }
  CheckNeededKeys(from);
  CheckRopeKeys(from.dict);
  WarnOfNulls(from);
  CheckType(from);
  RopeSpec& spec = rope->spec;
  spec.slice = from.family.slice;
  ReadPairing(from, &spec);
  spec.reverse = from.family.reverse;
  spec.rope_theta = ReadTheta(from);
  rope->original_max_position_embeddings =
      OriginalOrMaxPositionEmbeddings(from);
  const std::int64_t width = ReadWidth(from);
  if (width == 0) return;
  spec.rotary_dim = static_cast<std::int32_t>(width + width % 2);
  // mlx-lm's text models have one position per token, whatever the sections
  // are.
  if (from.rules.profile != Profile::kMlx) ReadAxes(from, &spec);
  if (!from.is_hf() && !spec.axes &&
      from.dict.Text(TypeKey(from.dict)) == "mrope" &&
      !from.dict.Contains("mrope_section")) {
    from.dict.Warn(TypeKey(from.dict),
                   " is \"mrope\", and mrope_section, which says how many "
                   "pairs turn by each axis, is absent; read as one axis");
  }
  if (from.type == "proportional" &&
      IsAmong(from.type, KnownTypes(from.rules, from.model_type))) {
    ReadProportional(from, &spec);
  } else if (from.type != "default") {
    ReadScaling(from, rope);
  }
  if (width % 2 != 0) WriteOutOddWidth(width, &spec, &from.report());
  if (from.rules.profile == Profile::kLlamaCpp) {
    StopLeftoverPairs(&spec, &from.report());
  }
  ReadQueryScale(from, rope);
  if (scaled && from.scales) WarnOfUnreadKeys(from);
}

}  // namespace posenc::core::interpretation
