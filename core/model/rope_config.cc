#include "core/model/rope_config.h"

#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/error.h"
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

std::int64_t PartialWidth(const RopeDict& from, ModelRope* rope) {
  std::optional<double> factor = PartialFactor(from);
  if (!factor) {
    factor = from.family.partial;
    if (*factor != 1) {
      Assume(std::string(from.family.partial_key), NumberText(*factor),
             DefaultOf(from.rules), rope);
    }
  }
  return static_cast<std::int64_t>(static_cast<double>(from.head_dim) *
                                   *factor);
}

std::int64_t ReadWidth(const RopeDict& from, const std::string& type,
                       ModelRope* rope) {
  if (from.family.width == RotaryWidth::kMla) {
    const auto width = from.config.Integer("qk_rope_head_dim");
    if (!width) {
      from.config.Fail("qk_rope_head_dim",
                       "is missing; this model rotates that slice");
    }
    // If given, it restates qk_rope_head_dim: asking counts it as read.
    PartialFactor(from);
    return width.value_or(0);
  }
  if (type == "proportional") return from.head_dim;
  if (from.family.width == RotaryWidth::kRotaryDim) {
    const auto width =
        from.config.FirstInteger({"rotary_dim", "qk_rope_head_dim"});
    if (!width) return PartialWidth(from, rope);
    if (const auto factor = PartialFactor(from)) {
      const auto partial = static_cast<std::int64_t>(
          static_cast<double>(from.head_dim) * *factor);
      if (partial != *width) {
        rope->warnings.push_back(absl::StrCat(
            "rotary_dim is ", *width, ", and partial_rotary_factor ",
            NumberText(*factor), " of head_dim ", from.head_dim, " is ",
            partial, "; rotary_dim is used"));
      }
    }
    return *width;
  }
  // vLLM takes the share for every model that gives it.
  if (from.family.width == RotaryWidth::kHead && type == "default" &&
      from.rules.profile != Profile::kVllm) {
    const double factor = PartialFactor(from).value_or(1);
    if (factor != 1) {
      rope->warnings.push_back(absl::StrCat(
          "partial_rotary_factor ", NumberText(factor),
          " is ignored: ", from.rules.project,
          " rotates the whole head of this model type where rope is not "
          "scaled"));
    }
    return from.head_dim;
  }
  return PartialWidth(from, rope);
}

std::optional<RotaryAxes> ReadAxes(const RopeDict& from) {
  for (const absl::string_view key : {"mrope_section", "xdrope_section"}) {
    if (!from.dict.Has(key)) continue;
    const std::vector<double> sections = from.dict.Numbers(key);
    RotaryAxes axes;
    for (const double section : sections) {
      if (!(section >= 0 && section <= kMaxRotaryDim) ||
          section != std::floor(section)) {
        from.dict.Fail(key, absl::StrCat("has an element ", NumberText(section),
                                         "; sections are numbers of pairs"));
        return std::nullopt;
      }
      axes.sections.push_back(static_cast<std::int32_t>(section));
    }
    axes.assignment = from.family.axes;
    const bool interleaved =
        from.dict.Flag("mrope_interleaved").value_or(false);
    if (interleaved) axes.assignment = AxisAssignment::kInterleaved;
    if (axes.assignment == AxisAssignment::kAlternatingTail) {
      if (axes.sections.size() != 3) {
        from.dict.Fail(key, "must have 3 elements: height, width, time");
        return std::nullopt;
      }
      // ERNIE publishes height, width, time; the axes are time, height, width.
      axes.sections = {axes.sections[2], axes.sections[0], axes.sections[1]};
    }
    return axes;
  }
  return std::nullopt;
}

// The sections that the class takes for absent ones, if they fit the width.
std::optional<RotaryAxes> DefaultAxes(const RopeDict& from, ModelRope* rope) {
  const auto& [a, b, c] = from.family.sections;
  if (a == 0 || a + b + c != rope->spec.rotary_dim / 2) return std::nullopt;
  Assume(from.dict.Path("mrope_section"), absl::StrCat(a, ", ", b, ", ", c),
         DefaultOf(from.rules), rope);
  if (from.family.axes == AxisAssignment::kAlternatingTail) {
    return RotaryAxes{.assignment = from.family.axes, .sections = {c, a, b}};
  }
  return RotaryAxes{.assignment = from.family.axes, .sections = {a, b, c}};
}

// Families whose query and key rows llama.cpp's converter reorders.
constexpr char kPermuted[] =
    "llama mistral mixtral ministral ministral3 granite granitemoe "
    "granitemoeshared smollm3 arcee internlm2 olmo chameleon";

// mlx-lm's classes for these call the plain rotation, whatever the dict says.
constexpr char kMlxUnscaled[] =
    "cohere cohere2 dbrx gemma gemma2 gemma3n glm glm4 glm4_moe gpt_neox "
    "helium lfm2 lfm2_moe minimax mixtral mimo_v2_flash olmo phi qwen2_moe "
    "qwen3_moe recurrent_gemma stablelm starcoder2";

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
  const double share = PartialFactor(from).value_or(1);
  rope->spec.scaling = ProportionalScaling{
      from.dict.Number("factor"),
      static_cast<std::int32_t>(
          std::floor(share * static_cast<double>(from.head_dim) / 2))};
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
    // Mistral's dicts repeat the model's length.
    if (key == "max_position_embeddings") continue;
    if (from.dict.WasRead(key)) continue;
    rope->warnings.push_back(
        absl::StrCat(from.dict.Path(key), " is not read: ", from.rules.project,
                     " does not use it for rope type ", type));
  }
}

}  // namespace

double ReadTheta(const RopeDict& from, ModelRope* rope) {
  constexpr absl::string_view kKey = "rope_theta";
  if (from.layer_theta) return *from.layer_theta;
  if (from.from_class && (from.kind != nullptr || !from.nested)) {
    const auto theta = from.config.Number(
        from.kind != nullptr ? from.kind->theta_key : from.family.theta_key);
    if (theta) return *theta;
  }
  const bool own_key = from.kind != nullptr && !from.nested;
  const absl::string_view key =
      own_key ? from.kind->theta_key : from.family.theta_key;
  // The theta of a flat dict is not for layers that have a key of their own.
  const bool dict_counts = !own_key || from.kind->scaled || key == kKey;
  const auto inner = from.dict.Number(kKey);
  if (inner && dict_counts) {
    const auto outer = key.empty() ? std::nullopt : from.config.Number(key);
    if (outer && *outer != *inner && !from.nested) {
      rope->warnings.push_back(absl::StrCat(
          from.dict.Path(kKey), " is ", NumberText(*inner), ", and ", key,
          " of the model ", NumberText(*outer), "; the former is used"));
    }
    return *inner;
  }
  if (!key.empty()) {
    if (const auto theta = from.config.Number(key)) return *theta;
    // DBRX and MPT publish theta in attn_config.
    const JsonObject attention = from.config.Object("attn_config");
    if (const auto theta = attention.Number(key)) return *theta;
  }
  const double theta = own_key ? from.kind->theta : from.family.theta;
  Assume(key.empty() ? std::string(kKey) : std::string(key), NumberText(theta),
         key.empty() ? "fixed; transformers reads no base for this model type"
                     : DefaultOf(from.rules),
         rope);
  return theta;
}

std::int64_t HeadDim(const JsonObject& config, const Family& family,
                     absl::string_view layer_type) {
  if (family.width == RotaryWidth::kMla) {
    const std::int64_t rope = config.Integer("qk_rope_head_dim").value_or(0);
    return rope + config.Integer("qk_nope_head_dim").value_or(0);
  }
  std::vector<absl::string_view> keys = {family.head_dim_key, "head_dim",
                                         "attention_head_dim"};
  if (layer_type == "full_attention") {
    keys.insert(keys.begin(), "global_head_dim");
    if (family.global_head_dim > 0 && !config.Has("global_head_dim")) {
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

void ReadRopeDict(const RopeDict& from, ModelRope* rope) {
  const bool scaled = from.kind == nullptr || from.nested || from.kind->scaled;
  const bool is_mlx = from.rules.profile == Profile::kMlx;
  std::string type = RopeType(from);
  if (!scaled) type = "default";
  const bool plain = is_mlx && (IsAmong(from.model_type, kMlxUnscaled) ||
                                (from.family.yarn_is_longrope &&
                                 !IsAmong(type, "default linear longrope")));
  if (plain && type != "default") {
    rope->warnings.push_back(absl::StrCat(
        "rope type ", type, " is not used: mlx-lm's class for model_type ",
        from.model_type, " does not scale so"));
    type = "default";
  }
  RopeSpec& spec = rope->spec;
  spec.slice = from.family.slice;
  ReadPairing(from, rope);
  spec.reverse = from.family.reverse;
  spec.rope_theta = ReadTheta(from, rope);
  rope->original_max_position_embeddings =
      OriginalOrMaxPositionEmbeddings(from);
  const std::int64_t width = ReadWidth(from, type, rope);
  if (width < 1 || width > kMaxRotaryDim) {
    from.config.Fail("head_dim", absl::StrCat("and partial widths give ", width,
                                              " rotated channels; 2 to ",
                                              kMaxRotaryDim, " are served"));
    return;
  }
  spec.rotary_dim = static_cast<std::int32_t>(width);
  // mlx-lm's text models take one position per token, whatever the sections.
  if (!is_mlx) spec.axes = ReadAxes(from);
  if (!is_mlx && !spec.axes) spec.axes = DefaultAxes(from, rope);
  if (type == "proportional" && IsAmong(type, from.rules.rope_types)) {
    ReadProportional(from, rope);
  } else if (type != "default") {
    ReadScaling(from, type, rope);
  }
  if (from.rules.profile == Profile::kLlamaCpp) StopLeftoverPairs(rope);
  ReadQueryScale(from, rope);
  if (scaled) WarnOfUnreadKeys(from, type, rope);
}

}  // namespace posenc::core
