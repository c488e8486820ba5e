#include "core/interpretation/formats/native_config.h"

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/base/error.h"
#include "core/interpretation/classes/families.h"
#include "core/interpretation/classes/profile.h"
#include "core/interpretation/composite.h"

namespace posenc::core::interpretation {
namespace {

// Keys that show that a params.json is from a project other than Mistral.
struct Foreign {
  absl::string_view key;
  absl::string_view whose;
};
constexpr Foreign kForeign[] = {{"inter_dim", "DeepSeek's inference code"},
                                {"multiple_of", "Meta's Llama"},
                                {"ffn_dim_multiplier", "Meta's Llama"},
                                {"use_scaled_rope", "Meta's Llama"}};

// The model types in rows/remote_families.json whose rules apply to Mistral's
// params.json.
constexpr char kParams[] = "mistral_params";
constexpr char kLatentParams[] = "mistral_params_latent";
// The model types for Megatron's arguments.
constexpr char kMegatron[] = "megatron";
constexpr char kMegatronInterleaved[] = "megatron_interleaved";

// Returns Mistral's yarn dict in transformers' spelling: alpha becomes
// beta_slow, and beta becomes beta_fast. If apply_scale is false, the attention
// factor is 1.
json MistralYarn(const JsonObject& yarn, bool latent, GivenKeys* given) {
  json dict = {{"rope_type", "yarn"}};
  for (const absl::string_view key :
       {"factor", "original_max_position_embeddings"}) {
    yarn.RequiredNumber(key, "yarn needs it");
  }
  const std::map<std::string, std::string> names = {{"alpha", "beta_slow"},
                                                    {"beta", "beta_fast"}};
  for (const std::string& key : yarn.Keys()) {
    if (key != "apply_scale" && names.count(key) == 0) {
      dict[key] = yarn.At(key);
    }
    (*given)[absl::StrCat("rope_scaling.", key)] = yarn.Path(key);
  }
  for (const auto& [key, name] : names) {
    if (yarn.Has(key)) dict[name] = yarn.At(key);
    (*given)[absl::StrCat("rope_scaling.", name)] = yarn.Path(key);
  }
  std::optional<bool> scales = yarn.Flag("apply_scale");
  if (!scales) {
    scales = true;
    yarn.Assume("apply_scale", "true",
                "absent; default of vLLM's reader of params.json");
  }
  // Mistral has published no code for latent attention. vLLM's reader applies
  // DeepSeek's rules with mscale = mscale_all_dim = 1. The attention factor of
  // cosines and sines is then 1, and scores are multiplied by g(factor, 1)^2.
  if (latent) dict["mscale_all_dim"] = 1;
  if (latent || !*scales) dict["attention_factor"] = 1;
  return dict;
}

// True for Mistral's params.json, which has dim and n_heads in place of
// hidden_size and num_attention_heads. The params.json of other projects has
// these keys, too, and is refused later (kForeign).
bool IsMistralParams(const JsonObject& config) {
  return config.Has("dim") && config.Has("n_heads") &&
         !config.Has("hidden_size");
}

Respelled MistralAsTransformers(const JsonObject& params) {
  for (const Foreign& foreign : kForeign) {
    if (params.Has(foreign.key)) {
      params.Fail(foreign.key, "is a key of ", foreign.whose,
                  ": this format is not read; give the config.json of the "
                  "Hugging Face checkpoint");
    }
  }
  const bool latent = params.Has("qk_rope_head_dim");
  json same = {{"model_type", latent ? kLatentParams : kParams}};
  GivenKeys given;
  for (const auto& [key, name] : {std::pair("dim", "hidden_size"),
                                  std::pair("n_layers", "num_hidden_layers"),
                                  std::pair("n_heads", "num_attention_heads"),
                                  std::pair("head_dim", "head_dim")}) {
    const auto size = params.Integer(key);
    if (!size) continue;
    if (*size < 1) params.Fail(key, "is ", *size, "; it must be at least 1");
    same[name] = *size;
    given[name] = params.Path(key);
  }
  for (const std::string& key : params.Keys()) {
    if (!IsAmong(key, "dim n_layers n_heads head_dim yarn llama_4_scaling")) {
      same[key] = params.At(key);
    }
  }
  // For latent attention, the slices give the width of a head.
  if (latent) same.erase("head_dim");
  if (!latent && !params.Has("head_dim") && params.report().ok()) {
    params.Assume("head_dim",
                  absl::StrCat(params.Integer("dim").value_or(0) /
                               params.Integer("n_heads").value_or(1)),
                  "absent; dim / n_heads");
  }
  if (!params.Has("rope_theta")) {
    // Earlier versions of mistral-inference used base 1e4 with a sliding
    // window, and Mistral 7B v0.1 was trained with that base. The default is
    // now 1e6.
    const bool windowed = params.Has("sliding_window");
    same["rope_theta"] = windowed ? 1e4 : 1e6;
    params.Assume(
        "rope_theta", NumberText(windowed ? 1e4 : 1e6),
        windowed ? "absent; mistral-inference's default beside sliding_window"
                 : "absent; mistral-inference's default");
  }
  if (params.Has("yarn")) {
    same["rope_scaling"] = MistralYarn(params.Object("yarn"), latent, &given);
  }
  if (params.Has("llama_4_scaling")) {
    const JsonObject scale = params.Object("llama_4_scaling");
    constexpr char kOriginal[] = "original_max_position_embeddings";
    constexpr char kWhy[] = "llama_4_scaling needs it";
    const double original = scale.RequiredNumber(kOriginal, kWhy);
    const double trained =
        params.Object("yarn").Number(kOriginal).value_or(original);
    if (trained != original) {
      scale.Fail(kOriginal, "is ", NumberText(original), ", and yarn's ",
                 NumberText(trained), "; one length is read");
    }
    same["rope_scaling"][kOriginal] = original;
    same["rope_scaling"]["llama_4_scaling_beta"] =
        scale.RequiredNumber("beta", kWhy);
  }
  return {std::move(same), std::move(given)};
}

// True for gpt-oss's own config.json, which has rope_scaling_factor and
// rope_ntk_beta in place of rope_scaling.
bool IsGptOssConfig(const JsonObject& config) {
  return config.Has("rope_scaling_factor") && config.Has("rope_ntk_beta") &&
         !config.Has("rope_scaling") && !config.Has("rope_parameters");
}

Respelled GptOssAsTransformers(const JsonObject& config) {
  json same = {{"model_type", "gpt_oss"}};
  for (const absl::string_view key :
       {"head_dim", "hidden_size", "num_attention_heads", "num_hidden_layers",
        "rope_theta"}) {
    if (const auto value = config.Number(key)) same[std::string(key)] = *value;
  }
  // The defaults below are those of gpt-oss's ModelConfig.
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

// True for Megatron-LM's arguments, which its checkpoints contain. Megatron's
// training adds its own model_type to the arguments.
bool IsMegatronArgs(const JsonObject& config, absl::string_view model_type) {
  absl::ConsumePrefix(&model_type, "ModelType.");
  return (!config.Contains("model_type") ||
          IsAmong(model_type, "encoder_or_decoder encoder_and_decoder")) &&
         config.Contains("num_attention_heads") &&
         (config.Contains("rotary_base") || config.Contains("rotary_percent"));
}

Respelled MegatronAsTransformers(const JsonObject& args) {
  const bool interleaved = args.Flag("rotary_interleaved").value_or(false);
  json same = {{"model_type", interleaved ? kMegatronInterleaved : kMegatron}};
  GivenKeys given;
  for (const auto& [key, name] :
       {std::pair("hidden_size", "hidden_size"),
        std::pair("num_attention_heads", "num_attention_heads"),
        std::pair("num_layers", "num_hidden_layers"),
        std::pair("max_position_embeddings", "max_position_embeddings"),
        std::pair("kv_channels", "head_dim"),
        std::pair("rotary_base", "rope_theta"),
        std::pair("rotary_percent", "partial_rotary_factor")}) {
    if (!args.Number(key)) continue;
    same[name] = args.At(key);
    given[name] = args.Path(key);
  }
  std::string type =
      args.Text("position_embedding_type").value_or("learned_absolute");
  if (args.Flag("use_rotary_position_embeddings").value_or(false)) {
    type = "rope";
  } else if (!args.Has("position_embedding_type")) {
    args.Assume("position_embedding_type", type,
                "absent; Megatron's default, with which nothing rotates");
  }
  constexpr char kUnread[] =
      ", and this is not read here; give the config.json of the converted "
      "checkpoint";
  if (IsAmong(type, "yarn mrope")) {
    args.Fail("position_embedding_type", "is \"", type, "\"", kUnread);
  }
  if (args.Flag("multi_latent_attention").value_or(false)) {
    args.Fail("multi_latent_attention", "is true", kUnread);
  }
  if (args.Has("no_rope_freq")) {
    args.Fail("no_rope_freq", "is ", Shortened(args.At("no_rope_freq")),
              kUnread);
  }
  if (type != "rope") same["position_embedding_type"] = "nope";
  const auto linear = args.Number("rotary_seq_len_interpolation_factor");
  const bool llama3 = args.Flag("use_rope_scaling").value_or(false);
  if (linear && *linear != 1 && llama3) {
    args.Fail("use_rope_scaling",
              "is true, and rotary_seq_len_interpolation_factor ",
              NumberText(*linear), ": both scale, and this is not read here");
  }
  // Megatron has a second factor, which is only for latent attention.
  constexpr char kLatentFactor[] = "rotary_scaling_factor";
  if (const double latent = args.Number(kLatentFactor).value_or(1);
      latent != 1) {
    args.Warn(kLatentFactor, " ", NumberText(latent),
              " is not read: Megatron reads it for latent attention alone; "
              "use_rope_scaling takes rope_scaling_factor");
  }
  constexpr char kFactor[] = "rope_scaling_factor";
  const double factor = args.Number(kFactor).value_or(8);
  if (llama3) {
    if (!args.Has(kFactor)) {
      args.Assume(kFactor, "8", "absent; Megatron's default");
    } else if (factor != 8) {
      args.Warn(kFactor, " is ", NumberText(factor),
                ", which Megatron-LM parsed and did not use: GPT models were "
                "trained with 8 (its issue 6305, August 2026); it is read here "
                "as ",
                NumberText(factor));
    }
    same["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", factor},
                            {"low_freq_factor", 1},
                            {"high_freq_factor", 4},
                            {"original_max_position_embeddings", 8192}};
    given["rope_scaling.factor"] = args.Path(kFactor);
  } else if (linear) {
    same["rope_scaling"] = {{"rope_type", "linear"}, {"factor", *linear}};
    given["rope_scaling.factor"] =
        args.Path("rotary_seq_len_interpolation_factor");
  }
  return {std::move(same), std::move(given)};
}

// True for Step 3.5's own format, in which rope_theta and
// partial_rotary_factors are lists with an element for each layer. transformers
// converts the lists to parameters for each layer type.
bool IsStepConfig(const JsonObject& config) {
  const auto is_list = [&config](absl::string_view key) {
    return config.At(key).is_array() && !config.At(key).empty();
  };
  const std::string type = config.Peek().Text("model_type").value_or("");
  const bool has_lists = FindFamily(type).lists;
  if (config.Has("rope_parameters")) return false;
  if (is_list("rope_theta")) {
    // UltraBERT's first files also list bases. These files have
    // attention_windows, but no rope_scaling, because rope_scaling would
    // replace the list.
    return has_lists || config.Has("partial_rotary_factors") ||
           (config.Has("attention_windows") && !config.Has("rope_scaling"));
  }
  return has_lists && is_list("partial_rotary_factors") &&
         !config.At("rope_theta").is_array();
}

Respelled StepAsTransformers(const JsonObject& config) {
  json same = config.Copy();
  for (const char* key :
       {"rope_theta", "partial_rotary_factors", "rope_scaling"}) {
    same.erase(key);
  }
  GivenKeys given;
  // A base that is not a list applies to every layer.
  const bool has_list = config.At("rope_theta").is_array();
  const std::vector<double> thetas =
      has_list ? config.Numbers("rope_theta") : std::vector<double>();
  const std::vector<double> shares = config.Numbers("partial_rotary_factors");
  const std::optional<double> theta =
      has_list ? std::nullopt : config.Number("rope_theta");
  const auto layers = config.Peek().Integer("num_hidden_layers");
  for (const auto& [key, list] :
       {std::pair("rope_theta", &thetas),
        std::pair("partial_rotary_factors", &shares)}) {
    const auto size = static_cast<std::int64_t>(list->size());
    if (!layers || size == 0 || size >= *layers) continue;
    config.Warn(key, " has ", size, " elements, and num_hidden_layers is ",
                *layers, "; its class fails at the layers past them");
  }
  json types = same.value("layer_types", json::array());
  if (!types.is_array()) types = json::array();
  // UltraBERT's files list windows, with 0 for full attention.
  const json& windows = config.At("attention_windows");
  for (std::size_t i = types.size(); windows.is_array() && i < windows.size();
       ++i) {
    types.push_back(windows[i] == 0 ? "full_attention" : "sliding_attention");
  }
  json& parameters = same["rope_parameters"];
  parameters = json::object();
  const std::size_t count = has_list ? thetas.size() : shares.size();
  for (std::size_t i = 0; i < count; ++i) {
    std::string type = "full_attention";
    if (i < types.size() && types[i].is_string()) type = types[i];
    json layer = {{"rope_type", "default"}};
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
      config.Fail("rope_theta",
                  "or partial_rotary_factors differ among layers of type ",
                  type, ", at layer ", i, ": ", Shortened(parameters[type]),
                  ", and ", Shortened(layer), "; layer_types has ",
                  types.size(), " elements, and must tell such layers apart");
    }
  }
  // transformers' class scales only full attention.
  const JsonObject scaling = config.Object("rope_scaling");
  const json& scaled = config.At("yarn_only_types");
  if (!scaling.Keys().empty() && scaled != json::array({"full_attention"})) {
    config.Warn(
        "yarn_only_types", " is ",
        scaled.is_null() ? "absent" : Shortened(scaled),
        ": transformers' class does not read it and scales "
        "full_attention alone, and other readers scale the types in it, "
        "or all types; read as transformers' class does");
  }
  if (parameters.contains("full_attention")) {
    for (const std::string& key : scaling.Keys()) {
      parameters["full_attention"][key] = scaling.At(key);
      given[config.Path(absl::StrCat("rope_parameters.full_attention.", key))] =
          scaling.Path(key);
    }
  }
  return {std::move(same), std::move(given)};
}

// Converts a file whose layer_types has an "mlp" after the attention of each
// layer (ListsMlps()). Like the class, keeps every second element of the list
// and half of the number of layers.
Respelled WithoutMlps(const JsonObject& config) {
  json same = config.Copy();
  const json& listed = config.At("layer_types");
  json types = json::array();
  for (std::size_t i = 0; i < listed.size(); i += 2) types.push_back(listed[i]);
  same["layer_types"] = std::move(types);
  if (const auto layers = config.Peek().Integer("num_hidden_layers")) {
    same["num_hidden_layers"] = *layers / 2;
  }
  return {std::move(same), {}};
}

}  // namespace

Respelled InTransformersSpelling(const JsonObject& config,
                                 const std::string& model_type,
                                 ProfileVersion* reader) {
  if (IsGptOssConfig(config)) return GptOssAsTransformers(config);
  if (IsStepConfig(config)) return StepAsTransformers(config);
  if (ListsMlps(config.At("layer_types"), model_type)) {
    return WithoutMlps(config);
  }
  const auto read_as = [&](Profile profile, std::string name, std::string why) {
    if (reader->profile != profile) {
      config.report().Assume("profile", std::move(name), std::move(why));
    }
    *reader = {.profile = profile};
  };
  if (IsMegatronArgs(config, model_type)) {
    read_as(Profile::kHf, "PROFILE_HF",
            "rotary_base and rotary_percent are Megatron's, and mean the same "
            "to every reader");
    return MegatronAsTransformers(config);
  }
  if (!model_type.empty() || !IsMistralParams(config)) return {};
  read_as(Profile::kMistral, "PROFILE_MISTRAL",
          "dim and n_heads are of Mistral's params.json, which means the same "
          "to every reader");
  return MistralAsTransformers(config);
}

}  // namespace posenc::core::interpretation
