// A profile is a project's interpretation of configurations. This is what the
// projects do differently with one and the same configuration: one row of data
// for each (rows/profiles.json). Differences that depend on the model or on the
// project's version are in reading_rules.h.

#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "core/interpretation/classes/reading_rules.h"
#include "core/interpretation/source.h"

namespace posenc::core::interpretation {

// Decides whether YaRN's ramp ends at whole pairs.
enum class Truncation { kByKey, kAlways, kNever };

// Decides which of LongRoPE's two lists of factors a token's frequencies have.
enum class LongRopeChoice {
  kPerLength,  // by the sequence's length
  kOnce,       // by the longest sequence that the server takes
  kAlwaysLong,
};

// The attention factor of YaRN; g(s, m) = 0.1 m ln(s) + 1, s the factor.
enum class YarnAttentionFactor {
  kTransformers,  // attention_factor, or the mscale pair, or g(s, 1)
  kVllm,          // by ReadingRule::kAmplitudeByKeys or kAmplitudeMultiplier
  kSglang,        // attn_factor times the mscale pair, or times g(s, 1)
  kLlamaCpp,      // g(s, 1); mscale_all_dim for some models
  kPlain,         // g(s, 1)
  kRatio,         // g(s, mscale or 1) / g(s, mscale_all_dim or 0)
};

struct ProfileRules {
  Profile profile;
  absl::string_view project;
  absl::string_view rope_types;    // those that all its versions know
  absl::string_view model_prefix;  // the only models that it runs; empty: many
  Truncation truncation;
  YarnAttentionFactor attention_factor;
  LongRopeChoice longrope;
  // These replace an absent original_max_position_embeddings: by the number, by
  // max_position_embeddings for -1, or not at all for 0.
  std::int64_t yarn_original;
  std::int64_t llama3_original;
  bool llama3_defaults;  // low_freq_factor 1, high_freq_factor 4 if absent
  bool null_factor;      // max_position_embeddings / original for null
  // Its modules began as vLLM's: one table of cosines for every length, alpha
  // for every model, LongRoPE's two amplitudes as given.
  bool vllm_modules = false;
  // The versions that were read; empty for a project that has none.
  absl::string_view oldest = {};
  absl::string_view newest = {};
  Version version = {};  // the one that is meant
};

// Returns the rules of the newest version.
const ProfileRules& RulesOf(Profile profile);

// Of that version.
ProfileRules RulesFor(const ProfileVersion& reader);

// The first row of reading_rules.h for a model of that type; null if there is
// none.
const ReadingRow* FindReadingRow(const ProfileRules& rules,
                                 absl::string_view model_type,
                                 ReadingRule rule);

// The same for transformers' newest version, also for other projects that read
// by its classes.
const ReadingRow* ClassRow(absl::string_view model_type, ReadingRule rule);

// "transformers' class of model_type llama".
std::string ClassOf(absl::string_view model_type,
                    absl::string_view project = "transformers");

// True if the profile's project reads configurations by transformers' classes.
bool ReadsByClass(const ProfileRules& rules);

// The rope types that this version knows for models of that type, separated by
// blanks.
std::string KnownTypes(const ProfileRules& rules, absl::string_view model_type);

// True if `names`, which are separated by blanks, has `name`.
bool IsAmong(absl::string_view name, absl::string_view names);

}  // namespace posenc::core::interpretation
