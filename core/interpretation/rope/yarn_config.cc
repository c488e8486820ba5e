// ReadYarn() of rope_config.h.

#include <algorithm>
#include <cmath>
#include <string>

#include "core/angle/wide.h"
#include "core/base/error.h"
#include "core/interpretation/provenance.h"
#include "core/interpretation/rope/rope_config.h"
#include "core/rope/scaling.h"

namespace posenc::core::interpretation {
namespace {

// Returns beta_fast or beta_slow, or the default. transformers' code is `value
// or default`, so 0 counts as absent.
double BetaOr(const RopeDict& from, absl::string_view key, double otherwise) {
  const auto beta = from.dict.Number(key);
  if (const ReadingRow* fixed = from.Row(ReadingRule::kFixedBetas);
      fixed != nullptr && beta) {
    from.dict.Assume(key, NumberText(otherwise), std::string(fixed->says));
    return otherwise;
  }
  if (beta && *beta != 0) return *beta;
  if (beta && !from.is_hf()) {
    from.dict.Fail(key, "is 0; ", from.rules.project, " divides by it");
  }
  from.dict.Assume(
      key, NumberText(otherwise),
      beta ? "0; transformers treats it as absent" : DefaultOf(from.rules));
  return otherwise;
}

double ReadFactor(const RopeDict& from, std::int64_t original) {
  const auto ratio = [&](absl::string_view why) {
    return static_cast<double>(RequiredMaximum(from, why)) /
           static_cast<double>(original);
  };
  if (from.by_class() && from.dict.HasNull("factor")) {
    const double factor = ratio("a null factor is derived from it");
    from.dict.Assume("factor", NumberText(factor),
                     "null; max_position_embeddings / original");
    return factor;
  }
  if (from.Row(ReadingRule::kRatioFactor) != nullptr &&
      from.dict.Has("original_max_position_embeddings")) {
    const double factor = ratio("the factor of yarn follows from it");
    const auto given = from.dict.Number("factor");
    if (given && *given != factor) {
      from.dict.Warn("factor", " ", NumberText(*given),
                     " is not read: ", from.rules.project,
                     " takes max_position_embeddings / original, ",
                     NumberText(factor));
    }
    return factor;
  }
  const double factor = RequiredFactor(from);
  WarnOfFactor(from, factor, original);
  return factor;
}

// True if the model has DeepSeek's multi-head latent attention, for which vLLM
// and llama.cpp have separate classes.
bool IsDeepseekClass(const RopeDict& from) {
  return from.family.softmax_mscale || from.family.unit_amplitude ||
         from.dict.Text("type") == "deepseek_yarn" ||
         from.dict.Text("rope_type") == "deepseek_yarn";
}

Wide Ratio(const RopeDict& from, double factor) {
  return YarnMscale(factor, from.dict.Number("mscale").value_or(1)) /
         YarnMscale(factor, from.dict.Number("mscale_all_dim").value_or(0));
}

bool IsTelechats(const RopeDict& from) {
  return from.dict.Text("rope_type")
             .value_or(from.dict.Text("type").value_or("")) == "telechat3-yarn";
}

Wide TelechatAmplitude(double factor) {
  if (!(factor > 0)) return 0;
  return 7 * Log(factor) / 100 + 1;
}

Wide VllmAttentionFactor(const RopeDict& from, double factor) {
  if (from.Row(ReadingRule::kAmplitudePlain) != nullptr) {
    return YarnMscale(factor, 1);
  }
  const bool by_keys = from.Row(ReadingRule::kAmplitudeByKeys) != nullptr;
  const double multiplier =
      by_keys ? 1 : from.dict.Number("attn_factor").value_or(1);
  if (IsDeepseekClass(from)) return Ratio(from, factor) * multiplier;
  if (IsTelechats(from)) {
    // In versions that read attn_factor, vLLM's class for TeleChat takes 1 for
    // a factor below 1.
    return TelechatAmplitude(by_keys ? factor : std::max(factor, 1.0)) *
           multiplier;
  }
  if (!by_keys) {
    return from.dict.Flag("apply_yarn_scaling").value_or(true)
               ? YarnMscale(factor, 1) * multiplier
               : multiplier;
  }
  if (const auto given = from.dict.Number("attention_factor")) return *given;
  const bool pair = from.dict.Number("mscale").value_or(0) != 0 &&
                    from.dict.Number("mscale_all_dim").value_or(0) != 0;
  return pair ? Ratio(from, factor) : YarnMscale(factor, 1);
}

// mscale and mscale_all_dim count only if the file has both keys, whose values
// may be 0. Older versions read neither key.
Wide SglangAttentionFactor(const RopeDict& from, double factor) {
  const bool pair = from.Row(ReadingRule::kAmplitudeMultiplier) == nullptr &&
                    from.dict.Number("mscale").has_value() &&
                    from.dict.Number("mscale_all_dim").has_value();
  const double multiplier = from.dict.Number("attn_factor").value_or(1);
  return multiplier * (pair || IsDeepseekClass(from) ? Ratio(from, factor)
                                                     : YarnMscale(factor, 1));
}

// llama.cpp's converter drops mscale, and keeps mscale_all_dim only for
// Mistral's and DeepSeek's models. The loader therefore takes mscale = 1, or,
// for DeepSeek's models, mscale = mscale_all_dim. The loader also ignores the
// attention_factor or attn_factor of the file. Since December 2025 the
// converter writes this factor as rope.scaling.yarn_attn_factor. The loader
// replaces the value whenever YaRN is on (pull request 17945).
Wide LlamaCppAttentionFactor(const RopeDict& from, double factor) {
  Wide attention_factor = YarnMscale(factor, 1);
  const bool divides = from.Row(ReadingRule::kAmplitudeByAllDim) != nullptr;
  if (divides || from.family.softmax_mscale) {
    const double all_dim = from.dict.Number("mscale_all_dim").value_or(0);
    if (all_dim != 0) {
      attention_factor =
          divides ? attention_factor / YarnMscale(factor, all_dim) : 1;
    }
  }
  return attention_factor;
}

void ReadAttentionFactor(const RopeDict& from, YarnScaling* yarn) {
  const JsonObject& dict = from.dict;
  if (from.rules.attention_factor == YarnAttentionFactor::kTransformers) {
    yarn->attention_factor = dict.Number("attention_factor");
    if (!yarn->attention_factor && IsTelechats(from)) {
      yarn->attention_factor = TelechatAmplitude(yarn->factor).high;
    }
    if (!yarn->attention_factor && from.family.unit_amplitude && !from.nested) {
      yarn->attention_factor = 1;  // the class's default
    }
    if (from.rules.profile == Profile::kExllamav3) {
      // exllamav3 reads mscale and mscale_all_dim only for DeepSeek's models.
      // With llama_4_scaling_beta, a factor of queries replaces the amplitude.
      if (!yarn->attention_factor &&
          dict.Number("llama_4_scaling_beta").value_or(0) != 0) {
        yarn->attention_factor = 1;
      }
      return;
    }
    yarn->mscale = dict.Number("mscale");
    yarn->mscale_all_dim = dict.Number("mscale_all_dim");
    return;
  }
  Wide exact = YarnMscale(yarn->factor, 1);
  if (from.family.unit_amplitude) {
    // The code of this family always rotates by complex numbers of magnitude 1.
    exact = 1;
  } else if (from.rules.attention_factor == YarnAttentionFactor::kVllm) {
    exact = VllmAttentionFactor(from, yarn->factor);
  } else if (from.rules.attention_factor == YarnAttentionFactor::kSglang) {
    exact = SglangAttentionFactor(from, yarn->factor);
  } else if (from.rules.attention_factor == YarnAttentionFactor::kLlamaCpp) {
    exact = LlamaCppAttentionFactor(from, yarn->factor);
  } else if (from.rules.attention_factor == YarnAttentionFactor::kRatio) {
    exact = Ratio(from, yarn->factor);
  }
  const double attention_factor = exact.high;
  if (!(attention_factor > 0 && std::isfinite(attention_factor))) {
    dict.Fail("mscale", "and its neighbours give the amplitude ",
              NumberText(attention_factor), "; amplitudes are finite and > 0");
    return;
  }
  yarn->attention_factor = attention_factor;
}

void ReadTruncation(const RopeDict& from, YarnScaling* yarn) {
  const bool deepseek = from.rules.vllm_modules && IsDeepseekClass(from);
  if (from.rules.truncation == Truncation::kNever) {
    yarn->truncate = false;
  } else if (from.rules.truncation == Truncation::kAlways || deepseek) {
    yarn->truncate = true;
  } else if (from.is_hf() && (from.nested || from.family.merges_dicts())) {
    // transformers looks for `truncate` outside of the entry of a layer type,
    // and never finds it.
    yarn->truncate = true;
    if (from.dict.Flag("truncate") == false) {
      from.dict.Warn("truncate",
                     " false is not read: transformers looks for it in flat "
                     "parameters only");
    }
  } else {
    yarn->truncate = from.dict.Flag("truncate");
    if (!yarn->truncate && from.dict.HasNull("truncate") && from.is_hf()) {
      yarn->truncate = false;
      from.dict.Warn(
          "truncate",
          " is null, and transformers treats it as false; read as false");
    } else if (!yarn->truncate) {
      yarn->truncate = true;
      from.dict.Assume("truncate", "true", DefaultOf(from.rules));
    }
  }
}

// gpt-oss's code asserts that the ramp lies within the pairs.
void CheckGptOssRamp(const RopeDict& from, const YarnScaling& yarn,
                     const ModelRope& rope) {
  const auto [low, high] =
      YarnRampBounds(yarn, *rope.spec.rope_theta, rope.spec.rotary_dim / 2);
  const double last = rope.spec.rotary_dim / 2.0 - 1;
  if (0 < low && low < high && high < last) return;
  from.dict.Fail("beta_fast", "and beta_slow give a ramp from pair ",
                 NumberText(low), " to ", NumberText(high),
                 "; gpt-oss's reference implementation wants 0 < low < high "
                 "< ",
                 NumberText(last));
}

}  // namespace

void ReadYarn(const RopeDict& from, ModelRope* rope) {
  const JsonObject& dict = from.dict;
  YarnScaling yarn;
  yarn.original_max_position_embeddings =
      ReadOriginalMaxPositionEmbeddings(from, from.rules.yarn_original);
  yarn.factor = ReadFactor(from, yarn.original_max_position_embeddings);
  yarn.beta_fast = BetaOr(from, "beta_fast", 32);
  yarn.beta_slow = BetaOr(from, "beta_slow", 1);
  ReadTruncation(from, &yarn);
  ReadAttentionFactor(from, &yarn);
  const bool scaled = yarn.factor > 1;
  if (from.rules.profile == Profile::kGptOss) {
    if (!scaled) return;  // gpt-oss's code then does not scale
    if (yarn.original_max_position_embeddings > 0) {
      CheckGptOssRamp(from, yarn, *rope);
    }
  } else if (from.family.softmax_mscale &&
             from.Row(ReadingRule::kSoftmaxUnscaled) == nullptr) {
    const double all_dim = dict.Number("mscale_all_dim").value_or(0);
    if (all_dim != 0 && scaled) {
      const Wide g = YarnMscale(yarn.factor, all_dim);
      rope->softmax_scale_multiplier = (g * g).high;
    }
  }
  rope->spec.scaling = yarn;
}

}  // namespace posenc::core::interpretation
