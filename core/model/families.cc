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

// Defaults are those of transformers' configuration classes.
constexpr Family kFamilies[] = {
    {.model_types =
         "llama mistral ministral ministral3 qwen2 qwen2_moe qwen3 qwen3_moe "
         "gemma gemma2 olmo olmo2 olmoe granite granitemoe granitemoeshared "
         "granitemoehybrid starcoder2 internlm2 internlm3 arcee aria chameleon "
         "csm moshi mimi diffllama falcon falcon_h1 jamba lfm2 lfm2_moe lfm3 "
         "seed_oss dots1 doge hunyuan_v1_moe hunyuan_v1_dense dbrx zamba2 "
         "qwen2_audio mllama esm flex_olmo vaultgemma emu3 idefics3 smolvlm"},
    {.model_types = "mixtral cwm phimoe", .theta = 1e6},
    {.model_types = "bitnet", .theta = 5e5},
    {.model_types = "apertus", .theta = 12e6},
    {.model_types = "gpt_oss", .theta = 150000, .head_dim = 64},
    {.model_types = "nanochat", .reverse = true},
    {.model_types = "jetmoe", .head_dim_key = "kv_channels"},
    {.model_types = "cohere helium", .pairing = kInterleaved},
    {.model_types = "cohere2",
     .pairing = kInterleaved,
     .nope = NopeRule::kFullAttention,
     .full_every = 4},
    {.model_types = "ernie4_5 ernie4_5_moe",
     .pairing = kInterleaved,
     .theta = 5e5},
    {.model_types = "ernie4_5_vl ernie4_5_vl_moe ernie4_5_moe_vl",
     .pairing = kInterleaved,
     .theta = 5e5,
     .axes = AxisAssignment::kAlternatingTail},
    {.model_types = "glm glm4 glm4v glm_ocr",
     .pairing = kInterleaved,
     .width = RotaryWidth::kPartial,
     .partial = 0.5},
    {.model_types = "glm4_moe glm4v_moe bamba phi persimmon fuyu nemotron "
                    "recurrent_gemma",
     .width = RotaryWidth::kPartial,
     .partial = 0.5},
    {.model_types = "stablelm qwen3_next",
     .width = RotaryWidth::kPartial,
     .partial = 0.25},
    {.model_types = "qwen3_5 qwen3_5_moe",
     .width = RotaryWidth::kPartial,
     .partial = 0.25,
     .axes = AxisAssignment::kInterleaved},
    {.model_types = "phi3 phi3_v phi4_multimodal phi4mm",
     .width = RotaryWidth::kPartial,
     .yarn_is_longrope = true},
    {.model_types = "moonshine",
     .pairing = kInterleaved,
     .width = RotaryWidth::kPartial,
     .partial = 0.9},
    {.model_types = "laguna gemma4", .width = RotaryWidth::kPartial},
    {.model_types = "gpt_neox gpt_neox_japanese",
     .width = RotaryWidth::kPartial,
     .partial = 0.25,
     .partial_key = "rotary_pct",
     .theta_key = "rotary_emb_base"},
    {.model_types = "gptj codegen",
     .pairing = kInterleaved,
     .width = RotaryWidth::kRotaryDim,
     .theta_key = ""},
    {.model_types = "roformer", .pairing = kInterleaved, .theta_key = ""},
    {.model_types = "minimax minimax_m2 minimax_text_01",
     .width = RotaryWidth::kRotaryDim,
     .theta = 1e6},
    {.model_types = "wav2vec2_conformer wav2vec2_bert",
     .theta_key = "rotary_embedding_base"},
    {.model_types = "qwen2_vl qwen2_5_vl qwen2_5_omni hunyuan_vl paddleocr_vl",
     .axes = AxisAssignment::kSectioned},
    {.model_types = "qwen3_vl qwen3_vl_moe qwen3_omni_moe",
     .axes = AxisAssignment::kInterleaved},
    // Rotates interleaved pairs and leaves them half-split.
    {.model_types = "deepseek_v3 deepseek_v32 kimi_k2 kimi_k25 longcat_flash "
                    "mistral4 glm4_moe_lite youtu",
     .pairing = kInterleaved,
     .output_pairing = kHalfSplit,
     .width = RotaryWidth::kMla,
     .slice = RotarySlice::kTrailing,
     .softmax_mscale = true},
    {.model_types = "deepseek_v2",
     .pairing = kInterleaved,
     .width = RotaryWidth::kMla,
     .slice = RotarySlice::kTrailing,
     .softmax_mscale = true},
    {.model_types = "minicpm3",
     .width = RotaryWidth::kMla,
     .slice = RotarySlice::kTrailing},
    {.model_types = "deepseek_v4",
     .pairing = kInterleaved,
     .width = RotaryWidth::kPartial,
     .slice = RotarySlice::kTrailing,
     .partial = 0.125,
     .kinds = {{"main", "rope_theta", 1e4, false},
               {"compress", "compress_rope_theta", 160000, true}}},
    {.model_types = "gemma3",
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
               {"sliding_attention", "local_rope_theta", 1e4, false}},
     .full_every = 3,
     .full_first = true},
    {.model_types = "mimo_v2_flash",
     .width = RotaryWidth::kPartial,
     .kinds = {{"full_attention", "rope_theta", 1e4, true},
               {"sliding_attention", "swa_rope_theta", 1e4, false}}},
    {.model_types = "olmo3",
     .theta = 5e5,
     .kinds = {{"full_attention", "rope_theta", 5e5, true},
               {"sliding_attention", "rope_theta", 5e5, false}},
     .full_every = 4},
    {.model_types = "exaone4",
     .nope = NopeRule::kFullAttention,
     .full_every = 4},
    {.model_types = "llama4",
     .pairing = kInterleaved,
     .theta = 5e5,
     .nope = NopeRule::kLayerList,
     .full_every = 4},
    {.model_types = "smollm3",
     .theta = 2e6,
     .nope = NopeRule::kLayerList,
     .full_every = 4},
};

// A config that publishes partial_rotary_factor means it.
constexpr Family kOther = {.width = RotaryWidth::kPartial};

}  // namespace

const Family& FindFamily(absl::string_view model_type, bool* known) {
  const std::string name =
      absl::StrReplaceAll(model_type, {{"-", "_"}, {" ", "_"}});
  *known = true;
  for (const absl::string_view key :
       {absl::string_view(name), absl::StripSuffix(name, "_text")}) {
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
