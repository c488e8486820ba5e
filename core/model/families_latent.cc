// Multi-head latent attention: the classes rotate the last qk_rope_head_dim
// channels of a head, and most write interleaved pairs half-split.

#include "core/model/family_tables.h"

namespace posenc::core {
namespace {

constexpr Pairing kInterleaved = Pairing::kInterleaved;
constexpr Pairing kHalfSplit = Pairing::kHalfSplit;

constexpr Family kFamilies[] = {
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
     .theta = 8e7,
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
         R"({"type":"yarn","rope_theta":10000.0,"factor":128.0,)"
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
         R"({"rope_type":"yarn","rope_theta":10000.0,"factor":2048.0,)"
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
};

}  // namespace

absl::Span<const Family> LatentFamilies() { return kFamilies; }

}  // namespace posenc::core
