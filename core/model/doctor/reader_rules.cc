// The readers and their rules: rows of data.
//
// Read in transformers 4.57 and 5.23, vLLM 0.11 and later, llama.cpp with its
// converter (2026) and mlx-lm 0.32.2; not run.

#include "core/model/doctor/readers.h"
#include "core/model/profile.h"

namespace posenc::core {
namespace {

// Of the 99 model files of mlx-lm 0.32.2 that have rope_theta, these read
// rope_parameters. Gemma 4's configuration is read by its text file.
constexpr char kMlxReadsParameters[] =
    "exaone_moe gemma4 gemma4_text glm_moe_dsa granitemoehybrid laguna lfm2 "
    "lfm2_moe mellum minimax_m3_vl ministral3 mistral4 muse_glimmer muse_spark "
    "olmo_hybrid qwen3 qwen3_5 qwen3_5_moe spark2_5";

}  // namespace

const std::vector<Reader>& Readers() {
  static const auto* const readers = new std::vector<Reader>{
      {"hf", "transformers", "5.23", Profile::kHf, "", true},
      {"vllm", "vLLM", "0.11", Profile::kVllm, "", true},
      {"sglang", "SGLang", "0.5", Profile::kVllm, "", true},
      {"llama_cpp", "llama.cpp", "2026", Profile::kLlamaCpp, "", true},
      {"mlx", "mlx-lm", "0.32.2", Profile::kMlx, "", true},
      {"hf4", "transformers 4", "4.57", Profile::kHf, "", true},
      {"gpt_oss", "gpt-oss's reference implementation", "2025",
       Profile::kGptOss, "gpt_oss", true},
      {"deepseek", "DeepSeek's reference implementation", "2025",
       Profile::kDeepseek, "deepseek", true},
      {"mistral", "Mistral's reference implementation", "1.8",
       Profile::kMistral, "mi", false},
      {"gguf_hf", "transformers' GGUF loader", "5.23", Profile::kHf, "", false},
  };
  return *readers;
}

const std::vector<ReaderRule>& ReaderRules() {
  static const auto* const rules = new std::vector<ReaderRule>{
      {"mlx", Rule::kDropParameters, "", kMlxReadsParameters, 0, "0.32.2", ""},
      {"mlx", Rule::kTopThetaFirst, "", kMlxReadsParameters, 0, "0.32.2", ""},
      {"mlx", Rule::kWholeHead, "glm", "", 0, "0.32.2", ""},
      {"mlx", Rule::kDefaultPartial, "phi", "", 0.4, "0.32.2", ""},
      {"mlx", Rule::kDefaultTheta,
       "qwen2 qwen2_moe minicpm minicpm3 "
       "gemma3_text exaone_moe glm4_moe_lite",
       "", 1e6, "0.32.2", ""},
      {"mlx", Rule::kDefaultTheta, "starcoder2 qwen3_5", "", 1e5, "0.32.2", ""},
      {"mlx", Rule::kDefaultTheta, "cohere", "", 8e6, "0.32.2", ""},
      {"mlx", Rule::kDefaultTheta, "cohere2", "", 5e4, "0.32.2", ""},
      {"mlx", Rule::kDefaultTheta, "falcon_h1", "", 1e11, "0.32.2", ""},
      {"mlx", Rule::kDefaultTheta, "bitnet", "", 1e4, "0.32.2", ""},
      {"hf4", Rule::kDropParameters, "", "", 0, "4.0", "5.0"},
      {"hf4", Rule::kTopThetaFirst, "", "", 0, "4.0", "5.0"},
      {"llama_cpp", Rule::kParametersFirst, "", "", 0, "2026", ""},
      // Its converter writes no rope.freq_base then.
      {"llama_cpp", Rule::kDefaultTheta,
       "mixtral bitnet csm qwen2_vl qwen2_5_vl cohere gte", "", 1e4, "2026",
       ""},
  };
  return *rules;
}

bool CannotRun(const Reader& reader, const std::string& model_type) {
  // Types that came with transformers 5, and of which the classes of
  // transformers 4 know nothing.
  constexpr char kSinceTransformers5[] =
      "afmoe cosmos3_edge deepseek_v4 exaone_moe gemma4 gemma4_text "
      "gemma4_unified glm4_moe_lite glm_moe_dsa hy_v3 laguna lfm3 mellum "
      "minimax_m3_vl ministral3 mistral4 muse_glimmer muse_spark nanochat "
      "olmo_hybrid qwen3_5 qwen3_5_moe qwen4_exp solar_open spark2_5 step3p5 "
      "step3p7 iquestcoder cohere2_moe dots3";
  // Types that mlx-lm 0.32.2 has no model file for.
  constexpr char kNotInMlx[] =
      "lfm3 moonshine moshi mimi esm roformer modernbert persimmon fuyu "
      "codegen "
      "wav2vec2-conformer wav2vec2_conformer qwen4_exp deepseek_v4 chameleon "
      "cwm bamba minimax_m2 falcon arcee llava glm4v glm4v_moe qwen2_5_vl "
      "ernie4_5_vl ernie4_5_moe_vl";
  if (reader.id == "hf4") return IsAmong(model_type, kSinceTransformers5);
  if (reader.id == "mlx") return IsAmong(model_type, kNotInMlx);
  return false;
}

}  // namespace posenc::core
