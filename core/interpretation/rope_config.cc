#include "core/interpretation/rope_config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "core/error.h"
#include "core/interpretation/axes_config.h"
#include "core/interpretation/known_keys.h"
#include "core/interpretation/layers.h"
#include "core/interpretation/provenance.h"
#include "core/interpretation/rope_dicts.h"
#include "core/interpretation/scaling_config.h"

namespace posenc::core::interpretation {
namespace {

// The keys without which a reader's class cannot be made.
void CheckNeededKeys(const RopeDict& from) {
  const ReadingRow* const row = from.Row(ReadingRule::kNeedsKeys);
  if (row == nullptr) return;
  for (const absl::string_view key : absl::StrSplit(row->what, ' ')) {
    if (from.config.Find(key) != nullptr) continue;
    from.config.Fail(key,
                     absl::StrCat("is missing; ", from.rules.project,
                                  "'s class of model_type ", from.model_type,
                                  " needs it, and ", row->says));
  }
}

void ReadPairing(const RopeDict& from, ModelRope* rope) {
  RopeSpec& spec = rope->spec;
  const Profile profile = from.rules.profile;
  spec.pairing = from.family.pairing;
  if (from.family.width == RotaryWidth::kMla &&
      !from.config.Flag("rope_interleave").value_or(true)) {
    spec.pairing = Pairing::kHalfSplit;
  } else if (profile == Profile::kHf) {
    // Other projects leave the pairs as they came.
    spec.output_pairing = from.family.output_pairing;
  }
  if (spec.pairing != Pairing::kHalfSplit) return;
  if (profile == Profile::kMlx &&
      from.config.Flag("rope_traditional").value_or(false)) {
    spec.pairing = Pairing::kInterleaved;
  } else if (profile == Profile::kMistral) {
    spec.pairing = Pairing::kInterleaved;
    Assume("pairing", "interleaved",
           "as Mistral's own weights (consolidated.safetensors) have it; the "
           "rows of a Hugging Face checkpoint are reordered to half-split",
           rope);
  } else if (from.Row(ReadingRule::kPermutesRows) != nullptr) {
    Assume("pairing", "half-split",
           "as this configuration's checkpoint has it; llama.cpp's converter "
           "reorders the rows, so the weights of its GGUF are interleaved",
           rope);
  }
}

void ReadProportional(const RopeDict& from, ModelRope* rope) {
  const double share = PartialFactor(from).value_or(
      ReadsByClass(from.rules) ? DefaultShare(from) : 1);
  std::optional<double> factor = from.dict.Number("factor");
  if (factor && *factor != 1 && from.rules.profile == Profile::kSglang) {
    Warn(&rope->warnings, from.dict, "factor", " ", NumberText(*factor),
         " is not read: SGLang's proportional rotation has none");
    factor.reset();
  }
  rope->spec.scaling = ProportionalScaling{
      factor, static_cast<std::int32_t>(std::floor(
                  share * static_cast<double>(rope->spec.rotary_dim) / 2))};
}

// ggml rotates a pair that no axis claims by a fourth position, which llama.cpp
// sets to 0: the pair does not rotate. In other projects time claims it.
void StopLeftoverPairs(ModelRope* rope) {
  RopeSpec& spec = rope->spec;
  if (!spec.axes || spec.axes->assignment != AxisAssignment::kInterleaved ||
      spec.axes->sections.size() != 3) {
    return;
  }
  std::vector<std::int32_t> leftover;
  for (std::int32_t i = 0; i < spec.rotary_dim / 2; ++i) {
    if (i >= 3 * std::int64_t{spec.axes->sections[i % 3]}) {
      leftover.push_back(i);
    }
  }
  if (leftover.empty()) return;
  RopeSpec one_axis = spec;
  one_axis.axes.reset();
  const auto resolved =
      ResolveSpec(one_axis, 0, std::nullopt, MissingLength::kAssumeOriginal);
  if (!resolved.ok()) return;  // the caller resolves it again, and reports
  std::vector<double> inv_freq = resolved->inv_freq;
  for (const std::int32_t i : leftover) inv_freq[i] = 0;
  if (!spec.attention_factor)
    spec.attention_factor = resolved->attention_factor;
  WriteOutFrequencies(inv_freq, &spec);
  rope->warnings.push_back(absl::StrCat(
      "llama.cpp does not turn pairs ", absl::StrJoin(leftover, ", "),
      ", which no section claims: it gives them a fourth "
      "position, always 0"));
}

// transformers turns ceil(d / 2) pairs by an odd share d of a head, whose
// exponents are 2i / d.
void WriteOutOddWidth(std::int64_t width, ModelRope* rope) {
  const auto d = static_cast<long double>(width);
  const auto* linear = std::get_if<LinearScaling>(&rope->spec.scaling);
  const auto factor =
      static_cast<long double>(linear != nullptr ? linear->factor : 1);
  std::vector<double> inv_freq;
  for (std::int64_t i = 0; i < width; i += 2) {
    inv_freq.push_back(static_cast<double>(
        std::pow(static_cast<long double>(*rope->spec.rope_theta),
                 -static_cast<long double>(i) / d) /
        factor));
  }
  Assume("rotary_dim", absl::StrCat(width + 1),
         absl::StrCat("the file gives ", width,
                      " channels, which is odd; the last pair has a channel "
                      "more, and exponents are 2i / ",
                      width),
         rope);
  WriteOutFrequencies(inv_freq, &rope->spec);
}

void ReadQueryScale(const RopeDict& from, ModelRope* rope) {
  const auto beta = from.dict.Number("llama_4_scaling_beta");
  if (!beta) return;
  auto floor_scale = from.dict.Integer("original_max_position_embeddings");
  if (!floor_scale) floor_scale = MaxPositions(from.config);
  if (!floor_scale) {
    from.config.Fail("max_position_embeddings",
                     "is missing; llama_4_scaling_beta needs a length");
    return;
  }
  rope->query_scale = QueryScale{*beta, static_cast<double>(*floor_scale), 0};
}

void WarnOfUnreadKeys(const RopeDict& from, const std::string& type,
                      ModelRope* rope) {
  for (const std::string& key : from.dict.Keys()) {
    // Mistral's dicts repeat the model's length; finetuned says how the model
    // was trained.
    if (key == "max_position_embeddings" || key == "finetuned") continue;
    // Qwen3-Omni's have one flag in two names.
    if (key == "interleaved" && from.dict.Has("mrope_interleaved") &&
        *from.dict.Find(key) == *from.dict.Find("mrope_interleaved")) {
      continue;
    }
    if (from.dict.WasRead(key)) continue;
    Warn(&rope->warnings, from.dict, key, " is not read: ", from.rules.project,
         " does not use it for rope type ", type);
  }
}

}  // namespace

std::int64_t HeadDim(const JsonObject& config, const Family& family,
                     absl::string_view layer_type) {
  if (family.width == RotaryWidth::kMla) {
    const std::int64_t rope = config.Integer("qk_rope_head_dim").value_or(0);
    return rope + config.Integer("qk_nope_head_dim").value_or(0);
  }
  std::vector<absl::string_view> keys = {family.head_dim_key, "head_dim",
                                         "attention_head_dim"};
  const std::string any_type;  // of no consequence for a layer's type
  if (const auto head_dim =
          LayerHeadDim({config, any_type, family}, layer_type)) {
    return *head_dim;
  }
  if (layer_type == "full_attention") {
    keys.insert(keys.begin(), "global_head_dim");
    // Gemma 4's classes give full layers their width by the layer, which a
    // file's own entries replace, even where they have none.
    const nlohmann::json* entries = config.Find("per_layer_config");
    const bool is_replaced =
        entries != nullptr &&
        (family.model_types != "embedding_gemma2" || entries->is_null() ||
         *entries == nlohmann::json::object());
    if (family.global_head_dim > 0 && !is_replaced &&
        !config.Has("global_head_dim")) {
      return family.global_head_dim;
    }
  }
  if (const auto head_dim = config.FirstInteger(keys)) return *head_dim;
  if (family.head_dim > 0 && !config.HasNull("head_dim")) {
    return family.head_dim;
  }
  const auto hidden =
      config.FirstInteger({"hidden_size", "n_embd", "d_model", "dim"});
  const auto heads = config.FirstInteger(
      {"num_attention_heads", "n_head", "n_heads", "num_heads",
       "decoder_num_attention_heads", "encoder_num_attention_heads",
       "speech_encoder_attention_heads"});
  if (!hidden || !heads) {
    config.Fail(hidden ? "num_attention_heads" : "hidden_size",
                "is missing, and head_dim is too; the width of a head is "
                "hidden_size / num_attention_heads");
    return 0;
  }
  if (*heads < 1 || *hidden < 1) {
    config.Fail(*heads < 1 ? "num_attention_heads" : "hidden_size",
                absl::StrCat("is ", *heads < 1 ? *heads : *hidden,
                             "; it must be at least 1"));
    return 0;
  }
  // Zamba 2's attention is of two layers' channels side by side.
  return (family.model_types == "zamba2" ? 2 : 1) * *hidden / *heads;
}

namespace {

// What the class, rather than the project, does not take.
void CheckType(const RopeDict& from, const std::string& type, ModelRope* rope) {
  const absl::string_view key = TypeKey(from.dict);
  const absl::string_view accepted = from.family.rope_types;
  if (ReadsByClass(from.rules) && !accepted.empty() &&
      IsAmong(type, KnownTypes(from.rules, from.model_type)) &&
      !IsAmong(type, accepted)) {
    from.dict.Fail(
        key,
        absl::StrCat("is \"", type, "\"; transformers' class of model_type ",
                     from.model_type, " takes ",
                     absl::StrReplaceAll(accepted, {{" ", ", "}}), " only"));
  }
  // These classes leave head_dim null where the file has none.
  const bool is_left = from.config.Find("head_dim") == nullptr &&
                       from.defaults != nullptr &&
                       IsAmong(from.model_type,
                               "hunyuan_v1_dense hunyuan_v1_moe minimax "
                               "ministral mixtral");
  if (from.rules.profile == Profile::kHf &&
      (from.config.HasNull("head_dim") || is_left) &&
      IsAmong(type, "yarn dynamic longrope") && !TurnsByAlpha(from)) {
    Warn(&rope->warnings, from.config, "head_dim",
         is_left ? " is absent" : " is null", ", with which transformers' ",
         type,
         " fails unless the class fills it in; hidden_size / "
         "num_attention_heads is used");
  }
  const auto given = from.dict.Text(key);
  CheckTypesAgree(from, rope);
  const bool has_axes =
      from.family.sections[0] > 0 && from.family.rope_types.empty();
  if (from.rules.profile == Profile::kHf &&
      ((given == "mrope" && !has_axes) ||
       (given == "xdrope" && !absl::StartsWith(from.model_type, "hunyuan")))) {
    Warn(&rope->warnings, from.dict, key, " is \"", *given,
         "\", which transformers' class",
         from.model_type.empty()
             ? "es"
             : absl::StrCat(" of model_type ", from.model_type),
         from.model_type.empty() ? " refuse; read as " : " refuses; read as ",
         type);
  }
  if (given == "su" && from.rules.profile == Profile::kHf &&
      !from.family.yarn_is_longrope) {
    Warn(&rope->warnings, from.dict, key,
         " is \"su\", LongRoPE's name before; transformers "
         "knows it in Phi 3's classes only, and refuses it here; read as "
         "longrope");
  }
  if (given == "su" && from.rules.profile == Profile::kHf &&
      from.family.yarn_is_longrope &&
      !from.dict.Has("original_max_position_embeddings")) {
    Warn(&rope->warnings, from.dict, "original_max_position_embeddings",
         " is absent, which transformers' class of model_type ",
         from.model_type,
         " refuses beside type \"su\", LongRoPE's name before; read as "
         "longrope, with the length beside the dict");
  }
  if (type == "default" && key == "type" && ReadsByClass(from.rules) && given &&
      *given != "default" && *given != "mrope") {
    Warn(&rope->warnings, from.dict, key, " ", *given,
         " is not read: the class of model_type ",
         from.model_type.empty() ? "(absent)" : from.model_type,
         " looks for rope_type, and rotates unscaled without; the file means ",
         *given);
  }
}

}  // namespace

void WarnOfRange(const RopeDict& from, const RopeSpec& spec,
                 std::vector<std::string>* warnings) {
  constexpr double kWidest = std::numeric_limits<float>::max();
  if (spec.rope_theta && *spec.rope_theta > kWidest) {
    Warn(warnings, from.dict, "rope_theta", " is ",
         NumberText(*spec.rope_theta),
         ", more than float32 holds: transformers takes powers of infinity and "
         "does not turn pairs past the first; the number is used");
  }
  // s * L / T - (s - 1) has no digits left of a factor past 2^53.
  const auto factor = from.dict.PeekNumber("factor");
  if (std::holds_alternative<DynamicNtkScaling>(spec.scaling) && factor &&
      *factor >= 0x1p53) {
    Warn(warnings, from.dict, "factor", " is ", NumberText(*factor),
         ", of which transformers' class makes frequencies that are not "
         "finite; the formula is used");
  }
  const std::string type = RopeType(from);
  // Other classes fill it in.
  constexpr absl::string_view kOriginal = "original_max_position_embeddings";
  if (from.family.needs_original && !from.from_class && from.scales &&
      IsAmong(type, "yarn llama3 longrope") &&
      from.dict.Find(kOriginal) == nullptr) {
    Warn(warnings, from.dict, kOriginal,
         " is absent, which transformers' class of model_type ",
         from.model_type, " needs for ", type,
         ": it refuses the file; max_position_embeddings is used");
  }
  if (from.model_type == "dots3_note" &&
      IsAmong(type, "longrope proportional")) {
    Warn(warnings, from.dict, TypeKey(from.dict), " is ", type,
         ", for which transformers' class of model_type dots3_note fails, or "
         "makes frequencies of the whole head; qk_rope_head_dim is rotated");
  }
}

void ReadRopeDict(const RopeDict& from, ModelRope* rope) {
  const bool scaled = from.kind == nullptr || from.nested || from.kind->scaled;
  const bool is_mlx = from.rules.profile == Profile::kMlx;
  std::string type = RopeType(from);
  if (!scaled || from.is_unscaled_layer) type = "default";
  if (!from.scales && type != "default") {
    Warn(&rope->warnings, from.dict, TypeKey(from.dict), " ", type,
         " is not used: ", from.rules.project, "' class of model_type ",
         from.model_type, " does not scale; its frequencies are unscaled");
    type = "default";
  }
  const ReadingRow* const unscaled = from.Row(ReadingRule::kUnscaled);
  if (unscaled != nullptr && type != "default" &&
      !IsAmong(type, unscaled->what)) {
    Warn(&rope->warnings, from.dict, TypeKey(from.dict), " ", type,
         " is not used: ", from.rules.project, "'s class of model_type ",
         from.model_type, " ", unscaled->says, "; frequencies are unscaled");
    type = "default";
  }
  rope->dict_path = from.dict.Path();
  for (const std::string& key : from.dict.Keys()) {
    rope->given_by[key] = from.dict.Path(key);
  }
  CheckNeededKeys(from);
  CheckRopeKeys(from.dict);
  if (from.rules.profile == Profile::kHf && !from.from_class) {
    WarnOfNulls(from.dict, &rope->warnings);
    if (from.nested && from.family.dicts == DictRule::kNested) {
      WarnOfNoBase(from.dict, &rope->warnings);
    }
  }
  CheckType(from, type, rope);
  RopeSpec& spec = rope->spec;
  spec.slice = from.family.slice;
  ReadPairing(from, rope);
  spec.reverse = from.family.reverse;
  spec.rope_theta = ReadTheta(from, rope);
  rope->original_max_position_embeddings =
      OriginalOrMaxPositionEmbeddings(from, type);
  const std::int64_t width = ReadWidth(from, type, rope);
  if (from.model_type == "neomme" && width % 4 != 0 &&
      ReadsByClass(from.rules)) {
    Warn(&rope->warnings, from.dict, "partial_rotary_factor", " gives ", width,
         " of ", from.head_dim,
         " channels; transformers' class of model_type neomme "
         "refuses what is no multiple of 4");
  }
  const bool is_odd = width % 2 != 0 && width < from.head_dim &&
                      IsAmong(type, "default linear") &&
                      ReadsByClass(from.rules);
  if (width < 1 || width > kMaxRotaryDim || (width % 2 != 0 && !is_odd)) {
    FailWidth(from, width);
    return;
  }
  spec.rotary_dim = static_cast<std::int32_t>(is_odd ? width + 1 : width);
  // mlx-lm's text models take one position per token, whatever the sections.
  if (!is_mlx) ReadAxes(from, rope);
  if (from.rules.profile != Profile::kHf && !spec.axes &&
      from.dict.Text(TypeKey(from.dict)) == "mrope" &&
      from.dict.Find("mrope_section") == nullptr) {
    Warn(&rope->warnings, from.dict, TypeKey(from.dict),
         " is \"mrope\", and mrope_section, which says how many pairs turn by "
         "each axis, is absent; read as one axis");
  }
  if (type == "proportional" &&
      IsAmong(type, KnownTypes(from.rules, from.model_type))) {
    ReadProportional(from, rope);
  } else if (type != "default") {
    ReadScaling(from, type, rope);
  }
  if (is_odd) WriteOutOddWidth(width, rope);
  if (from.rules.profile == Profile::kLlamaCpp) StopLeftoverPairs(rope);
  ReadQueryScale(from, rope);
  if (scaled && from.scales && !from.is_unscaled_layer)
    WarnOfUnreadKeys(from, type, rope);
}

}  // namespace posenc::core::interpretation
