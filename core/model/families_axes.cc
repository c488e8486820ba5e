// Classes whose tokens have several position axes (M-RoPE).

#include "core/model/family_tables.h"

namespace posenc::core {
namespace {

constexpr Pairing kInterleaved = Pairing::kInterleaved;

constexpr Family kFamilies[] = {
    {.model_types = "ernie4_5_vl ernie4_5_vl_moe ernie4_5_moe_vl",
     .pairing = kInterleaved,
     .theta = 5e5,
     .axes = AxisAssignment::kAlternatingTail,
     .sections = {22, 22, 20},
     .rope_types = "default"},
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
    {.model_types = "qwen3_omni_moe",
     .theta = 1e6,
     .axes = AxisAssignment::kInterleaved,
     .sections = {24, 20, 20}},
    {.model_types = "qwen3_omni_moe_talker",
     .axes = AxisAssignment::kInterleaved,
     .sections = {24, 20, 20}},
    {.model_types = "cosmos3_edge",
     .theta = 1e8,
     .head_dim = 128,
     .axes = AxisAssignment::kInterleaved,
     .sections = {24, 20, 20},
     .rope_parameters = R"({"rope_type":"default","rope_theta":100000000.0,)"
                        R"("mrope_section":[24,20,20]})",
     .rope_types = "default"},
    {.model_types = "cohere_compass",
     .axes = AxisAssignment::kInterleaved,
     .sections = {24, 20, 20},
     .dicts = DictRule::kNested},
};

}  // namespace

absl::Span<const Family> MultiAxisFamilies() { return kFamilies; }

}  // namespace posenc::core
