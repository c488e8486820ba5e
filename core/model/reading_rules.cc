#include "core/model/reading_rules.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/error.h"
#include "core/model/profile.h"

namespace posenc::core {
namespace {

constexpr Profile kHf = Profile::kHf;
constexpr Profile kVllm = Profile::kVllm;
constexpr Profile kLlamaCpp = Profile::kLlamaCpp;
constexpr Profile kMlx = Profile::kMlx;

// mlx-lm's classes that call the plain rotation.
constexpr char kMlxUnscaled[] =
    "cohere cohere2 dbrx gemma gemma2 gemma3n glm glm4 glm4_moe gpt_neox "
    "granitemoehybrid helium lfm2 lfm2_moe minimax minimax_m2 mixtral "
    "mimo_v2_flash muse_glimmer muse_spark olmo olmo_hybrid phi qwen2_moe "
    "qwen3_moe qwen3_vl_moe recurrent_gemma stablelm starcoder2 ernie4_5 "
    "ernie4_5_moe";

constexpr ReadingRow kRows[] = {
    {kHf, "", "", "5.0", ReadingRule::kParametersUnread,
     "reads rope_theta and rope_scaling, not rope_parameters"},
    {kHf, "", "5.0", "", ReadingRule::kScalingReplaces,
     "reads rope_scaling before rope_parameters"},

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
    {kVllm, "", "0.30.0", "", ReadingRule::kKnowsType,
     "reads telechat3-yarn as yarn with attention_factor 0.07 ln s + 1",
     "telechat3-yarn"},

    {kLlamaCpp, "", "", "", ReadingRule::kParametersReplace,
     "reads rope_parameters before rope_scaling"},

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
    {kMlx, "", "", "", ReadingRule::kParametersUnread,
     "reads rope_theta and rope_scaling, not rope_parameters"},
    {kMlx, "", "", "", ReadingRule::kTypeFirst, "reads type before rope_type"},
    {kMlx, "", "0.30.0", "", ReadingRule::kKnowsType,
     "knows its own names of yarn", "deepseek_yarn telechat3-yarn"},
    {kMlx, "", "0.31.2", "", ReadingRule::kKnowsType, "knows proportional",
     "proportional"},
    {kMlx, "", "0.32.0", "", ReadingRule::kKnowsType, "knows dynamic",
     "dynamic"},
    {kMlx, "glm", "", "", ReadingRule::kWholeHead, "rotates the whole head"},
    {kMlx, kMlxUnscaled, "", "", ReadingRule::kUnscaled, "does not scale"},
    {kMlx,
     "apertus dots1 ernie4_5 ernie4_5_moe exaone4 glm4 glm4_moe granite "
     "granitemoe helium hunyuan_v1_moe llama4 longcat_flash mimo_v2_flash "
     "minimax minimax_m2 olmo3 qwen3 qwen3_vl qwen3_moe qwen3_vl_moe "
     "qwen3_next recurrent_gemma solar_open stablelm ministral3 mellum "
     "muse_spark glm_moe_dsa",
     "", "", ReadingRule::kNeedsBase, "fails without a rope_theta"},
    {kMlx,
     "qwen2 qwen2_moe qwen2_vl qwen2_5_vl mixtral lfm2 lfm2_moe exaone_moe "
     "minicpm3 gemma3 glm4_moe_lite",
     "", "", ReadingRule::kDefaultBase,
     "takes 1000000 for an absent rope_theta", "", 1e6},
    {kMlx, "qwen3_5 qwen3_5_moe", "", "", ReadingRule::kDefaultBase,
     "takes 100000 for an absent rope_theta", "", 1e5},
    {kMlx, "starcoder2", "", "", ReadingRule::kDefaultBase,
     "takes 100000 for an absent rope_theta", "", 1e5},
    {kMlx, "cohere", "", "", ReadingRule::kDefaultBase,
     "takes 8000000 for an absent rope_theta", "", 8e6},
    {kMlx, "cohere2", "", "", ReadingRule::kDefaultBase,
     "takes 50000 for an absent rope_theta", "", 5e4},
    {kMlx, "falcon_h1", "", "", ReadingRule::kDefaultBase,
     "takes 1e+11 for an absent rope_theta", "", 1e11},
    {kMlx, "muse_glimmer", "", "", ReadingRule::kDefaultBase,
     "takes 500000 for an absent rope_theta", "", 5e5},
    {kMlx, "gpt_oss", "", "", ReadingRule::kDefaultBase,
     "takes 150000 for an absent rope_theta", "", 15e4},
    {kMlx, "minimax_m3 minimax_m3_vl", "", "", ReadingRule::kDefaultBase,
     "takes 5000000 for an absent rope_theta", "", 5e6},
    {kMlx, "", "", "", ReadingRule::kDefaultBase,
     "takes 10000 for an absent rope_theta", "", 1e4},
};

constexpr ReadingRule kSpellings[] = {
    ReadingRule::kScalingReplaces, ReadingRule::kParametersReplace,
    ReadingRule::kParametersFill, ReadingRule::kParametersBase,
    ReadingRule::kParametersUnread};

// Neither the reference implementations nor others have a row: they read as
// transformers does.
constexpr ReadingRow kOtherSpelling = {
    kHf,
    "",
    "",
    "",
    ReadingRule::kScalingReplaces,
    "reads rope_scaling before rope_parameters"};

bool Applies(const ReadingRow& row, Profile reader, const Version& version,
             absl::string_view model_type) {
  return row.reader == reader &&
         (row.families.empty() || IsAmong(model_type, row.families)) &&
         (row.since.empty() || IsSince(version, row.since)) &&
         (row.until.empty() || !IsSince(version, row.until));
}

}  // namespace

absl::Span<const ReadingRow> ReadingRows() { return kRows; }

absl::StatusOr<Version> ParseVersion(Profile reader, absl::string_view text) {
  constexpr char kField[] = "profile_version";
  const ProfileRules& rules = RulesOf(reader);
  const std::string shown(text.substr(0, 32));
  if (rules.newest.empty()) {
    return FieldInvalid(
        kField, absl::StrCat("is \"", shown, "\"; no versions of ",
                             rules.project, " are told apart; leave it unset"));
  }
  absl::string_view numbers = text;
  if (!numbers.empty() && numbers[0] == 'v') numbers.remove_prefix(1);
  Version version;
  bool valid = text.size() <= 32;
  for (const absl::string_view part : absl::StrSplit(numbers, '.')) {
    int number = 0;
    valid = valid && !part.empty() && part.size() <= 8 &&
            part.find_first_not_of("0123456789") == absl::string_view::npos &&
            absl::SimpleAtoi(part, &number);
    version.push_back(number);
  }
  if (!valid) {
    return FieldInvalid(
        kField, absl::StrCat("is \"", shown,
                             "\"; a version is numbers with dots between "
                             "them, as ",
                             rules.newest));
  }
  return version;
}

bool IsSince(const Version& version, absl::string_view other) {
  Version numbers;
  for (const absl::string_view part : absl::StrSplit(other, '.')) {
    int number = 0;
    (void)absl::SimpleAtoi(part, &number);
    numbers.push_back(number);
  }
  return IsSince(version, numbers);
}

bool IsSince(const Version& version, const Version& other) {
  if (version.empty() || other.empty()) return version.empty();
  // "0.22" is "0.22.0".
  Version a = version, b = other;
  const std::size_t size = std::max(a.size(), b.size());
  a.resize(size);
  b.resize(size);
  return a >= b;
}

const ReadingRow* FindReadingRow(Profile reader, const Version& version,
                                 absl::string_view model_type,
                                 ReadingRule rule) {
  for (const ReadingRow& row : kRows) {
    if (row.rule == rule && Applies(row, reader, version, model_type)) {
      return &row;
    }
  }
  return nullptr;
}

const ReadingRow& SpellingRow(Profile reader, const Version& version,
                              absl::string_view model_type) {
  for (const ReadingRow& row : kRows) {
    if (std::count(std::begin(kSpellings), std::end(kSpellings), row.rule) >
            0 &&
        Applies(row, reader, version, model_type)) {
      return row;
    }
  }
  return kOtherSpelling;
}

}  // namespace posenc::core
