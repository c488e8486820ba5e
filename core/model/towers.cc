#include "core/model/towers.h"

#include "core/model/profile.h"

namespace posenc::core {
namespace {

constexpr Pairing kInterleaved = Pairing::kInterleaved;

constexpr Tower kTowers[] = {
    {.model_types = "qwen2_vl_vision",
     .parents = "qwen2_vl colqwen2",
     .width_key = "embed_dim",
     .width = 1280,
     .heads_key = "num_heads",
     .merge = 2,
     .merge_key = "spatial_merge_size"},
    {.model_types = "qwen2_5_vl_vision qwen2_5_omni_vision_encoder "
                    "exaone4_5_vision",
     .parents = "qwen2_5_vl hyperclovax_vision_v2 qwen2_5_omni "
                "qwen2_5_omni_thinker exaone4_5",
     .width = 3584,
     .heads_key = "num_heads",
     .merge = 2,
     .merge_key = "spatial_merge_size"},
    {.model_types = "qwen3_vl_vision qwen3_vl_moe_vision qwen3_5_vision "
                    "qwen3_5_moe_vision qwen3_omni_moe_vision_encoder "
                    "qwen4_exp_vision cohere_compass_vision",
     .parents = "qwen3_vl qwen3_vl_moe qwen3_5 qwen3_5_moe qwen3_omni_moe "
                "qwen3_omni_moe_thinker qwen4_exp cohere_compass cosmos3_omni",
     .width = 1152,
     .heads_key = "num_heads",
     .merge = 2,
     .merge_key = "spatial_merge_size"},
    {.model_types = "ernie4_5_vl_moe_vision",
     .parents = "ernie4_5_vl_moe",
     .width = 1280,
     .heads_key = "num_heads",
     .merge = 2,
     .merge_key = "spatial_merge_size"},
    {.model_types = "glm4v_vision glm4v_moe_vision",
     .parents = "glm4v glm4v_moe glm46v glmga",
     .width = 1536,
     .heads_key = "num_heads",
     .heads = 12,
     .merge = 2,
     .merge_key = "spatial_merge_size"},
    {.model_types = "glm5_next_vision glm_ocr_vision",
     .parents = "glm5_next glm_ocr",
     .width = 1024,
     .heads_key = "num_heads",
     .merge = 2,
     .merge_key = "spatial_merge_size"},
    {.model_types = "dots3_note_vision_encoder",
     .parents = "dots3_note",
     .width = 1536,
     .heads = 24,
     .merge = 2,
     .merge_key = "spatial_merge_size"},
    {.model_types = "lfm3_vl_vision",
     .parents = "lfm3_vl",
     .theta = 1e6,
     .width = 1024,
     .merge = 2,
     .merge_key = "spatial_merge_size"},
    {.model_types = "video_llama_3_vision",
     .parents = "video_llama_3",
     .width = 768,
     .heads = 12,
     .merge = 2,
     .warning = "the class is told merge_size with each image (1) and video "
                "(2); positions are built for videos unless merge_size is set"},
    {.model_types = "paddleocr_vl_vision",
     .parents = "paddleocr_vl",
     .width = 1152},
    {.model_types = "mlcd_vision_model mlcd",
     .width = 1664,
     .warning = "the class token turns by learned angles, class_pos_emb, which "
                "the configuration does not hold; this is of the patches"},
    {.model_types = "minimax_m3_vl_vision",
     .parents = "minimax_m3_vl",
     .axes = "thw",
     .pair_axes = "thw",
     .width = 1280,
     .merge = 2,
     .merge_key = "spatial_merge_size"},
    {.model_types = "kimi_k25_vision",
     .parents = "kimi_k25",
     .pair_axes = "wh",
     .alternating = true,
     .width = 1152},
    // Kimi-VL's own code, before transformers' class, pairs neighbours.
    {.model_types = "moonvit",
     .parents = "kimi_vl",
     .pairing = kInterleaved,
     .pair_axes = "wh",
     .alternating = true,
     .width = 1152},
    {.model_types = "dots_vit",
     .parents = "dots_ocr",
     .width_key = "embed_dim",
     .width = 1536,
     .heads = 12,
     .merge = 2,
     .merge_key = "spatial_merge_size"},
    {.model_types = "step3p5_vision",
     .parents = "step3p7 step3p5",
     .pair_axes = "wh",
     .width = 1536},
    // These flip their position ids, so that width comes first.
    {.model_types = "muse_glimmer_vision muse_spark_vision",
     .parents = "muse_glimmer muse_spark",
     .axes = "wh",
     .pair_axes = "wh",
     .width = 1536,
     .first = 1},
    {.model_types = "inkling2_vision",
     .parents = "inkling2",
     .pairing = kInterleaved,
     .pair_axes = "wh",
     .width = 1024,
     .merge = 2,
     .merge_key = "spatial_merge_size",
     .first = 1,
     .leading = 1},
    {.model_types = "pixtral",
     .default_of = "mistral3 lighton_ocr mistral_large4",
     .frequencies = TowerFrequencies::kShared,
     .width = 1024},
    {.model_types = "gemma4_vision",
     .parents = "gemma4 diffusion_gemma",
     .halves_per_axis = true,
     .axes = "wh",
     .pair_axes = "wh",
     .theta = 100,
     .width = 768,
     .heads = 12,
     .head_dim = 64},
    {.model_types = "llama4_vision_model",
     .parents = "llama4",
     .pairing = kInterleaved,
     .axes = "wh",
     .pair_axes = "wh",
     .dict = TowerDict::kThetaOnly,
     .reads_head_dim = false,
     .width = 768,
     .first = 1,
     .trailing = 1},
    {.model_types = "sam2_video edgetam_video sam3_tracker_video",
     .pairing = kInterleaved,
     .axes = "wh",
     .pair_axes = "wh",
     .reads_head_dim = false,
     .width_key = "memory_attention_hidden_size",
     .width = 256,
     .heads_key = "memory_attention_num_attention_heads",
     .heads = 1,
     .divisor_key = "memory_attention_downsample_rate"},
    {.model_types = "sam3_vit_model",
     .default_of = "sam3_vision_model sam3 sam3_lite_text sam3_tracker "
                   "sam3_tracker_video sam3_video",
     .pairing = kInterleaved,
     .axes = "wh",
     .pair_axes = "wh",
     .width = 1024,
     .window = 24},
    {.model_types = "dinov3_vit",
     .default_of = "chmv2",
     .frequencies = TowerFrequencies::kUnitSteps,
     .theta = 100,
     .dict = TowerDict::kNone,
     .reads_head_dim = false,
     .width = 384,
     .heads = 6,
     .centers = true},
    {.model_types = "sapiens2",
     .frequencies = TowerFrequencies::kUnitSteps,
     .theta = 100,
     .dict = TowerDict::kNone,
     .reads_head_dim = false,
     .width = 1024,
     .centers = true},
    {.model_types = "eomt_dinov3",
     .frequencies = TowerFrequencies::kUnitSteps,
     .theta = 100,
     .reads_head_dim = false,
     .width = 1024,
     .centers = true},
    {.model_types = "efficientloftr",
     .pairing = kInterleaved,
     .frequencies = TowerFrequencies::kOfWidth,
     .alternating = true,
     .dict = TowerDict::kThetaOnly,
     .width = 256,
     .heads = 8,
     .first = 1},
};

// Encoders of images, of videos' frames and of sound whose tokens have one
// position.
constexpr absl::string_view kSequenceTowers =
    "deepseek_ocr2_encoder pe_video_encoder pe_audio_encoder "
    "pe_audio_video_encoder dia_encoder dots3_note_audio_encoder "
    "glmasr_encoder lasr_encoder mimi mimi_encoder "
    "nemotron3_5_transcribe_asr_audio nemotron3_diarization_audio "
    "voxtral_realtime_encoder pocket_tts_audio_tokenizer "
    "pocket_tts_audio_tokenizer_encoder wav2vec2-conformer wav2vec2-bert "
    "seamless_m4t seamless_m4t_v2 moonshine_streaming_encoder";

}  // namespace

const Tower* FindTower(absl::string_view model_type) {
  if (model_type.empty()) return nullptr;
  for (const Tower& tower : kTowers) {
    if (IsAmong(model_type, tower.model_types)) return &tower;
  }
  return nullptr;
}

const Tower* FindTowerOfParent(absl::string_view parent, bool typed) {
  if (parent.empty()) return nullptr;
  for (const Tower& tower : kTowers) {
    if (IsAmong(parent, tower.parents)) return &tower;
    if (!typed && IsAmong(parent, tower.default_of)) return &tower;
  }
  return nullptr;
}

bool IsSequenceTower(absl::string_view model_type) {
  return !model_type.empty() && IsAmong(model_type, kSequenceTowers);
}

bool IsNoRotation(absl::string_view model_type, absl::string_view* why) {
  if (model_type != "vjepa2") return false;
  *why =
      "tiles its table over interleaved pairs, so that the two channels of a "
      "pair turn by different angles: no rotation has such a table";
  return true;
}

}  // namespace posenc::core
