#include "core/model/other_keys.h"

#include "absl/strings/str_cat.h"
#include "core/model/profile.h"

namespace posenc::core {
namespace {

using nlohmann::json;

// The fields that most classes of transformers 5.23 have, by their type. Its
// configurations are dataclasses that check their fields.
constexpr char kIntegers[] =
    "shared_expert_intermediate_size num_experts_per_tok num_experts "
    "num_local_experts n_routed_experts "
    "n_shared_experts n_group topk_group first_k_dense_replace kv_lora_rank "
    "q_lora_rank max_window_layers pretraining_tp type_vocab_size "
    "pad_token_id bos_token_id decoder_start_token_id image_token_id "
    "video_token_id audio_token_id linear_num_value_heads linear_num_key_heads "
    "linear_value_head_dim linear_key_head_dim linear_conv_kernel_dim "
    "index_topk index_n_heads index_head_dim";
constexpr char kNumbers[] =
    "initializer_range rms_norm_eps layer_norm_eps layer_norm_epsilon norm_eps "
    "attention_dropout hidden_dropout dropout classifier_dropout "
    "activation_dropout hidden_dropout_prob attention_probs_dropout_prob "
    "resid_pdrop embd_pdrop attn_pdrop routed_scaling_factor "
    "router_aux_loss_coef router_jitter_noise final_logit_softcapping "
    "attn_logit_softcapping residual_multiplier embedding_multiplier "
    "logits_scaling attention_multiplier logit_scale query_pre_attn_scalar "
    "swiglu_limit";
constexpr char kFlags[] =
    "use_cache tie_word_embeddings attention_bias mlp_bias "
    "output_router_logits norm_topk_prob use_sliding_window "
    "is_encoder_decoder is_decoder use_bidirectional_attention use_qk_norm";
constexpr char kTexts[] = "hidden_act hidden_activation activation_function";
// An integer, or several.
constexpr char kIntegersOrLists[] =
    "eos_token_id intermediate_size moe_intermediate_size";

// Those that nearly all of the classes that have them take no null for; of the
// rest each class's row knows (ClassDefaults::never_null).
constexpr char kNeverNull[] =
    "initializer_range intermediate_size moe_intermediate_size rms_norm_eps "
    "layer_norm_eps layer_norm_epsilon norm_eps attention_bias mlp_bias "
    "use_cache tie_word_embeddings hidden_act hidden_activation "
    "n_routed_experts n_shared_experts kv_lora_rank routed_scaling_factor "
    "norm_topk_prob use_sliding_window";

// The type that the key's values have; empty if the value is of it, or the key
// is another.
absl::string_view WrongType(absl::string_view key, const json& value) {
  const bool is_integer = value.is_number_integer();
  if (IsAmong(key, kIntegers)) return is_integer ? "" : "an integer";
  if (IsAmong(key, kNumbers)) return value.is_number() ? "" : "a number";
  if (IsAmong(key, kFlags)) return value.is_boolean() ? "" : "true or false";
  if (IsAmong(key, kTexts)) return value.is_string() ? "" : "a string";
  if (IsAmong(key, kIntegersOrLists)) {
    return is_integer || value.is_array() ? "" : "an integer or several";
  }
  return "";
}

}  // namespace

void WarnOfOtherKeys(const JsonObject& config,
                     std::vector<std::string>* warnings) {
  for (const std::string& key : config.Keys()) {
    const json& value = *config.Find(key);
    if (value.is_null()) {
      if (!IsAmong(key, kNeverNull)) continue;
      warnings->push_back(absl::StrCat(
          config.Path(key),
          " is null, for which transformers wants a value, and refuses the "
          "file; it has no part in rotation"));
      continue;
    }
    const absl::string_view type = WrongType(key, value);
    if (type.empty()) continue;
    warnings->push_back(absl::StrCat(
        config.Path(key), " is ", Shortened(value), ", and transformers wants ",
        type, " and refuses the file; it has no part in rotation"));
  }
}

}  // namespace posenc::core
