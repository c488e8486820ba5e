#include "core/interpretation/native_config.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/error.h"
#include "core/interpretation/provenance.h"
#include "core/interpretation/yarn_config.h"

namespace posenc::core::interpretation {
namespace {

// Keys that only another project's params.json has.
struct Foreign {
  absl::string_view key;
  absl::string_view whose;
};
constexpr Foreign kForeign[] = {{"inter_dim", "DeepSeek's inference code"},
                                {"multiple_of", "Meta's Llama"},
                                {"ffn_dim_multiplier", "Meta's Llama"},
                                {"use_scaled_rope", "Meta's Llama"}};

double MistralTheta(const JsonObject& params, ModelRope* rope) {
  if (const auto theta = params.Number("rope_theta")) return *theta;
  // Earlier versions of mistral-inference took 1e4 beside a sliding window,
  // with which Mistral 7B v0.1 was trained; 1e6 is its default since.
  const bool windowed = params.Has("sliding_window");
  const double theta = windowed ? 1e4 : 1e6;
  Assume("rope_theta", NumberText(theta),
         windowed ? "absent; mistral-inference's default beside sliding_window"
                  : "absent; mistral-inference's default",
         rope);
  return theta;
}

std::int64_t MistralWidth(const JsonObject& params, ModelRope* rope) {
  if (params.Has("qk_rope_head_dim")) {
    const std::int64_t width = params.Integer("qk_rope_head_dim").value_or(0);
    rope->spec.slice = RotarySlice::kTrailing;
    rope->head_dim = width + params.Integer("qk_nope_head_dim").value_or(0);
    return width;
  }
  if (const auto head_dim = params.Integer("head_dim")) {
    rope->head_dim = *head_dim;
  } else {
    const std::int64_t heads = params.Integer("n_heads").value_or(0);
    if (heads < 1) {
      params.Fail("n_heads", absl::StrCat("is ", heads, "; at least 1"));
      return 0;
    }
    rope->head_dim = params.Integer("dim").value_or(0) / heads;
    Assume("head_dim", absl::StrCat(rope->head_dim), "absent; dim / n_heads",
           rope);
  }
  return rope->head_dim;
}

double TurnsOr(const JsonObject& yarn, absl::string_view key, double otherwise,
               ModelRope* rope) {
  if (const auto turns = yarn.Number(key)) return *turns;
  Assume(yarn.Path(key), NumberText(otherwise), "absent; the paper's default",
         rope);
  return otherwise;
}

// Mistral's alpha and beta are beta_slow and beta_fast elsewhere. apply_scale
// false leaves the attention factor at 1.
void ReadMistralYarn(const JsonObject& from, bool latent, ModelRope* rope) {
  constexpr char kWhy[] = "yarn needs it";
  YarnScaling yarn;
  yarn.factor = from.RequiredNumber("factor", kWhy);
  const auto original = from.Integer("original_max_position_embeddings");
  if (!original) {
    from.RequiredNumber("original_max_position_embeddings", kWhy);
  }
  yarn.original_max_position_embeddings = original.value_or(0);
  yarn.beta_fast = TurnsOr(from, "beta", 32, rope);
  yarn.beta_slow = TurnsOr(from, "alpha", 1, rope);
  yarn.truncate = true;
  std::optional<bool> scales = from.Flag("apply_scale");
  if (!scales) {
    scales = true;
    Assume(from.Path("apply_scale"), "true",
           "absent; default of vLLM's reader of params.json", rope);
  }
  if (latent) {
    // Latent attention works as DeepSeek's with mscale = mscale_all_dim = 1 (in
    // vLLM's reader; Mistral has published no code of its own): cosines and
    // sines keep the attention factor 1, and scores take the square.
    yarn.attention_factor = 1;
    const long double g = YarnMscale(yarn.factor, 1);
    rope->softmax_scale_multiplier = static_cast<double>(g * g);
  } else if (!*scales) {
    yarn.attention_factor = 1;
  }
  rope->spec.scaling = yarn;
}

void WarnOfUnread(const JsonObject& object, absl::string_view prefix,
                  ModelRope* rope) {
  for (const std::string& key : object.Keys()) {
    if (object.WasRead(key) || !absl::StartsWith(key, prefix)) continue;
    Warn(&rope->warnings, object, key, " is not read");
  }
}

absl::Status CheckLayer(const JsonObject& params,
                        const std::optional<std::string>& layer_type,
                        const std::optional<std::int32_t>& layer_index) {
  if (layer_type && *layer_type != "full_attention" &&
      *layer_type != "sliding_attention") {
    return FieldInvalid("layer_type",
                        absl::StrCat("\"", *layer_type,
                                     "\" is not of this model; it has "
                                     "full_attention, sliding_attention"));
  }
  const auto layers = params.Integer("n_layers");
  if (layer_index &&
      (*layer_index < 0 || (layers && *layer_index >= *layers))) {
    return FieldInvalid(
        "layer_index",
        absl::StrCat(*layer_index, "; layers count from 0",
                     layers ? absl::StrCat(" to ", *layers - 1) : ""));
  }
  return absl::OkStatus();
}

}  // namespace

bool IsMistralParams(const JsonObject& config) {
  return config.Has("dim") && config.Has("n_heads") &&
         !config.Has("hidden_size");
}

absl::StatusOr<ModelRope> ReadMistralParams(
    const JsonObject& params, Profile profile,
    const std::optional<std::string>& layer_type,
    const std::optional<std::int32_t>& layer_index) {
  for (const Foreign& foreign : kForeign) {
    if (params.Has(foreign.key)) {
      params.Fail(foreign.key,
                  absl::StrCat("is a key of ", foreign.whose,
                               ", whose own format is not read; give the "
                               "config.json of the Hugging Face checkpoint"));
    }
  }
  for (const absl::string_view key :
       {"dim", "n_layers", "n_heads", "head_dim"}) {
    const auto size = params.Integer(key);
    if (size && *size < 1) {
      params.Fail(key, absl::StrCat("is ", *size, "; it must be at least 1"));
    }
  }
  ModelRope rope;
  const absl::Status layer = CheckLayer(params, layer_type, layer_index);
  if (!layer.ok()) return layer;
  if (profile != Profile::kMistral) {
    Assume("profile", "PROFILE_MISTRAL",
           "dim and n_heads are of Mistral's params.json, which means the same "
           "to every reader",
           &rope);
  }
  rope.spec.rope_theta = MistralTheta(params, &rope);
  const std::int64_t width = MistralWidth(params, &rope);
  if (width < 1 || width > kMaxRotaryDim) {
    params.Fail("head_dim",
                absl::StrCat("gives ", width, " rotated channels; 2 to ",
                             kMaxRotaryDim, " are served"));
    return rope;
  }
  rope.spec.rotary_dim = static_cast<std::int32_t>(width);
  rope.spec.pairing = Pairing::kInterleaved;
  Assume("pairing", "interleaved",
         "as the weights beside params.json (consolidated.safetensors) have it",
         &rope);
  rope.original_max_position_embeddings =
      params.FirstInteger({"max_position_embeddings", "max_seq_len"})
          .value_or(0);
  if (params.Has("yarn")) {
    const JsonObject yarn = params.Object("yarn");
    ReadMistralYarn(yarn, params.Has("qk_rope_head_dim"), &rope);
    WarnOfUnread(yarn, "", &rope);
    rope.original_max_position_embeddings =
        std::get<YarnScaling>(rope.spec.scaling)
            .original_max_position_embeddings;
  }
  if (params.Has("llama_4_scaling")) {
    const JsonObject scale = params.Object("llama_4_scaling");
    constexpr char kWhy[] = "llama_4_scaling needs it";
    rope.query_scale = QueryScale{
        scale.RequiredNumber("beta", kWhy),
        scale.RequiredNumber("original_max_position_embeddings", kWhy), 0};
    WarnOfUnread(scale, "", &rope);
  }
  WarnOfUnread(params, "rope_", &rope);
  return rope;
}

bool IsGptOssConfig(const JsonObject& config) {
  return config.Has("rope_scaling_factor") && config.Has("rope_ntk_beta") &&
         !config.Has("rope_scaling") && !config.Has("rope_parameters");
}

Respelled GptOssAsTransformers(const JsonObject& config) {
  nlohmann::json same = {{"model_type", "gpt_oss"}};
  for (const absl::string_view key :
       {"head_dim", "hidden_size", "num_attention_heads", "num_hidden_layers",
        "rope_theta"}) {
    if (const auto value = config.Number(key)) same[std::string(key)] = *value;
  }
  // The defaults of gpt-oss's ModelConfig.
  const double factor = config.Number("rope_scaling_factor").value_or(32);
  const std::int64_t original =
      config.Integer("initial_context_length").value_or(4096);
  same["rope_scaling"] = {
      {"rope_type", "yarn"},
      {"factor", factor},
      {"original_max_position_embeddings", original},
      {"beta_fast", config.Number("rope_ntk_beta").value_or(32)},
      {"beta_slow", config.Number("rope_ntk_alpha").value_or(1)},
      {"truncate", false}};
  GivenKeys given;
  for (const auto& [key, own] :
       {std::pair("factor", "rope_scaling_factor"),
        std::pair("original_max_position_embeddings", "initial_context_length"),
        std::pair("beta_fast", "rope_ntk_beta"),
        std::pair("beta_slow", "rope_ntk_alpha")}) {
    given[config.Path(absl::StrCat("rope_scaling.", key))] = config.Path(own);
  }
  return {std::move(same), std::move(given)};
}

bool IsChatGlmConfig(const JsonObject& config) {
  return config.PeekText("model_type") == "chatglm";
}

Respelled ChatGlmAsTransformers(const JsonObject& config) {
  const nlohmann::json* two = config.Find("position_encoding_2d");
  if (two != nullptr && *two == true) {
    config.Fail("position_encoding_2d",
                "is true: ChatGLM-6B turns the halves of a head by two "
                "positions, which is not read; ChatGLM 2 and later turn by "
                "one, and say false or leave it out");
  }
  const bool has_ratio = config.Has("rope_ratio") && !config.Has("rope_theta");
  nlohmann::json same = nlohmann::json::object();
  for (const std::string& key : config.Keys()) {
    if (!has_ratio || key != "rope_ratio") same[key] = *config.Find(key);
  }
  if (has_ratio) {
    const double ratio = config.Number("rope_ratio").value_or(1);
    const double theta = 10000 * ratio;
    if (!(theta > 1 && std::isfinite(theta))) {
      config.Fail("rope_ratio",
                  absl::StrCat("is ", NumberText(ratio), ", and the base, ",
                               "10000 times it, ", NumberText(theta),
                               "; it must be finite and > 1"));
    }
    same["rope_theta"] = theta;
  }
  return {std::move(same), {}};
}

bool IsStepConfig(const JsonObject& config) {
  const auto is_list = [&config](absl::string_view key) {
    const nlohmann::json* list = config.Find(key);
    return list != nullptr && list->is_array() && !list->empty();
  };
  const bool is_step =
      absl::StartsWith(config.PeekText("model_type").value_or(""), "step");
  if (config.Has("rope_parameters")) return false;
  if (is_list("rope_theta")) {
    return is_step || config.Has("partial_rotary_factors");
  }
  const nlohmann::json* base = config.Find("rope_theta");
  return is_step && is_list("partial_rotary_factors") &&
         (base == nullptr || !base->is_array());
}

Respelled StepAsTransformers(const JsonObject& config) {
  nlohmann::json same = nlohmann::json::object();
  for (const std::string& key : config.Keys()) {
    if (!IsAmong(key, "rope_theta partial_rotary_factors rope_scaling")) {
      same[key] = *config.Find(key);
    }
  }
  GivenKeys given;
  // A base that is no list is every layer's.
  const nlohmann::json* base = config.Find("rope_theta");
  const bool has_list = base != nullptr && base->is_array();
  const std::vector<double> thetas =
      has_list ? config.Numbers("rope_theta") : std::vector<double>();
  const std::vector<double> shares = config.Numbers("partial_rotary_factors");
  const std::optional<double> theta =
      has_list ? std::nullopt : config.Number("rope_theta");
  nlohmann::json types = same.value("layer_types", nlohmann::json::array());
  if (!types.is_array()) types = nlohmann::json::array();
  nlohmann::json& parameters = same["rope_parameters"];
  parameters = nlohmann::json::object();
  const std::size_t count = has_list ? thetas.size() : shares.size();
  for (std::size_t i = 0; i < count; ++i) {
    std::string type = "full_attention";
    if (i < types.size() && types[i].is_string()) type = types[i];
    nlohmann::json layer = {{"rope_type", "default"}};
    if (has_list) layer["rope_theta"] = thetas[i];
    if (theta) layer["rope_theta"] = *theta;
    if (i < shares.size()) layer["partial_rotary_factor"] = shares[i];
    if (!parameters.contains(type)) {
      parameters[type] = layer;
      const std::string path =
          config.Path(absl::StrCat("rope_parameters.", type, "."));
      given[path + "rope_theta"] =
          has_list ? config.Path(absl::StrCat("rope_theta[", i, "]"))
                   : config.Path("rope_theta");
      given[path + "partial_rotary_factor"] =
          config.Path(absl::StrCat("partial_rotary_factors[", i, "]"));
    }
    if (parameters[type] != layer) {
      config.Fail(
          "rope_theta",
          absl::StrCat("or partial_rotary_factors differ among layers of type ",
                       type, ", at layer ", i, ": ",
                       Shortened(parameters[type]), ", and ", Shortened(layer),
                       "; layer_types has ", types.size(),
                       " elements, and must tell such layers apart"));
    }
  }
  // Only full attention is scaled.
  const JsonObject scaling = config.Object("rope_scaling");
  if (parameters.contains("full_attention")) {
    for (const std::string& key : scaling.Keys()) {
      parameters["full_attention"][key] = *scaling.Find(key);
      given[config.Path(absl::StrCat("rope_parameters.full_attention.", key))] =
          scaling.Path(key);
    }
  }
  return {std::move(same), std::move(given)};
}

}  // namespace posenc::core::interpretation
