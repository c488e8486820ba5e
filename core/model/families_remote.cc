// Classes that transformers does not have: their code lies beside published
// checkpoints.

#include "core/model/family_tables.h"

namespace posenc::core {
namespace {

constexpr Pairing kInterleaved = Pairing::kInterleaved;

constexpr Family kFamilies[] = {
    {.model_types = "internlm internlm2 minicpm minicpmv minicpmo deepseek "
                    "exaone arctic xverse aquila orion bailing mimo llada "
                    "hf_olmo nemotron_nas deci telechat skywork solar "
                    "iquestcoder hunyuan plamo"},
    {.model_types = "telechat3", .theta = 1e6},
    // Alibaba's gte, whose class transformers has since by the name of gte.
    {.model_types = "new",
     .rope_switch = "position_embedding_type",
     .rope_switch_value = "\"rope\""},
    {.model_types = "Dream", .theta = 1e6},
    {.model_types = "step3", .theta = 5e5},
    {.model_types = "phi3small",
     .theta_key = "rope_embedding_base",
     .theta = 1e6},
    // Fish Speech: Llama's own names of keys, and its rows.
    {.model_types = "dual_ar",
     .pairing = kInterleaved,
     .theta_key = "rope_base"},
    {.model_types = "moss",
     .pairing = kInterleaved,
     .width = RotaryWidth::kRotaryDim,
     .rotary_dim = 64,
     .theta_key = "",
     .dicts = DictRule::kNone},
    {.model_types = "neobert",
     .pairing = kInterleaved,
     .theta_key = "",
     .dicts = DictRule::kNone},
    {.model_types = "phi4flash", .nope = NopeRule::kEveryLayer},
    {.model_types = "bailing_moe bailing_moe_v2",
     .width = RotaryWidth::kPartial,
     .theta = 6e5},
    {.model_types = "baichuan", .nope = NopeRule::kNoLength},
    // rope_ratio, a multiple of the base: ChatGlmAsTransformers().
    {.model_types = "chatglm",
     .pairing = kInterleaved,
     .width = RotaryWidth::kPartial,
     .partial = 0.5,
     .head_dim_key = "kv_channels"},
    {.model_types = "qwen",
     .width = RotaryWidth::kPartial,
     .partial_key = "rotary_pct",
     .theta_key = "rotary_emb_base",
     .head_dim_key = "kv_channels"},
    {.model_types = "stablelm_epoch",
     .width = RotaryWidth::kPartial,
     .partial = 0.25,
     .partial_key = "rope_pct"},
    {.model_types = "phi_msft mixformer_sequential",
     .width = RotaryWidth::kRotaryDim,
     .theta_key = "",
     .dicts = DictRule::kNone},
    {.model_types = "RefinedWeb RefinedWebModel",
     .theta_key = "",
     .dicts = DictRule::kNone,
     .rope_switch = "alibi",
     .rope_switch_value = "false"},
    {.model_types = "openelm",
     .theta_key = "rope_freq_constant",
     .dicts = DictRule::kNone},
    {.model_types = "minimax_text_01 minimax_m1",
     .width = RotaryWidth::kRotaryDim},
};

}  // namespace

absl::Span<const Family> RemoteFamilies() { return kFamilies; }

}  // namespace posenc::core
