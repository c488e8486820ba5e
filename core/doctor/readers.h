// How one reader of a model's files differs from another reader
// (core/interpretation/classes/reading_rules.h lists the readers).

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/doctor/finding.h"
#include "core/interpretation/classes/families.h"
#include "core/interpretation/classes/reading_rules.h"
#include "core/interpretation/compare.h"
#include "core/interpretation/source.h"
#include "core/rope/frequencies.h"
#include "core/rope/kept.h"
#include "nlohmann/json.hpp"

namespace posenc::core::doctor {

using interpretation::Family;
using interpretation::FindReader;
using interpretation::Reader;
using interpretation::ReadingRule;
using nlohmann::json;

// Returns the language model's part of a configuration. The part may be nested
// in other parts.
json* LanguagePartOf(json* root, std::string* model_type, std::string* path);

// Returns the value of a key; null if the key is absent, or `object` is not an
// object.
const json& ValueAt(const json& object, absl::string_view key);
// True if the key has a value other than null and {}.
bool IsGiven(const json& object, absl::string_view key);
// True if `dict` has keys and no value is a dict. (An entry for a layer type is
// a dict.)
bool IsFlat(const json& dict);
// Return the value of a key; nullopt or "" if the key is absent or its value
// has another type.
std::optional<double> NumberAt(const json& object, absl::string_view key);
std::string TextAt(const json& object, absl::string_view key);
// Returns the numbers of a list; an empty list for any other value.
std::vector<double> NumbersOf(const json& list);

// Returns |a - b| / max(|a|, |b|); 0 if both are 0.
double RelativeDifference(double a, double b);

// Returns the values as a list, for example "[16, 24, 24]".
std::string ListText(const std::vector<double>& values);

// Texts, each with the names of the readers to which the text applies.
using NamesByText =
    std::vector<std::pair<std::string, std::vector<std::string>>>;
void AddName(const std::string& text, absl::string_view name, NamesByText* all);
// Returns all texts with their readers, for example "vLLM, mlx-lm take 131072,
// transformers 4096, llama.cpp refuses".
std::string TakenText(const NamesByText& all, const char* separator = ", ");
// The text for a reader that refuses the file.
inline constexpr char kRefuses[] = "refuses";

// The largest distance at which a diagnosis compares angles, and a function
// that can end the diagnosis. After an error of `stop`, all results are
// invalid, because no rope resolves and comparisons find no difference.
struct Reach {
  std::int64_t length = 0;
  StopAsked stop = nullptr;

  absl::Status status() const { return stop ? stop() : absl::OkStatus(); }
};

// Layers that share one rope.
struct LayerGroup {
  std::optional<std::int32_t> index;
  std::optional<std::string> type;
  std::vector<std::int32_t> layers;  // empty: all, or not known
  std::string layer_type;            // type of all `layers`; empty: not known

  // Returns a name such as "layers 1-3 (sliding_attention)", or "" if all
  // layers are alike.
  std::string Name() const;
};

// Groups the layers to which transformers gives the same rope. Returns one
// group if all layers are alike. The last group may consist of a layer that
// transformers refuses.
std::vector<LayerGroup> GroupLayers(const json& root, const Reach& reach);

absl::StatusOr<ResolvedRope> Resolve(
    const json& root, const Reader& reader, const LayerGroup& group,
    const Reach& reach,
    interpretation::ModelPart part = interpretation::ModelPart::kUnspecified);

// Describes a rope in one line, for example "128 channels, base 10000, yarn by
// 4 from 32768, amplitude 1.14".
std::string DescribeRope(const ResolvedRope& rope);

inline bool IsScaled(const ResolvedRope& rope) {
  return rope.spec.scaling.index() != 0;
}

// Returns the factor of linear, YaRN or Llama 3 scaling; nullopt for any other
// scaling.
std::optional<double> FactorOf(const RopeSpec& spec);

// Differences between two encodings of one layer.
struct Comparison {
  bool pairing = false;  // pairs, rotated channels or slice differ
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

// Returns the comparison's verdict with the reader's name and a description of
// `rope`, which is one layer's rope as `reader` reads it.
Verdict VerdictOf(const Comparison& comparison, const Reader& reader,
                  const ResolvedRope& rope);

// Returns the message of a status, without the field at the beginning.
std::string FactOf(const absl::Status& status);

}  // namespace posenc::core::doctor
