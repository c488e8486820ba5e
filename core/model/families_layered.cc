// Classes with parameters for each type of layer, or with a dict of their own
// where a configuration has none.

#include "core/model/family_tables.h"

namespace posenc::core {
namespace {

constexpr Pairing kInterleaved = Pairing::kInterleaved;
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

constexpr Family kFamilies[] = {
    {.model_types = "cwm",
     .theta = 1e6,
     .head_dim = 128,
     .rope_parameters =
         R"({"rope_theta":1000000.0,"factor":16.0,"high_freq_factor":4.0,)"
         R"("low_freq_factor":1.0,)"
         R"("original_max_position_embeddings":8192,"rope_type":"llama3"})"},
    {.model_types = "apertus",
     .theta = 12e6,
     .rope_parameters =
         R"({"rope_type":"llama3","rope_theta":12000000.0,"factor":8.0,)"
         R"("original_max_position_embeddings":8192,"low_freq_factor":1.0,)"
         R"("high_freq_factor":4.0})"},
    {.model_types = "higgs_audio_v2",
     .head_dim = 128,
     .rope_parameters =
         R"({"rope_theta":500000.0,"factor":32.0,"high_freq_factor":0.5,)"
         R"("low_freq_factor":0.125,)"
         R"("original_max_position_embeddings":1024,"rope_type":"llama3"})"},
    {.model_types = "ministral3",
     .head_dim = 128,
     .rope_parameters =
         R"({"type":"yarn","rope_theta":1000000.0,"factor":16.0,)"
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
    {.model_types = "moonshine_streaming",
     .pairing = kInterleaved,
     .width = RotaryWidth::kPartial,
     .rope_parameters = R"({"rope_type":"default","rope_theta":10000.0,)"
                        R"("partial_rotary_factor":0.8})"},
    {.model_types = "laguna",
     .width = RotaryWidth::kPartial,
     .head_dim = 128,
     .full_every = 1,
     .dicts = DictRule::kNested,
     .rope_parameters =
         R"({"full_attention":{"rope_type":"default","rope_theta":500000.0,)"
         R"("partial_rotary_factor":0.5},"sliding_attention":{)"
         R"("rope_type":"default","rope_theta":10000.0,)"
         R"("partial_rotary_factor":1.0}})"},
    {.model_types = "mellum",
     .width = RotaryWidth::kPartial,
     .head_dim = 128,
     .full_every = 1,
     .dicts = DictRule::kNested,
     .rope_parameters =
         R"({"full_attention":{"rope_type":"default","rope_theta":500000.0},)"
         R"("sliding_attention":{"rope_type":"default","rope_theta":10000.0}})"},
    {.model_types = "zaya",
     .width = RotaryWidth::kPartial,
     .head_dim = 128,
     .dicts = DictRule::kNested,
     .rope_parameters =
         R"({"hybrid":{"rope_type":"default","rope_theta":5000000.0,)"
         R"("partial_rotary_factor":0.5},"hybrid_sliding":{)"
         R"("rope_type":"default","rope_theta":10000.0,)"
         R"("partial_rotary_factor":0.5}})"},
    {.model_types = "step3p5 step3p7",
     .width = RotaryWidth::kPartial,
     .head_dim = 128,
     .kinds = {{"full_attention", "rope_theta", 1e4, true},
               {"sliding_attention", "rope_theta", 1e4, false}},
     .dicts = DictRule::kMerged},
    {.model_types = "gemma4 gemma4_unified diffusion_gemma",
     .head_dim = 256,
     .global_head_dim = 512,
     .full_every = 6,
     .dicts = DictRule::kNested,
     .rope_parameters = kGemma4Rope},
    {.model_types = "embedding_gemma2",
     .head_dim = 256,
     .global_head_dim = 512,
     .full_every = 6,
     .dicts = DictRule::kNested,
     .rope_parameters =
         R"({"sliding_attention":{"rope_type":"default",)"
         R"("rope_theta":10000.0},"full_attention":{"rope_type":"default",)"
         R"("rope_theta":1000000.0}})"},
    {.model_types = "beam",
     .head_dim = 128,
     .full_every = 6,
     .dicts = DictRule::kNested,
     .rope_parameters = R"({"sliding_attention":{"rope_type":"default",)"
                        R"("rope_theta":10000.0},"full_attention":null})"},
    {.model_types = "lfm3",
     .theta = 1e6,
     .head_dim = 128,
     .dicts = DictRule::kNested,
     .rope_parameters =
         R"({"sliding_attention":{"rope_type":"default",)"
         R"("rope_theta":10000.0},)"
         R"("full_attention":{"rope_type":"proportional",)"
         R"("rope_theta":1000000.0,"partial_rotary_factor":0.5}})"},
    {.model_types = "deepseek_v4",
     .pairing = kInterleaved,
     .width = RotaryWidth::kRotaryDim,
     .slice = RotarySlice::kTrailing,
     .partial = 0.125,
     .head_dim = 512,
     .kinds = {{"main", "rope_theta", 1e4, false},
               {"compress", "compress_rope_theta", 160000, true}},
     .dicts = DictRule::kSplit},
    {.model_types = "gemma3 t5gemma2 t5gemma2_decoder t5gemma2_encoder",
     .theta = 1e6,
     .head_dim = 256,
     .kinds = {kGlobal, kLocal},
     .full_every = 6,
     .dicts = DictRule::kMerged},
    {.model_types = "gemma3n",
     .theta = 1e6,
     .head_dim = 256,
     .kinds = {kGlobal, kLocal},
     .full_every = 5,
     .dicts = DictRule::kMerged},
    {.model_types = "modernbert modernbert_decoder",
     .kinds = {{"full_attention", "global_rope_theta", 160000, true},
               {"sliding_attention", "local_rope_theta", 1e4, true}},
     .full_every = 3,
     .full_first = true,
     .dicts = DictRule::kTyped},
    {.model_types = "mimo_v2_flash",
     .width = RotaryWidth::kPartial,
     .partial = 0.334,
     .head_dim = 192,
     .kinds = {{"full_attention", "rope_theta", 5e6, true},
               {"sliding_attention", "swa_rope_theta", 1e4, false}},
     .dicts = DictRule::kNested,
     .rope_parameters =
         R"({"full_attention":{"rope_type":"default",)"
         R"("rope_theta":5000000.0,"partial_rotary_factor":0.334},)"
         R"("sliding_attention":{"rope_type":"default",)"
         R"("rope_theta":10000.0,"partial_rotary_factor":0.334}})"},
    {.model_types = "olmo3",
     .theta = 5e5,
     .kinds = {{"full_attention", "rope_theta", 5e5, true},
               {"sliding_attention", "", 5e5, false}},
     .full_every = 4,
     .dicts = DictRule::kMerged},
    {.model_types = "muse_spark",
     .head_dim = 64,
     .nope = NopeRule::kFromLast,
     .full_every = 4,
     .rope_parameters = R"({"rope_type":"default","rope_theta":500000.0})"},
    {.model_types = "nemotron3_5_transcribe_asr_audio "
                    "nemotron3_5_transcribe_word_timestamp",
     .width = RotaryWidth::kPartial,
     .rope_parameters = R"({"rope_type":"default","rope_theta":10000.0,)"
                        R"("partial_rotary_factor":0.5})"},
    {.model_types = "ultrabert",
     .full_every = 3,
     .dicts = DictRule::kNested,
     .rope_parameters = R"({"sliding_attention":{"rope_type":"default",)"
                        R"("rope_theta":10000.0},)"
                        R"("full_attention":{"rope_type":"default",)"
                        R"("rope_theta":2560000.0}})"},
    {.model_types = "neomme",
     .width = RotaryWidth::kPartial,
     .head_dim = 64,
     .kinds = {{"full_attention", "rope_theta", 1e6, true, 0.25},
               {"sliding_attention", "rope_theta", 1e4, true, 1}},
     .full_every = 6,
     .dicts = DictRule::kNested},
};

}  // namespace

absl::Span<const Family> LayeredFamilies() { return kFamilies; }

}  // namespace posenc::core
