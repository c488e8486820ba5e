#include "core/model/rope_config.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "core/error.h"
#include "core/model/axes_config.h"
#include "core/model/known_keys.h"
#include "core/model/layers.h"
#include "core/model/rope_dicts.h"
#include "core/model/scaling_config.h"

namespace posenc::core {
namespace {

// partial_rotary_factor, of the layer's dict or else of the configuration.
std::optional<double> PartialFactor(const RopeDict& from) {
  constexpr absl::string_view kKey = "partial_rotary_factor";
  const std::pair<const JsonObject*, absl::string_view> places[] = {
      {&from.dict, kKey},
      {&from.config, kKey},
      {&from.config, from.family.partial_key}};
  for (const auto& [object, key] : places) {
    // Classes of an entry for each type read none beside them.
    if (object == &from.config && from.rules.profile == Profile::kHf &&
        (from.family.dicts == DictRule::kNested ||
         from.family.dicts == DictRule::kMerged)) {
      continue;
    }
    const std::optional<double> factor = object->Number(key);
    if (!factor) continue;
    // A class with a key of its own does not read the usual one.
    if (object == &from.config && key != from.family.partial_key) continue;
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
      given->is_null() && from.model_type != "deepseek_v4") {
    return 1;
  }
  const ReadingRow* const otherwise =
      FindReadingRow(from.rules, from.model_type, ReadingRule::kDefaultShare);
  if (otherwise != nullptr) return otherwise->number;
  return from.kind != nullptr && from.kind->partial > 0 ? from.kind->partial
                                                        : from.family.partial;
}

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
    rope->warnings.push_back(absl::StrCat(
        from.config.Path("head_dim"),
        " is null, by which transformers makes frequencies for hidden_size / "
        "num_attention_heads channels, or fails; qk_rope_head_dim ",
        *width, " is rotated"));
  }
  // Mistral 4's class gives yarn alone the share that fits.
  if (from.model_type == "mistral4" && from.rules.profile == Profile::kHf &&
      IsAmong(type, "default proportional")) {
    rope->warnings.push_back(absl::StrCat(
        from.dict.Path(TypeKey(from.dict)), " is ", type,
        ", for which transformers' class of model_type mistral4 makes "
        "frequencies of qk_nope_head_dim + qk_rope_head_dim channels, ",
        from.head_dim, ", and cannot apply them; qk_rope_head_dim ", *width,
        " is rotated"));
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
  if (FindReadingRow(from.rules, from.model_type, ReadingRule::kWholeHead) !=
      nullptr) {
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
    rope->warnings.push_back(absl::StrCat(
        from.config.Path("rotary_dim"), " is ", *keyed, ", and ",
        source == RotaryWidth::kHead && is_unscaled
            ? absl::StrCat("head_dim ", from.head_dim)
            : absl::StrCat("partial_rotary_factor ",
                           NumberText(PartialFactor(from).value_or(1)),
                           " of head_dim ", from.head_dim, " is ", width),
        "; ", from.rules.project, " reads the latter for this model type"));
  }
  return width;
}

// Families whose query and key rows llama.cpp's converter reorders.
constexpr char kPermuted[] =
    "llama mistral mixtral ministral ministral3 granite granitemoe "
    "granitemoeshared smollm3 arcee internlm2 olmo chameleon";

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
  } else if (profile == Profile::kLlamaCpp &&
             IsAmong(from.model_type, kPermuted)) {
    Assume("pairing", "half-split",
           "as this configuration's checkpoint has it; llama.cpp's converter "
           "reorders the rows, so the weights of its GGUF are interleaved",
           rope);
  }
}

void ReadProportional(const RopeDict& from, ModelRope* rope) {
  const double share = PartialFactor(from).value_or(
      ReadsByClass(from.rules) ? DefaultShare(from) : 1);
  rope->spec.scaling = ProportionalScaling{
      from.dict.Number("factor"),
      static_cast<std::int32_t>(
          std::floor(share * static_cast<double>(rope->spec.rotary_dim) / 2))};
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
         absl::StrCat("partial_rotary_factor gives ", width,
                      ", which is odd; the last pair has a channel more, and "
                      "exponents are 2i / ",
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
    rope->warnings.push_back(
        absl::StrCat(from.dict.Path(key), " is not read: ", from.rules.project,
                     " does not use it for rope type ", type));
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
        entries != nullptr && (family.model_types != "embedding_gemma2" ||
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
  return *hidden / *heads;
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
    rope->warnings.push_back(absl::StrCat(
        from.config.Path("head_dim"), is_left ? " is absent" : " is null",
        ", with which transformers' ", type,
        " fails unless the class fills it in; hidden_size / "
        "num_attention_heads is used"));
  }
  const auto given = from.dict.Text(key);
  CheckTypesAgree(from, rope);
  const bool has_axes =
      from.family.sections[0] > 0 && from.family.rope_types.empty();
  if (from.rules.profile == Profile::kHf &&
      ((given == "mrope" && !has_axes) ||
       (given == "xdrope" && !absl::StartsWith(from.model_type, "hunyuan")))) {
    rope->warnings.push_back(absl::StrCat(from.dict.Path(key), " is \"", *given,
                                          "\", which transformers' class "
                                          "of model_type ",
                                          from.model_type, " refuses; read as ",
                                          type));
  }
  if (given == "su" && from.rules.profile == Profile::kHf &&
      !from.family.yarn_is_longrope) {
    rope->warnings.push_back(absl::StrCat(
        from.dict.Path(key),
        " is \"su\", LongRoPE's name before; transformers "
        "knows it in Phi 3's classes only, and refuses it here; read as "
        "longrope"));
  }
  if (given == "su" && from.rules.profile == Profile::kHf &&
      from.family.yarn_is_longrope &&
      !from.dict.Has("original_max_position_embeddings")) {
    rope->warnings.push_back(absl::StrCat(
        from.dict.Path("original_max_position_embeddings"),
        " is absent, which transformers' class of model_type ", from.model_type,
        " refuses beside type \"su\", LongRoPE's name before; read as "
        "longrope, with the length beside the dict"));
  }
  if (type == "default" && key == "type" && ReadsByClass(from.rules) && given &&
      *given != "default" && *given != "mrope") {
    rope->warnings.push_back(absl::StrCat(
        from.dict.Path(key), " ", *given,
        " is not read: the class of model_type ", from.model_type,
        " looks for rope_type, and rotates unscaled without; the file means ",
        *given));
  }
}

}  // namespace

void ReadRopeDict(const RopeDict& from, ModelRope* rope) {
  const bool scaled = from.kind == nullptr || from.nested || from.kind->scaled;
  const bool is_mlx = from.rules.profile == Profile::kMlx;
  std::string type = RopeType(from);
  if (!scaled || from.is_unscaled_layer) type = "default";
  if (!from.scales && type != "default") {
    rope->warnings.push_back(absl::StrCat(
        from.dict.Path(TypeKey(from.dict)), " ", type,
        " is not used: ", from.rules.project, "' class of model_type ",
        from.model_type, " does not scale; its frequencies are unscaled"));
    type = "default";
  }
  const ReadingRow* const unscaled =
      FindReadingRow(from.rules, from.model_type, ReadingRule::kUnscaled);
  if (unscaled != nullptr && type != "default" &&
      !IsAmong(type, unscaled->what)) {
    rope->warnings.push_back(absl::StrCat(
        from.dict.Path(TypeKey(from.dict)), " ", type,
        " is not used: ", from.rules.project, "'s class of model_type ",
        from.model_type, " ", unscaled->says, "; frequencies are unscaled"));
    type = "default";
  }
  rope->dict_path = from.dict.Path();
  rope->dict_keys = from.dict.Keys();
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
    rope->warnings.push_back(
        absl::StrCat(from.dict.Path("partial_rotary_factor"), " gives ", width,
                     " of ", from.head_dim,
                     " channels; transformers' class of model_type neomme "
                     "refuses what is no multiple of 4"));
  }
  if (width < 1 || width > kMaxRotaryDim) {
    from.config.Fail("head_dim", absl::StrCat("and partial widths give ", width,
                                              " rotated channels; 2 to ",
                                              kMaxRotaryDim, " are served"));
    return;
  }
  const bool is_odd = width % 2 != 0 && width < from.head_dim &&
                      IsAmong(type, "default linear") &&
                      ReadsByClass(from.rules);
  spec.rotary_dim = static_cast<std::int32_t>(is_odd ? width + 1 : width);
  // mlx-lm's text models take one position per token, whatever the sections.
  if (!is_mlx) ReadAxes(from, rope);
  if (type == "proportional" &&
      IsAmong(type, KnownTypes(from.rules, from.model_type))) {
    ReadProportional(from, rope);
  } else if (type != "default") {
    ReadScaling(from, type, rope);
  }
  // s * L / T - (s - 1) has no digits left of a factor past 2^53.
  const auto factor = from.dict.PeekNumber("factor");
  if (type == "dynamic" && from.rules.profile == Profile::kHf && factor &&
      *factor >= 0x1p53) {
    rope->warnings.push_back(absl::StrCat(
        from.dict.Path("factor"), " is ", NumberText(*factor),
        ", of which transformers' class makes frequencies that are not "
        "finite; the formula is used"));
  }
  if (is_odd) WriteOutOddWidth(width, rope);
  if (from.rules.profile == Profile::kLlamaCpp) StopLeftoverPairs(rope);
  ReadQueryScale(from, rope);
  if (scaled && from.scales && !from.is_unscaled_layer)
    WarnOfUnreadKeys(from, type, rope);
}

}  // namespace posenc::core
