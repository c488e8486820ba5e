// The readers of configurations: rows of data, and nothing else.
//
// The rows were read in the published packages of vLLM 0.21.0, 0.22.0, 0.29.0,
// 0.30.0 and 0.33.0, SGLang 0.5.23, mlx-lm 0.29.1 to 0.32.2,
// transformers 4.57, 5.14, 5.15 and 5.23, and in llama.cpp's conversion/base.py
// of 2026; they were not run.

#include "core/model/reading_rules.h"

namespace posenc::core {
namespace {

constexpr Profile kHf = Profile::kHf;
constexpr Profile kVllm = Profile::kVllm;
constexpr Profile kLlamaCpp = Profile::kLlamaCpp;
constexpr Profile kMlx = Profile::kMlx;
constexpr Profile kDeepseek = Profile::kDeepseek;

// mlx-lm's model files, and the types that it remaps to one of them.
constexpr char kMlxModels[] =
    "Klear afm7 afmoe apertus baichuan_m1 bailing_hybrid bailing_moe "
    "bailing_moe_linear bailing_moe_v3 bitnet cohere cohere2 dbrx "
    "deepseek deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v41 dots1 "
    "ernie4_5 ernie4_5_moe exaone exaone4 exaone_moe falcon_h1 "
    "falcon_mamba gear gemma gemma2 gemma3 gemma3n gemma4 gemma4_unified "
    "glm glm4 glm4_moe glm4_moe_lite glm_moe_dsa gpt2 gpt_bigcode "
    "gpt_neox gpt_oss gptj granite granitemoe granitemoehybrid helium "
    "hunyuan hunyuan_v1_dense internlm2 internlm3 iquestcoder "
    "iquestloopcoder jamba joyai_llm_flash kimi_k2 kimi_k25 kimi_k3 "
    "kimi_linear kimi_vl laguna lfm2 lfm2_moe lfm2_vl lille_130m llama "
    "llama4 llava longcat_flash longcat_flash_ngram mamba mamba2 mellum "
    "mimo mimo_v2_flash minicpm minicpm3 minimax minimax_m2 minimax_m3 "
    "minimax_m3_vl "
    "ministral3 mistral mistral3 mistral4 mixtral muse_glimmer muse_spark "
    "nanbeige nanochat nemotron nemotron_h nemotron_nas olmo olmo2 olmo3 "
    "olmo_hybrid olmoe openelm phi phi3 phi3small phi_msft phimoe "
    "phixtral pixtral plamo plamo2 plamo3 prism_hadamard_qwen35 qwen "
    "qwen2 qwen2_5_vl qwen2_moe qwen2_vl qwen3 qwen3_5 qwen3_5_moe "
    "qwen3_moe qwen3_next qwen3_vl qwen3_vl_moe recurrent_gemma rwkv7 "
    "seed_oss smollm3 solar_open spark2_5 stablelm starcoder2 step3p5 "
    "talkie telechat3 xverse youtu_llm";

// mlx-lm's classes that call the plain rotation.
constexpr char kMlxUnscaled[] =
    "Klear afm7 baichuan_m1 cohere cohere2 dbrx gemma gemma2 gemma3n glm glm4 "
    "glm4_moe gpt_neox gptj granitemoehybrid helium lfm2 lfm2_moe lille_130m "
    "minimax minimax_m2 mixtral mimo_v2_flash muse_glimmer muse_spark nanochat "
    "olmo olmo_hybrid openelm phi phi3small phi_msft phixtral plamo plamo2 "
    "plamo3 qwen qwen2_moe qwen3_moe qwen3_vl_moe recurrent_gemma spark2_5 "
    "stablelm starcoder2 talkie ernie4_5 ernie4_5_moe";

// mlx-lm's classes that have no value for an absent rope_theta.
constexpr char kMlxNeedsBase[] =
    "Klear apertus baichuan_m1 bailing_hybrid bailing_moe bailing_moe_linear "
    "dots1 ernie4_5 ernie4_5_moe exaone exaone4 gemma3n glm4 glm4_moe "
    "glm_moe_dsa granite granitemoe helium hunyuan kimi_linear lille_130m "
    "llama4 longcat_flash longcat_flash_ngram mellum mimo_v2_flash minimax "
    "minimax_m2 ministral3 muse_spark olmo3 qwen3 qwen3_moe qwen3_next "
    "qwen3_vl qwen3_vl_moe recurrent_gemma solar_open stablelm telechat3";

// Files of these classes need a share of the head.
constexpr char kMlxNeedsShare[] =
    "glm4 mimo_v2_flash qwen3_next solar_open stablelm";

// mlx-lm's classes that have values for absent slices of latent attention.
constexpr char kMlxSlices[] =
    "bailing_moe_v3 deepseek_v2 deepseek_v3 deepseek_v32 glm4_moe_lite "
    "joyai_llm_flash kimi_k2 youtu_llm";

constexpr ReadingRow kRows[] = {
    {kHf, "", "", "5.0", ReadingRule::kParametersUnread,
     "reads rope_theta and rope_scaling, not rope_parameters"},
    {kHf, "", "5.0", "", ReadingRule::kScalingReplaces,
     "reads rope_scaling before rope_parameters"},
    {kHf,
     "afmoe cosmos3_edge deepseek_v4 exaone_moe gemma4 gemma4_text "
     "gemma4_unified glm4_moe_lite glm_moe_dsa hy_v3 laguna lfm3 mellum "
     "minimax_m3_vl ministral3 mistral4 muse_glimmer muse_spark nanochat "
     "olmo_hybrid qwen3_5 qwen3_5_moe qwen4_exp solar_open spark2_5 step3p5 "
     "step3p7 iquestcoder cohere2_moe dots3 zaya",
     "", "5.0", ReadingRule::kNoClass, "has no class for it"},
    // The code beside their checkpoints, transformers having no class of them.
    {kHf, "new", "", "", ReadingRule::kKnowsType, "scales by ntk", "ntk"},
    {kHf, "telechat3", "", "", ReadingRule::kKnowsType,
     "reads telechat3-yarn as yarn with attention_factor 0.07 ln s + 1",
     "telechat3-yarn"},
    {kHf, "kimi_k2", "", "", ReadingRule::kDefaultSlice,
     "takes 64 for an absent qk_rope_head_dim", "", 64},
    {kHf, "kimi_k2", "", "", ReadingRule::kDefaultRest,
     "takes 128 for an absent qk_nope_head_dim", "", 128},
    // Its PR 47435 (July 2026).
    {kHf, "deepseek_v2 mistral4", "", "5.15", ReadingRule::kSoftmaxUnscaled,
     "does not scale the softmax by mscale_all_dim"},

    {kVllm, "kimi_k2", "", "", ReadingRule::kDefaultSlice,
     "takes 64 for an absent qk_rope_head_dim", "", 64},
    {kVllm, "kimi_k2", "", "", ReadingRule::kDefaultRest,
     "takes 128 for an absent qk_nope_head_dim", "", 128},
    {kVllm, "", "", "", ReadingRule::kScalingReplaces,
     "reads rope_scaling before rope_parameters, by transformers' classes"},
    {kVllm, "", "", "", ReadingRule::kTypesConflict,
     "refuses a type and a rope_type that differ"},
    // vLLM PR 41277 (May 2026).
    {kVllm, "", "", "0.22.0", ReadingRule::kDynamicConstant,
     "scales dynamic by s * s - (s - 1) at every length"},
    {kVllm, "", "0.22.0", "", ReadingRule::kDynamicByTrained,
     "scales dynamic by s * L / T - (s - 1), L max_position_embeddings and T "
     "max_trained_positions, which is L if absent"},
    // vLLM PR 56446 (September 2026), in 0.30.0 and not in 0.29.0.
    {kVllm, "", "", "0.30.0", ReadingRule::kAmplitudeMultiplier,
     "reads attn_factor, and neither attention_factor nor mscale"},
    {kVllm, "", "0.30.0", "", ReadingRule::kAmplitudeByKeys,
     "reads attention_factor and the mscale pair, not attn_factor"},
    {kVllm, "", "0.20.0", "", ReadingRule::kKnowsType,
     "reads telechat3-yarn as yarn with attention_factor 0.07 ln s + 1",
     "telechat3-yarn"},

    {kSglang, "kimi_k2", "", "", ReadingRule::kDefaultSlice,
     "takes 64 for an absent qk_rope_head_dim", "", 64},
    {kSglang, "kimi_k2", "", "", ReadingRule::kDefaultRest,
     "takes 128 for an absent qk_nope_head_dim", "", 128},
    {kSglang, "", "", "", ReadingRule::kScalingReplaces,
     "reads rope_scaling before rope_parameters, by transformers' classes"},
    {kSglang, "", "", "", ReadingRule::kDynamicConstant,
     "scales dynamic by s * s - (s - 1) at every length"},

    {kLlamaCpp, "zaya", "", "", ReadingRule::kNoClass,
     "has no architecture for it"},
    {kLlamaCpp, "", "", "", ReadingRule::kParametersReplace,
     "reads rope_parameters before rope_scaling"},
    // Its converter has what transformers' class makes of a file. Of this type
    // the transformers that it asks for has none, so it writes no
    // rope.freq_base.
    {kLlamaCpp, "gte", "", "", ReadingRule::kDefaultBase,
     "takes 10000 for an absent rope_theta", "", 1e4},

    // mlx-lm: 17 of its 99 model files that have rope_theta read
    // rope_parameters.
    {kMlx, "qwen3 qwen3_vl", "0.32.0", "", ReadingRule::kParametersFill,
     "reads rope_theta and rope_scaling before rope_parameters"},
    {kMlx, "lfm2 lfm2_vl lfm2_moe", "0.31.0", "", ReadingRule::kParametersBase,
     "reads of rope_parameters rope_theta alone"},
    {kMlx, "granitemoehybrid", "0.32.0", "", ReadingRule::kParametersBase,
     "reads of rope_parameters rope_theta alone"},
    {kMlx, "exaone_moe muse_glimmer muse_spark olmo_hybrid", "", "",
     ReadingRule::kParametersBase, "reads of rope_parameters rope_theta alone"},
    {kMlx,
     "gemma4 gemma4_unified glm_moe_dsa laguna mellum minimax_m3 "
     "minimax_m3_vl ministral3 mistral4 qwen3_5 qwen3_5_moe spark2_5",
     "", "", ReadingRule::kParametersReplace, "reads rope_parameters"},
    // Its lists are read as rope_parameters (native_config.h).
    {kMlx, "step3p5", "", "", ReadingRule::kParametersReplace,
     "reads lists of rope_theta and partial_rotary_factors"},
    {kMlx, "", "", "", ReadingRule::kParametersUnread,
     "reads rope_theta and rope_scaling, not rope_parameters"},
    {kMlx, "", "", "", ReadingRule::kTypeFirst, "reads type before rope_type"},
    {kMlx, "", "0.30.4", "", ReadingRule::kKnowsType,
     "knows DeepSeek's name of yarn", "deepseek_yarn"},
    {kMlx, "", "0.30.5", "", ReadingRule::kKnowsType,
     "knows TeleChat3's name of yarn", "telechat3-yarn"},
    {kMlx, "", "0.31.2", "", ReadingRule::kKnowsType, "knows proportional",
     "proportional"},
    {kMlx, "", "0.32.0", "", ReadingRule::kKnowsType, "knows dynamic",
     "dynamic"},
    {kMlx, "glm", "", "", ReadingRule::kWholeHead, "rotates the whole head"},
    // Its own code turns the head that kv_channels gives.
    {kMlx, "qwen", "", "", ReadingRule::kWholeHead, "rotates the whole head"},
    {kMlx, kMlxUnscaled, "", "", ReadingRule::kUnscaled, "does not scale"},
    {kMlx, "deepseek nemotron", "", "", ReadingRule::kUnscaled,
     "scales linearly or not at all", "linear"},
    {kMlx, "phi3 phi4_multimodal phi4mm phi3_v", "", "", ReadingRule::kUnscaled,
     "scales by linear and longrope alone", "linear longrope"},
    {kMlx, kMlxNeedsBase, "", "", ReadingRule::kNeedsBase,
     "fails without a rope_theta"},
    {kMlx, kMlxNeedsShare, "", "", ReadingRule::kNeedsKeys,
     "fails without a partial_rotary_factor", "partial_rotary_factor"},
    {kMlx, "glm4_moe", "", "", ReadingRule::kNeedsKeys,
     "fails without a partial_rotary_factor, or a rope_scaling, be it null",
     "partial_rotary_factor rope_scaling"},
    {kMlx, "exaone4", "", "", ReadingRule::kNeedsKeys,
     "fails without a rope_scaling, be it null", "rope_scaling"},
    {kMlx, "gpt_neox", "", "", ReadingRule::kNeedsKeys,
     "fails without a rotary_pct or a rotary_emb_base",
     "rotary_pct rotary_emb_base"},
    {kMlx, "minimax minimax_m2", "", "", ReadingRule::kNeedsKeys,
     "fails without a rotary_dim", "rotary_dim"},
    {kMlx, "olmo3", "", "", ReadingRule::kOneBase,
     "takes rope_theta for every layer"},
    {kMlx, "gptj phi_msft phixtral plamo2 qwen", "", "",
     ReadingRule::kFixedBase, "takes 10000 whatever the file says", "", 1e4},
    {kMlx,
     "qwen2 qwen2_moe qwen2_vl qwen2_5_vl mixtral lfm2 lfm2_moe exaone_moe "
     "minicpm minicpm3 gear gemma3 glm4_moe_lite phi3small plamo3 talkie",
     "", "", ReadingRule::kDefaultBase,
     "takes 1000000 for an absent rope_theta", "", 1e6},
    {kMlx, "qwen3_5 qwen3_5_moe starcoder2", "", "", ReadingRule::kDefaultBase,
     "takes 100000 for an absent rope_theta", "", 1e5},
    {kMlx, "cohere", "", "", ReadingRule::kDefaultBase,
     "takes 8000000 for an absent rope_theta", "", 8e6},
    {kMlx, "cohere2 afm7", "", "", ReadingRule::kDefaultBase,
     "takes 50000 for an absent rope_theta", "", 5e4},
    {kMlx, "falcon_h1", "", "", ReadingRule::kDefaultBase,
     "takes 1e+11 for an absent rope_theta", "", 1e11},
    {kMlx, "iquestloopcoder muse_glimmer nemotron_nas", "", "",
     ReadingRule::kDefaultBase, "takes 500000 for an absent rope_theta", "",
     5e5},
    {kMlx, "youtu_llm", "", "", ReadingRule::kDefaultBase,
     "takes 1600000 for an absent rope_theta", "", 16e5},
    {kMlx, "gpt_oss", "", "", ReadingRule::kDefaultBase,
     "takes 150000 for an absent rope_theta", "", 15e4},
    {kMlx, "bailing_moe_v3", "", "", ReadingRule::kDefaultBase,
     "takes 6000000 for an absent rope_theta", "", 6e6},
    {kMlx, "minimax_m3 minimax_m3_vl", "", "", ReadingRule::kDefaultBase,
     "takes 5000000 for an absent rope_theta", "", 5e6},
    {kMlx, "", "", "", ReadingRule::kDefaultBase,
     "takes 10000 for an absent rope_theta", "", 1e4},
    {kMlx, "phi", "", "", ReadingRule::kDefaultShare,
     "rotates 0.4 of the head for an absent partial_rotary_factor", "", 0.4},
    {kMlx, "minimax_m3 minimax_m3_vl", "", "", ReadingRule::kDefaultShare,
     "rotates 0.5 of the head for an absent partial_rotary_factor", "", 0.5},
    // Others of its classes with latent attention have no defaults.
    {kMlx, kMlxSlices, "", "", ReadingRule::kDefaultSlice,
     "takes 64 for an absent qk_rope_head_dim", "", 64},
    {kMlx, "glm4_moe_lite", "", "", ReadingRule::kDefaultRest,
     "takes 192 for an absent qk_nope_head_dim", "", 192},
    {kMlx, kMlxSlices, "", "", ReadingRule::kDefaultRest,
     "takes 128 for an absent qk_nope_head_dim", "", 128},
    {kMlx, kMlxModels, "", "", ReadingRule::kHasClass,
     "has a model file for it"},

    // configuration_deepseek.py beside the checkpoints.
    {kDeepseek, "", "", "", ReadingRule::kDefaultSlice,
     "takes 64 for an absent qk_rope_head_dim", "", 64},
    {kDeepseek, "", "", "", ReadingRule::kDefaultRest,
     "takes 128 for an absent qk_nope_head_dim", "", 128},
};

constexpr Reader kReaders[] = {
    {"hf", "transformers", "5.23", kHf, "", "", true},
    {"vllm", "vLLM", "0.33", kVllm, "", "", true},
    {"sglang", "SGLang", "0.5.23", kSglang, "", "", true},
    {"llama_cpp", "llama.cpp", "2026", kLlamaCpp, "", "", true},
    {"mlx", "mlx-lm", "0.32.2", kMlx, "", "", true},
    {"hf4", "transformers 4", "4.57", kHf, "4.57", "", true},
    {"gpt_oss", "gpt-oss's reference implementation", "2025", Profile::kGptOss,
     "", "gpt_oss", true},
    {"deepseek", "DeepSeek's reference implementation", "2025",
     Profile::kDeepseek, "", "deepseek", true},
    {"mistral", "Mistral's reference implementation", "1.8", Profile::kMistral,
     "", "mi", false},
    {"gguf_hf", "transformers' GGUF loader", "5.23", kHf, "", "", false},
};

}  // namespace

absl::Span<const ReadingRow> ReadingRows() { return kRows; }

absl::Span<const Reader> Readers() { return kReaders; }

}  // namespace posenc::core
