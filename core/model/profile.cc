#include "core/model/profile.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace posenc::core {
namespace {

constexpr ProfileRules kRules[] = {
    {.profile = Profile::kHf,
     .project = "transformers",
     .rope_types = "default linear dynamic yarn longrope llama3 proportional",
     .truncation = Truncation::kByKey,
     .attention_factor = YarnAttentionFactor::kTransformers,
     .longrope = LongRopeChoice::kPerLength,
     .yarn_original = -1,
     .llama3_original = -1,
     .null_factor = true,
     .oldest = "4.57",
     .newest = "5.23.0"},
    // vLLM reads configurations through transformers' classes, which fill in
    // the lengths.
    {.profile = Profile::kVllm,
     .project = "vLLM",
     .rope_types = "default linear ntk dynamic yarn deepseek_yarn longrope "
                   "llama3 proportional",
     .truncation = Truncation::kByKey,
     .attention_factor = YarnAttentionFactor::kVllm,
     .longrope = LongRopeChoice::kOnce,
     .yarn_original = -1,
     .llama3_original = -1,
     .null_factor = true,
     .vllm_modules = true,
     .oldest = "0.11.0",
     .newest = "0.33.0"},
    // As vLLM, through transformers' classes.
    {.profile = kSglang,
     .project = "SGLang",
     .rope_types = "default linear dynamic yarn deepseek_yarn longrope llama3 "
                   "proportional",
     .truncation = Truncation::kByKey,
     .attention_factor = YarnAttentionFactor::kSglang,
     .longrope = LongRopeChoice::kOnce,
     .yarn_original = -1,
     .llama3_original = -1,
     .null_factor = true,
     .vllm_modules = true},
    {.profile = Profile::kLlamaCpp,
     .project = "llama.cpp",
     .rope_types = "default linear dynamic yarn longrope llama3 proportional",
     .truncation = Truncation::kAlways,
     .attention_factor = YarnAttentionFactor::kLlamaCpp,
     .longrope = LongRopeChoice::kOnce,
     .yarn_original = 0,
     .llama3_original = 8192,
     .llama3_defaults = true},
    {.profile = Profile::kGptOss,
     .project = "gpt-oss's reference implementation",
     .rope_types = "default yarn",
     .model_prefix = "gpt_oss",
     .truncation = Truncation::kNever,
     .attention_factor = YarnAttentionFactor::kPlain,
     .longrope = LongRopeChoice::kPerLength,
     .yarn_original = 4096},
    {.profile = Profile::kDeepseek,
     .project = "DeepSeek's reference implementation",
     .rope_types = "default linear dynamic yarn",
     .model_prefix = "deepseek",
     .truncation = Truncation::kAlways,
     .attention_factor = YarnAttentionFactor::kRatio,
     .longrope = LongRopeChoice::kPerLength,
     .yarn_original = 4096},
    {.profile = Profile::kMistral,
     .project = "Mistral's reference implementation",
     .rope_types = "default yarn",
     .model_prefix = "mi",  // mistral, ministral, mixtral
     .truncation = Truncation::kAlways,
     .attention_factor = YarnAttentionFactor::kTransformers,
     .longrope = LongRopeChoice::kPerLength,
     .yarn_original = 0},
    {.profile = Profile::kMlx,
     .project = "mlx-lm",
     .rope_types = "default linear yarn longrope llama3",
     .truncation = Truncation::kAlways,
     .attention_factor = YarnAttentionFactor::kRatio,
     .longrope = LongRopeChoice::kAlwaysLong,
     .yarn_original = 4096,
     .llama3_original = 8192,
     .llama3_defaults = true,
     .oldest = "0.29.1",
     .newest = "0.32.2"},
};

}  // namespace

const ProfileRules& RulesOf(Profile profile) {
  for (const ProfileRules& rules : kRules) {
    if (rules.profile == profile) return rules;
  }
  return kRules[0];
}

ProfileRules RulesFor(const ProfileVersion& reader) {
  ProfileRules rules = RulesOf(reader.profile);
  rules.version = reader.version;
  return rules;
}

const ReadingRow* FindReadingRow(const ProfileRules& rules,
                                 absl::string_view model_type,
                                 ReadingRule rule) {
  return FindReadingRow(rules.profile, rules.version, model_type, rule);
}

std::string KnownTypes(const ProfileRules& rules,
                       absl::string_view model_type) {
  std::string types(rules.rope_types);
  for (const ReadingRow& row : ReadingRows()) {
    if (row.rule == ReadingRule::kKnowsType && row.reader == rules.profile &&
        IsSince(rules.version, row.since) &&
        (row.families.empty() || IsAmong(model_type, row.families))) {
      absl::StrAppend(&types, " ", row.what);
    }
  }
  return types;
}

bool IsAmong(absl::string_view name, absl::string_view names) {
  for (const absl::string_view one : absl::StrSplit(names, ' ')) {
    if (one == name) return true;
  }
  return false;
}

}  // namespace posenc::core
