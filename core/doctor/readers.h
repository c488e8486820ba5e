// How one reader of a model's files differs from another
// (core/interpretation/reading_rules.h has the readers).

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/doctor/finding.h"
#include "core/interpretation/compare.h"
#include "core/interpretation/reading_rules.h"
#include "core/interpretation/source.h"
#include "core/rope/frequencies.h"
#include "core/rope/kept.h"
#include "nlohmann/json.hpp"

namespace posenc::core::doctor {

// The language model's part of a configuration, which may be nested.
nlohmann::json* LanguagePartOf(nlohmann::json* root, std::string* model_type,
                               std::string* path);

// How far a diagnosis looks, and who may end it. After an error of `stop`
// whatever is computed is void: nothing is resolved, and nothing differs.
struct Reach {
  std::int64_t length = 0;
  StopAsked stop = nullptr;

  absl::Status status() const { return stop ? stop() : absl::OkStatus(); }
};

// Layers that one and the same rope is for.
struct LayerGroup {
  std::optional<std::int32_t> index;
  std::optional<std::string> type;
  std::vector<std::int32_t> layers;  // empty: all, or not known
};

// The groups that transformers makes of the layers; one if all are alike.
std::vector<LayerGroup> GroupLayers(const nlohmann::json& root,
                                    const Reach& reach);

absl::StatusOr<ResolvedRope> ResolveText(
    const std::string& text, const interpretation::Reader& reader,
    const LayerGroup& group, const Reach& reach,
    interpretation::ModelPart part = interpretation::ModelPart::kUnspecified);

// In a few words: "128 channels, base 10000, YaRN by 4, amplitude 1.14".
std::string DescribeRope(const ResolvedRope& rope);

// What differs between two encodings of one layer.
struct Comparison {
  bool pairing = false;  // rotated channels, slice, pairs
  bool frequencies = false;
  bool amplitude = false;
  bool softmax = false;
  bool axes = false;
  Verdict verdict;
  std::vector<std::string> explanations;

  bool any() const {
    return pairing || frequencies || amplitude || softmax || axes;
  }
};
Comparison Compare(const ResolvedRope& reference, const ResolvedRope& other,
                   const Reach& reach);

// The comparison's, of what `reader` makes of one layer.
Verdict VerdictOf(const Comparison& comparison,
                  const interpretation::Reader& reader,
                  const ResolvedRope& rope);

// The worse of two verdicts, by what is left of scores.
bool IsWorse(const Verdict& a, const Verdict& b);

// 1 line of a status' message, without the field that it begins with.
std::string FactOf(const absl::Status& status);

}  // namespace posenc::core::doctor
