#include "core/model/families.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace posenc::core {
namespace {

constexpr Pairing kInterleaved = Pairing::kInterleaved;
constexpr Pairing kHalfSplit = Pairing::kHalfSplit;
constexpr LayerKind kGlobal = {"full_attention", "rope_theta", 1e6, true};
constexpr LayerKind kLocal = {"sliding_attention", "rope_local_base_freq", 1e4,
                              false};

constexpr char kGptOssRope[] =
    R"({"rope_type":"yarn","factor":32.0,"beta_fast":32.0,"beta_slow":1.0,)"
    R"("truncate":false,"original_max_position_embeddings":4096})";
constexpr char kGemma4Rope[] =
    R"({"sliding_attention":{"rope_type":"default","rope_theta":10000.0},)"
    R"("full_attention":{"rope_type":"proportional",)"
    R"("partial_rotary_factor":0.25,"rope_theta":1000000.0}})";

// Rows are in no order that matters: a model type stands in one of them only.
// Fields that a row leaves out have the defaults of Family, and those are the
// defaults of transformers' configuration classes.
constexpr Family kFamilies[] = {
    {.model_types =
         "llama mistral ministral qwen2 qwen2_moe qwen3_moe olmo olmo2 olmoe "
         "olmo_hybrid granite granitemoe granitemoeshared granite4_vision "
         "granite_docling starcoder2 internlm2 internlm3 arcee aria chameleon "
         "moshi mimi diffllama falcon_h1 dots1 doge hunyuan_v1_moe "
         "hunyuan_v1_dense dbrx mllama idefics idefics3 smolvlm eurobert esmc "
         "hyperclovax jais2 kyutai_speech_to_text lasr_encoder lasr_ctc "
         "deepseek_ocr2 unlimited_ocr gradium_phonon_tts pocket_tts "
         "pocket_tts_audio_tokenizer qwen2_audio voxtral_realtime"},
    {.model_types = "qwen3 seed_oss hrm_text molmo2 dia_encoder dia_decoder "
                    "qwen3_omni_moe_talker_code_predictor",
     .head_dim = 128},
    {.model_types = "gemma gemma2 vaultgemma t5_gemma_module t5gemma",
     .head_dim = 256},
    {.model_types = "qwen2_5_omni_dit neucodec xcodec2 "
                    "voxtral_realtime_encoder",
     .head_dim = 64},
    {.model_types = "timesfm2_5", .head_dim = 80},
    {.model_types = "mixtral phimoe minimax_text emu3 emu3_text_model",
     .theta = 1e6},
    {.model_types = "lfm2 lfm2_moe", .theta = 1e6},
    {.model_types = "bitnet csm csm_depth_decoder_model flex_olmo evolla "
                    "mllama_text_model",
     .theta = 5e5},
    {.model_types = "blt blt_local_encoder blt_local_decoder "
                    "blt_global_transformer",
     .pairing = kInterleaved,
     .theta = 5e5},
    {.model_types = "muse_glimmer_assistant", .theta = 5e5, .head_dim = 128},
    {.model_types = "gte", .theta = 160000},
    {.model_types = "jina_embeddings_v3", .theta = 20000},
    {.model_types = "nomic_bert", .theta = 1000},
    {.model_types = "hy_v3", .theta = 11158840, .head_dim = 128},
    {.model_types = "pe_audio_encoder pe_audio_video_encoder pe_video_encoder",
     .pairing = kInterleaved,
     .theta = 20000,
     .head_dim = 128},
    {.model_types = "flint", .head_dim = 128},
    {.model_types = "muse_glimmer",
     .head_dim = 128,
     .nope = NopeRule::kFromLast,
     .full_every = 4},
    {.model_types = "muse_spark",
     .theta = 5e5,
     .head_dim = 64,
     .nope = NopeRule::kFromLast,
     .full_every = 4},
    {.model_types = "granite_swa granitemoe_swa"},
    {.model_types = "granitemoehybrid",
     .rope_switch = "position_embedding_type",
     .rope_switch_value = "\"rope\""},
    {.model_types = "esm evolla_sa_prot",
     .rope_switch = "position_embedding_type",
     .rope_switch_value = "\"rotary\""},
    {.model_types = "zamba2",
     .head_dim_key = "attention_head_dim",
     .rope_switch = "use_mem_rope",
     .rope_switch_value = "true"},
    {.model_types = "falcon",
     .rope_switch = "alibi",
     .rope_switch_value = "false"},
    {.model_types = "jamba nemotron_h kimi_linear glm5_next inkling inkling2 "
                    "mpt bloom mamba mamba2",
     .nope = NopeRule::kEveryLayer},
    {.model_types = "cwm",
     .theta = 1e6,
     .head_dim = 128,
     .rope_parameters =
         R"({"factor":16.0,"high_freq_factor":4.0,"low_freq_factor":1.0,)"
         R"("original_max_position_embeddings":8192,"rope_type":"llama3"})"},
    {.model_types = "apertus",
     .theta = 12e6,
     .rope_parameters =
         R"({"rope_type":"llama3","factor":8.0,)"
         R"("original_max_position_embeddings":8192,"low_freq_factor":1.0,)"
         R"("high_freq_factor":4.0})"},
    {.model_types = "higgs_audio_v2",
     .theta = 5e5,
     .head_dim = 128,
     .rope_parameters =
         R"({"factor":32.0,"high_freq_factor":0.5,"low_freq_factor":0.125,)"
         R"("original_max_position_embeddings":1024,"rope_type":"llama3"})"},
    {.model_types = "ministral3",
     .theta = 1e6,
     .head_dim = 128,
     .rope_parameters =
         R"({"type":"yarn","factor":16.0,)"
         R"("original_max_position_embeddings":16384,"beta_fast":32.0,)"
         R"("beta_slow":1.0,"mscale_all_dim":1.0,"mscale":1.0,)"
         R"("llama_4_scaling_beta":0.1})"},
    {.model_types = "gpt_oss",
     .theta = 150000,
     .head_dim = 64,
     .rope_parameters = kGptOssRope},
    // Like gpt-oss, but with interleaved rows.
    {.model_types = "openai_privacy_filter",
     .pairing = kInterleaved,
     .theta = 150000,
     .head_dim = 64,
     .rope_parameters = kGptOssRope},
    {.model_types = "nanochat", .reverse = true},
    {.model_types = "jetmoe", .head_dim_key = "kv_channels"},
    {.model_types = "cohere", .pairing = kInterleaved, .theta = 5e5},
    {.model_types = "helium",
     .pairing = kInterleaved,
     .theta = 1e5,
     .head_dim = 128},
    {.model_types = "cohere2",
     .pairing = kInterleaved,
     .nope = NopeRule::kSlidingOnly,
     .full_every = 4},
    {.model_types = "cohere2_moe",
     .pairing = kInterleaved,
     .head_dim = 128,
     .nope = NopeRule::kSlidingOnly,
     .full_every = 4},
    {.model_types = "ernie4_5",
     .pairing = kInterleaved,
     .theta = 5e5,
     .head_dim = 128},
    {.model_types = "ernie4_5_moe", .pairing = kInterleaved, .theta = 5e5},
    {.model_types = "ernie4_5_vl ernie4_5_vl_moe ernie4_5_moe_vl",
     .pairing = kInterleaved,
     .theta = 5e5,
     .axes = AxisAssignment::kAlternatingTail,
     .sections = {22, 22, 20}},
    {.model_types = "glm glm4",
     .pairing = kInterleaved,
     .width = RotaryWidth::kPartial,
     .partial = 0.5,
     .head_dim = 128},
    {.model_types = "glm4v glm_ocr",
     .pairing = kInterleaved,
     .width = RotaryWidth::kPartial,
     .sections = {8, 12, 12}},
    {.model_types = "glm_image",
     .width = RotaryWidth::kPartial,
     .sections = {8, 12, 12}},
    {.model_types = "glm4v_moe",
     .width = RotaryWidth::kPartial,
     .partial = 0.5,
     .sections = {8, 12, 12}},
    {.model_types = "glm4_moe bamba phi persimmon fuyu nemotron "
                    "recurrent_gemma glmasr_encoder dots3_note_audio_encoder "
                    "nemotron3_5_transcribe nemotron3_5_transcribe_asr_audio "
                    "nemotron3_diarization",
     .width = RotaryWidth::kPartial,
     .partial = 0.5},
    {.model_types = "stablelm",
     .width = RotaryWidth::kPartial,
     .partial = 0.25},
    {.model_types = "qwen3_next",
     .width = RotaryWidth::kPartial,
     .partial = 0.25,
     .head_dim = 256},
    {.model_types = "solar_open",
     .width = RotaryWidth::kPartial,
     .theta = 1e6,
     .head_dim = 128},
    {.model_types = "qwen3_5 qwen3_5_moe",
     .width = RotaryWidth::kPartial,
     .partial = 0.25,
     .head_dim = 256,
     .axes = AxisAssignment::kInterleaved,
     .sections = {11, 11, 10}},
    {.model_types = "qwen4_exp",
     .width = RotaryWidth::kPartial,
     .head_dim = 256,
     .axes = AxisAssignment::kInterleaved,
     .sections = {11, 11, 10}},
    {.model_types = "phi3 phi3_v phi4_multimodal phi4mm",
     .width = RotaryWidth::kPartial,
     .yarn_is_longrope = true},
    {.model_types = "moonshine",
     .pairing = kInterleaved,
     .width = RotaryWidth::kPartial,
     .partial = 0.9},
    {.model_types = "moonshine_streaming",
     .pairing = kInterleaved,
     .width = RotaryWidth::kPartial,
     .rope_parameters = R"({"rope_type":"default","rope_theta":10000.0,)"
                        R"("partial_rotary_factor":0.8})"},
    {.model_types = "laguna",
     .width = RotaryWidth::kPartial,
     .head_dim = 128,
     .full_every = 1,
     .rope_parameters =
         R"({"full_attention":{"rope_type":"default","rope_theta":500000.0,)"
         R"("partial_rotary_factor":0.5},"sliding_attention":{)"
         R"("rope_type":"default","rope_theta":10000.0,)"
         R"("partial_rotary_factor":1.0}})"},
    {.model_types = "mellum",
     .width = RotaryWidth::kPartial,
     .head_dim = 128,
     .full_every = 1,
     .rope_parameters =
         R"({"full_attention":{"rope_type":"default","rope_theta":500000.0},)"
         R"("sliding_attention":{"rope_type":"default","rope_theta":10000.0}})"},
    {.model_types = "zaya",
     .width = RotaryWidth::kPartial,
     .head_dim = 128,
     .rope_parameters =
         R"({"hybrid":{"rope_type":"default","rope_theta":5000000.0,)"
         R"("partial_rotary_factor":0.5},"hybrid_sliding":{)"
         R"("rope_type":"default","rope_theta":10000.0,)"
         R"("partial_rotary_factor":0.5}})"},
    {.model_types = "step3p5 step3p7",
     .width = RotaryWidth::kPartial,
     .head_dim = 128},
    {.model_types = "gemma4 gemma4_unified diffusion_gemma",
     .head_dim = 256,
     .global_head_dim = 512,
     .full_every = 6,
     .rope_parameters = kGemma4Rope},
    {.model_types = "embedding_gemma2",
     .head_dim = 256,
     .global_head_dim = 512,
     .full_every = 6,
     .rope_parameters =
         R"({"sliding_attention":{"rope_type":"default",)"
         R"("rope_theta":10000.0},"full_attention":{"rope_type":"default",)"
         R"("rope_theta":1000000.0}})"},
    {.model_types = "beam",
     .head_dim = 128,
     .full_every = 6,
     .rope_parameters = R"({"sliding_attention":{"rope_type":"default",)"
                        R"("rope_theta":10000.0},"full_attention":null})"},
    {.model_types = "lfm3",
     .theta = 1e6,
     .head_dim = 128,
     .rope_parameters = R"({"sliding_attention":{"rope_type":"default",)"
                        R"("rope_theta":10000.0},"full_attention":{)"
                        R"("rope_type":"proportional","rope_theta":1000000.0,)"
                        R"("partial_rotary_factor":0.5}})"},
    {.model_types = "gpt_neox",
     .width = RotaryWidth::kPartial,
     .partial = 0.25,
     .partial_key = "rotary_pct",
     .theta_key = "rotary_emb_base"},
    {.model_types = "gpt_neox_japanese",
     .width = RotaryWidth::kPartial,
     .partial_key = "rotary_pct",
     .theta_key = "rotary_emb_base"},
    {.model_types = "gptj codegen",
     .pairing = kInterleaved,
     .width = RotaryWidth::kRotaryDim,
     .theta_key = ""},
    {.model_types = "roformer", .pairing = kInterleaved, .theta_key = ""},
    {.model_types = "minimax minimax_text_01",
     .width = RotaryWidth::kRotaryDim,
     .theta = 1e6},
    {.model_types = "minimax_m2 minimax_m3 minimax_m3_vl",
     .width = RotaryWidth::kRotaryDim,
     .theta = 5e6,
     .head_dim = 128},
    {.model_types = "wav2vec2_conformer wav2vec2_bert seamless_m4t "
                    "seamless_m4t_v2",
     .theta_key = "rotary_embedding_base",
     .rope_switch = "position_embeddings_type",
     .rope_switch_value = "\"rotary\""},
    {.model_types = "qwen2_vl qwen2_5_vl qwen2_5_omni",
     .theta = 1e6,
     .axes = AxisAssignment::kSectioned,
     .sections = {16, 24, 24}},
    {.model_types = "qwen2_5_omni_talker",
     .theta = 1e6,
     .head_dim = 128,
     .axes = AxisAssignment::kSectioned,
     .sections = {16, 24, 24}},
    {.model_types = "paddleocr_vl",
     .theta = 5e5,
     .head_dim = 128,
     .axes = AxisAssignment::kSectioned,
     .sections = {16, 24, 24}},
    {.model_types = "hunyuan_vl"},
    {.model_types = "qwen3_vl",
     .theta = 5e5,
     .head_dim = 128,
     .axes = AxisAssignment::kInterleaved,
     .sections = {24, 20, 20}},
    {.model_types = "qwen3_vl_moe",
     .theta = 5e5,
     .axes = AxisAssignment::kInterleaved,
     .sections = {24, 20, 20}},
    {.model_types = "qwen3_omni_moe qwen3_omni_moe_talker",
     .theta = 1e6,
     .axes = AxisAssignment::kInterleaved,
     .sections = {24, 20, 20}},
    {.model_types = "cosmos3_edge",
     .theta = 1e8,
     .head_dim = 128,
     .axes = AxisAssignment::kInterleaved,
     .sections = {24, 20, 20}},
    {.model_types = "cohere_compass",
     .axes = AxisAssignment::kInterleaved,
     .sections = {24, 20, 20}},
    // The classes rotate interleaved pairs and write them half-split.
    {.model_types = "deepseek_v3 kimi_k2 kimi_k25 youtu axk1 axk2 "
                    "glm4_moe_lite deepseek_v32 glm_moe_dsa",
     .pairing = kInterleaved,
     .output_pairing = kHalfSplit,
     .width = RotaryWidth::kMla,
     .slice = RotarySlice::kTrailing,
     .softmax_mscale = true},
    {.model_types = "dots3_note",
     .pairing = kInterleaved,
     .output_pairing = kHalfSplit,
     .width = RotaryWidth::kMla,
     .slice = RotarySlice::kTrailing,
     .kinds = {{"indexed_attention", "rope_theta", 8e7, true},
               {"sliding_attention", "swa_rope_theta", 5e4, true}}},
    {.model_types = "longcat_flash",
     .pairing = kInterleaved,
     .output_pairing = kHalfSplit,
     .width = RotaryWidth::kMla,
     .slice = RotarySlice::kTrailing,
     .theta = 1e7,
     .softmax_mscale = true},
    {.model_types = "bailing_hybrid",
     .pairing = kInterleaved,
     .output_pairing = kHalfSplit,
     .width = RotaryWidth::kMla,
     .slice = RotarySlice::kTrailing,
     .theta = 6e6,
     .softmax_mscale = true},
    {.model_types = "mistral4",
     .pairing = kInterleaved,
     .output_pairing = kHalfSplit,
     .width = RotaryWidth::kMla,
     .slice = RotarySlice::kTrailing,
     .softmax_mscale = true,
     .rope_parameters =
         R"({"type":"yarn","factor":128.0,)"
         R"("original_max_position_embeddings":8192,"beta_fast":32.0,)"
         R"("beta_slow":1.0,"mscale_all_dim":1.0,"mscale":1.0,)"
         R"("llama_4_scaling_beta":0.1})"},
    {.model_types = "mistral_large4",
     .pairing = kInterleaved,
     .output_pairing = kHalfSplit,
     .width = RotaryWidth::kMla,
     .slice = RotarySlice::kTrailing,
     .nope = NopeRule::kLayerList,
     .full_every = 4,
     .softmax_mscale = true,
     .rope_parameters =
         R"({"rope_type":"yarn","factor":2048.0,)"
         R"("original_max_position_embeddings":512,"beta_fast":32.0,)"
         R"("beta_slow":1.0,"attention_factor":1.0})"},
    {.model_types = "deepseek_v2",
     .pairing = kInterleaved,
     .width = RotaryWidth::kMla,
     .slice = RotarySlice::kTrailing,
     .softmax_mscale = true},
    {.model_types = "minicpm3 hy_v4",
     .width = RotaryWidth::kMla,
     .slice = RotarySlice::kTrailing,
     .softmax_mscale = true},
    {.model_types = "deepseek_v4",
     .pairing = kInterleaved,
     .width = RotaryWidth::kRotaryDim,
     .slice = RotarySlice::kTrailing,
     .partial = 0.125,
     .head_dim = 512,
     .kinds = {{"main", "rope_theta", 1e4, false},
               {"compress", "compress_rope_theta", 160000, true}}},
    {.model_types = "gemma3 t5gemma2 t5gemma2_decoder",
     .theta = 1e6,
     .head_dim = 256,
     .kinds = {kGlobal, kLocal},
     .full_every = 6},
    {.model_types = "gemma3n",
     .theta = 1e6,
     .head_dim = 256,
     .kinds = {kGlobal, kLocal},
     .full_every = 5},
    {.model_types = "modernbert modernbert_decoder",
     .kinds = {{"full_attention", "global_rope_theta", 160000, true},
               {"sliding_attention", "local_rope_theta", 1e4, true}},
     .full_every = 3,
     .full_first = true},
    {.model_types = "mimo_v2_flash",
     .width = RotaryWidth::kPartial,
     .partial = 0.334,
     .head_dim = 192,
     .kinds = {{"full_attention", "rope_theta", 5e6, true},
               {"sliding_attention", "swa_rope_theta", 1e4, false}}},
    {.model_types = "olmo3",
     .theta = 5e5,
     .kinds = {{"full_attention", "rope_theta", 5e5, true},
               {"sliding_attention", "rope_theta", 5e5, false}},
     .full_every = 4},
    {.model_types = "exaone4 exaone_moe exaone4_5",
     .nope = NopeRule::kFullAttention,
     .full_every = 4},
    {.model_types = "kolibri1",
     .head_dim = 128,
     .nope = NopeRule::kFullAttention,
     .full_every = 5},
    {.model_types = "afmoe",
     .head_dim = 128,
     .nope = NopeRule::kSlidingOnly,
     .full_every = 4},
    {.model_types = "llama4",
     .pairing = kInterleaved,
     .theta = 5e5,
     .head_dim = 128,
     .nope = NopeRule::kLayerList,
     .full_every = 4},
    {.model_types = "smollm3",
     .theta = 2e6,
     .nope = NopeRule::kLayerList,
     .full_every = 4},
};

// Other model types: a configuration that publishes partial_rotary_factor means
// it, although Llama's class would not read it.
constexpr Family kOther = {.width = RotaryWidth::kPartial};

std::string Underscored(absl::string_view model_type) {
  return absl::StrReplaceAll(model_type, {{"-", "_"}, {" ", "_"}});
}

}  // namespace

std::string ModelKey(absl::string_view model_type) {
  return std::string(absl::StripSuffix(Underscored(model_type), "_text"));
}

const Family& FindFamily(absl::string_view model_type, bool* known) {
  *known = true;
  for (const std::string& key :
       {Underscored(model_type), ModelKey(model_type)}) {
    for (const Family& family : kFamilies) {
      for (const absl::string_view type :
           absl::StrSplit(family.model_types, ' ')) {
        if (type == key) return family;
      }
    }
  }
  *known = false;
  return kOther;
}

}  // namespace posenc::core
