#include "core/model/rope_config.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/error.h"

namespace posenc::core {
namespace {

constexpr char kAbsent[] = "absent; transformers' default";

void Assume(std::string field, std::string value, std::string reason,
            ModelRope* rope) {
  rope->assumptions.push_back(
      {std::move(field), std::move(value), std::move(reason)});
}

std::int64_t MaxPositions(const RopeDict& from, absl::string_view why) {
  const auto length = from.config.FirstInteger(
      {"max_position_embeddings", "n_positions", "max_seq_len", "seq_length"});
  if (!length) {
    from.config.Fail("max_position_embeddings",
                     absl::StrCat("is missing; ", why));
  }
  return length.value_or(0);
}

// transformers moves a config-level original_max_position_embeddings into a
// flat dict, over what stands there; a nested one is read first.
std::int64_t OriginalLength(const RopeDict& from, const std::string& type,
                            ModelRope* rope) {
  constexpr absl::string_view kKey = "original_max_position_embeddings";
  const auto inner = from.dict.Integer(kKey);
  const auto outer = from.config.Integer(kKey);
  if (from.nested && inner) return *inner;
  if (outer) return *outer;
  if (inner) return *inner;
  const std::int64_t length = MaxPositions(
      from, absl::StrCat("rope type ", type, " needs the original length"));
  Assume(from.dict.Path(kKey), absl::StrCat(length),
         "absent; max_position_embeddings, as transformers has it", rope);
  return length;
}

// transformers writes `value or default`: 0 counts as absent.
double BetaOr(const RopeDict& from, absl::string_view key, double otherwise,
              ModelRope* rope) {
  const double beta = from.dict.Number(key).value_or(0);
  if (beta != 0) return beta;
  Assume(from.dict.Path(key), NumberText(otherwise),
         from.dict.Has(key) ? "0; transformers takes it for absent" : kAbsent,
         rope);
  return otherwise;
}

YarnScaling ReadYarn(const RopeDict& from, ModelRope* rope) {
  const JsonObject& dict = from.dict;
  YarnScaling yarn;
  yarn.original_max_position_embeddings = OriginalLength(from, "yarn", rope);
  if (dict.HasNull("factor")) {
    const std::int64_t length =
        MaxPositions(from, "a null factor is derived from it");
    yarn.factor = static_cast<double>(length) /
                  static_cast<double>(yarn.original_max_position_embeddings);
    Assume(dict.Path("factor"), NumberText(yarn.factor),
           "null; max_position_embeddings / original", rope);
  } else {
    yarn.factor = dict.RequiredNumber("factor", "rope type yarn needs it");
  }
  yarn.beta_fast = BetaOr(from, "beta_fast", 32, rope);
  yarn.beta_slow = BetaOr(from, "beta_slow", 1, rope);
  yarn.attention_factor = dict.Number("attention_factor");
  yarn.mscale = dict.Number("mscale");
  yarn.mscale_all_dim = dict.Number("mscale_all_dim");
  yarn.truncate = dict.Flag("truncate");
  if (!yarn.truncate) {
    yarn.truncate = true;
    Assume(dict.Path("truncate"), "true", kAbsent, rope);
  }
  return yarn;
}

LongRopeScaling ReadLongRope(const RopeDict& from, ModelRope* rope) {
  const JsonObject& dict = from.dict;
  LongRopeScaling longrope;
  for (const auto& [key, values] :
       {std::pair("short_factor", &longrope.short_factor),
        std::pair("long_factor", &longrope.long_factor)}) {
    *values = dict.Numbers(key);
    if (!dict.Has(key)) {
      dict.Fail(key, "is missing; rope type longrope needs it");
    }
  }
  longrope.original_max_position_embeddings =
      OriginalLength(from, "longrope", rope);
  longrope.factor = dict.Number("factor");
  longrope.attention_factor = dict.Number("attention_factor");
  longrope.short_mscale = dict.Number("short_mscale");
  longrope.long_mscale = dict.Number("long_mscale");
  if (!longrope.factor && !longrope.attention_factor &&
      !(longrope.short_mscale && longrope.long_mscale)) {
    longrope.factor =
        static_cast<double>(
            MaxPositions(from, "the factor of longrope is derived from it")) /
        static_cast<double>(longrope.original_max_position_embeddings);
    Assume(dict.Path("factor"), NumberText(*longrope.factor),
           "absent; max_position_embeddings / original", rope);
  }
  return longrope;
}

Llama3Scaling ReadLlama3(const RopeDict& from, ModelRope* rope) {
  constexpr char kWhy[] = "rope type llama3 needs it";
  Llama3Scaling llama3;
  llama3.factor = from.dict.RequiredNumber("factor", kWhy);
  llama3.low_freq_factor = from.dict.RequiredNumber("low_freq_factor", kWhy);
  llama3.high_freq_factor = from.dict.RequiredNumber("high_freq_factor", kWhy);
  llama3.original_max_position_embeddings =
      OriginalLength(from, "llama3", rope);
  return llama3;
}

// partial_rotary_factor, from the innermost place that has it.
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
      Assume(std::string(from.family.partial_key), NumberText(*factor), kAbsent,
             rope);
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
    PartialFactor(from);  // restates qk_rope_head_dim, where it is given
    return width.value_or(0);
  }
  if (type == "proportional") return from.head_dim;
  if (from.family.width == RotaryWidth::kRotaryDim) {
    const auto width = from.config.Integer("rotary_dim");
    return width ? *width : PartialWidth(from, rope);
  }
  if (from.family.width == RotaryWidth::kHead && type == "default") {
    const double factor = PartialFactor(from).value_or(1);
    if (factor != 1) {
      rope->warnings.push_back(absl::StrCat(
          "partial_rotary_factor ", NumberText(factor),
          " is ignored: transformers rotates the whole head of this model "
          "type where rope is not scaled"));
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
      // Published as height, width, time; the axes are time, height, width.
      axes.sections = {axes.sections[2], axes.sections[0], axes.sections[1]};
    }
    return axes;
  }
  return std::nullopt;
}

void ReadScaling(const RopeDict& from, const std::string& type,
                 ModelRope* rope) {
  const JsonObject& dict = from.dict;
  RopeSpec& spec = rope->spec;
  if (type == "default") return;
  if (type == "linear") {
    spec.scaling = LinearScaling{
        dict.RequiredNumber("factor", "rope type linear needs it")};
  } else if (type == "dynamic" && dict.Has("alpha")) {
    // Hunyuan: a static base change; `factor` is not used.
    spec.scaling = NtkScaling{dict.Number("alpha").value_or(0)};
  } else if (type == "dynamic") {
    spec.scaling = DynamicNtkScaling{
        dict.RequiredNumber("factor", "rope type dynamic needs it"),
        MaxPositions(from, "rope type dynamic needs it")};
  } else if (type == "yarn") {
    const YarnScaling yarn = ReadYarn(from, rope);
    const double all_dim = yarn.mscale_all_dim.value_or(0);
    if (from.family.softmax_mscale && all_dim != 0 && yarn.factor > 1) {
      const double g = 0.1 * all_dim * std::log(yarn.factor) + 1;
      rope->softmax_scale_multiplier = g * g;
    }
    spec.scaling = yarn;
  } else if (type == "longrope") {
    spec.scaling = ReadLongRope(from, rope);
  } else if (type == "llama3") {
    spec.scaling = ReadLlama3(from, rope);
  } else if (type == "proportional") {
    const double share = PartialFactor(from).value_or(1);
    spec.scaling = ProportionalScaling{
        dict.Number("factor"),
        static_cast<std::int32_t>(
            std::floor(share * static_cast<double>(from.head_dim) / 2))};
  } else {
    dict.Fail(dict.Has("rope_type") ? "rope_type" : "type",
              absl::StrCat("is \"", type,
                           "\"; known are default, linear, dynamic, yarn, "
                           "longrope, llama3, proportional"));
  }
}

}  // namespace

std::string RopeType(const JsonObject& dict, const Family& family) {
  std::optional<std::string> type = dict.Text("rope_type");
  const std::optional<std::string> alias = dict.Text("type");
  if (!type) type = alias;
  // M-RoPE is told by its sections.
  if (!type || *type == "mrope") return "default";
  if (*type == "xdrope") return dict.Has("alpha") ? "dynamic" : "default";
  if (*type == "su") return "longrope";
  if (*type == "yarn" && family.yarn_is_longrope) return "longrope";
  return *type;
}

double ReadTheta(const RopeDict& from, ModelRope* rope) {
  constexpr absl::string_view kKey = "rope_theta";
  const bool own_key = from.kind != nullptr && !from.nested;
  const absl::string_view key =
      own_key ? from.kind->theta_key : from.family.theta_key;
  // A flat dict's theta is not that of layers which have a key of their own.
  const bool dict_counts = !own_key || from.kind->scaled || key == kKey;
  const auto inner = from.dict.Number(kKey);
  if (inner && dict_counts) return *inner;
  if (!key.empty()) {
    if (const auto theta = from.config.Number(key)) return *theta;
    // DBRX and MPT publish it there.
    const JsonObject attention = from.config.Object("attn_config");
    if (const auto theta = attention.Number(key)) return *theta;
  }
  const double theta = own_key ? from.kind->theta : from.family.theta;
  Assume(key.empty() ? std::string(kKey) : std::string(key), NumberText(theta),
         key.empty() ? "fixed; transformers reads no base for this model type"
                     : kAbsent,
         rope);
  return theta;
}

void ReadRopeDict(const RopeDict& from, ModelRope* rope) {
  const bool scaled = from.kind == nullptr || from.nested || from.kind->scaled;
  std::string type = RopeType(from.dict, from.family);
  if (!scaled) type = "default";
  RopeSpec& spec = rope->spec;
  spec.slice = from.family.slice;
  spec.pairing = from.family.pairing;
  spec.output_pairing = from.family.output_pairing;
  if (from.family.width == RotaryWidth::kMla &&
      !from.config.Flag("rope_interleave").value_or(true)) {
    spec.pairing = Pairing::kHalfSplit;
    spec.output_pairing = Pairing::kUnspecified;
  }
  spec.reverse = from.family.reverse;
  spec.rope_theta = ReadTheta(from, rope);
  const std::int64_t width = ReadWidth(from, type, rope);
  if (width < 1 || width > kMaxRotaryDim) {
    from.config.Fail("head_dim", absl::StrCat("and partial widths give ", width,
                                              " rotated channels; 2 to ",
                                              kMaxRotaryDim, " are served"));
    return;
  }
  spec.rotary_dim = static_cast<std::int32_t>(width);
  spec.axes = ReadAxes(from);
  ReadScaling(from, type, rope);
  if (const auto beta = from.dict.Number("llama_4_scaling_beta")) {
    const auto floor_scale =
        from.dict.Number("original_max_position_embeddings");
    rope->query_scale = QueryScale{
        *beta,
        floor_scale ? *floor_scale
                    : static_cast<double>(MaxPositions(
                          from, "llama_4_scaling_beta needs a length")),
        0};
  }
  for (const std::string& key : from.dict.Keys()) {
    // Mistral repeats the model's length there.
    if (key == "max_position_embeddings") continue;
    if (scaled && !from.dict.WasRead(key)) {
      rope->warnings.push_back(absl::StrCat(from.dict.Path(key),
                                            " is not read: transformers does ",
                                            "not use it for rope type ", type));
    }
  }
}

}  // namespace posenc::core
