// What the projects do with one and the same configuration, where they differ:
// one row of data for each.
//
// Read in the sources of transformers 5.23, vLLM 0.11 and later, llama.cpp
// with its converter (2026), gpt-oss (torch/model.py), DeepSeek
// (modeling_deepseek.py), mistral-inference with vLLM's reader of params.json,
// and mlx-lm 0.32.2.

#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "core/model/source.h"

namespace posenc::core {

// Whether YaRN's ramp ends at whole pairs.
enum class Truncation { kByKey, kAlways, kNever };

// Which of LongRoPE's two lists turns a token.
enum class LongRopeChoice {
  kPerLength,  // by the sequence's length
  kOnce,       // by the longest sequence that the server takes
  kAlwaysLong,
};

enum class YarnAmplitude {
  kTransformers,  // attention_factor, or the mscale pair, or g(s, 1)
  kVllm,          // likewise, and attn_factor multiplies g
  kLlamaCpp,      // g(s, 1) * attn_factor; mscale_all_dim for some models
  kPlain,         // g(s, 1)
  kRatio,         // g(s, mscale or 1) / g(s, mscale_all_dim or 0)
};

struct ProfileRules {
  Profile profile;
  absl::string_view project;
  absl::string_view rope_types;    // that it reads, separated by blanks
  absl::string_view model_prefix;  // the only models that it runs; empty: many
  Truncation truncation;
  YarnAmplitude amplitude;
  LongRopeChoice longrope;
  // In place of an absent original length: -1 max_position_embeddings, 0 none.
  std::int64_t yarn_original;
  std::int64_t llama3_original;
  bool llama3_defaults;  // low_freq_factor 1, high_freq_factor 4 where absent
  bool null_factor;      // max_position_embeddings / original for null
};

const ProfileRules& RulesOf(Profile profile);

// True for one of names, which blanks separate.
bool IsAmong(absl::string_view name, absl::string_view names);

}  // namespace posenc::core
