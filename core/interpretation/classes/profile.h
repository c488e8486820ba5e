// A profile is a project's interpretation of configurations. Projects read the
// same configuration in different ways, so each project has a row of data
// (rows/profiles.json). Differences that depend on the model or on the
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

// Decides which of LongRoPE's two lists of factors is used.
enum class LongRopeChoice {
  kPerLength,  // by the sequence's length
  kOnce,       // by the longest sequence that a server accepts
  kAlwaysLong,
};

// How YaRN's attention factor is computed. s is the factor, g(s, m) = 0.1 m
// ln(s) + 1, and "the mscale pair" is g(s, mscale) / g(s, mscale_all_dim).
enum class YarnAttentionFactor {
  kTransformers,  // attention_factor, or the mscale pair, or g(s, 1)
  kVllm,          // by ReadingRule::kAmplitudeByKeys or kAmplitudeMultiplier
  kSglang,        // attn_factor times the mscale pair, or times g(s, 1)
  kLlamaCpp,      // g(s, 1); some models also use mscale_all_dim
  kPlain,         // g(s, 1)
  kRatio,         // g(s, mscale or 1) / g(s, mscale_all_dim or 0)
};

struct ProfileRules {
  Profile profile;
  absl::string_view project;
  absl::string_view rope_types;    // known to all versions of the project
  absl::string_view model_prefix;  // prefix of its model types; empty: any type
  Truncation truncation;
  YarnAttentionFactor attention_factor;
  LongRopeChoice longrope;
  // The number that replaces an absent original_max_position_embeddings. -1
  // stands for max_position_embeddings. If the number is 0, an absent key is an
  // error.
  std::int64_t yarn_original;
  std::int64_t llama3_original;
  bool llama3_defaults;  // absent low_freq_factor is 1, high_freq_factor 4
  // The project's modules come from vLLM. These modules have one table of
  // cosines for every length, read alpha for every model, and read LongRoPE's
  // two amplitudes.
  bool vllm_modules = false;
  // The oldest and newest versions that posenc knows; empty for a project
  // without versions.
  absl::string_view oldest = {};
  absl::string_view newest = {};
  Version version = {};  // the version that these rules are for
};

// Returns the rules of the newest version.
const ProfileRules& RulesOf(Profile profile);

// Returns the rules of a reader for a model of that type. They are those of
// transformers if the reader runs transformers' code for it.
ProfileRules RulesFor(const ProfileVersion& reader,
                      absl::string_view model_type);

// Returns the row of FindReadingRow() for transformers' newest version. Other
// projects that use transformers' classes also follow these rows.
const ReadingRow* ClassRow(absl::string_view model_type, ReadingRule rule);

// Returns a text such as "transformers' class of model_type llama".
std::string ClassOf(absl::string_view model_type,
                    absl::string_view project = "transformers");

// True if the profile's project reads configurations with transformers'
// classes.
bool ReadsByClass(const ProfileRules& rules);

// Returns the rope types that this version knows for models of that type,
// separated by blanks.
std::string KnownTypes(const ProfileRules& rules, absl::string_view model_type);

// True if `name` is among `names`, which are separated by blanks.
bool IsAmong(absl::string_view name, absl::string_view names);

// Returns the first row that has `name` among its `names`; null if no row has
// `name`, or if `name` is empty.
template <typename Row, std::size_t n>
const Row* FindRow(const Row (&rows)[n], absl::string_view Row::*names,
                   absl::string_view name) {
  for (const Row& row : rows) {
    if (!name.empty() && IsAmong(name, row.*names)) return &row;
  }
  return nullptr;
}

}  // namespace posenc::core::interpretation
