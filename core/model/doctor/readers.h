// Who reads a model's files, and how one reader differs from another.
//
// A reader is a profile and rules beside it: rows of data with the versions
// that they hold for (reader_rules.cc). A rule rewrites the configuration into
// what that reader sees of it; the profile reads the rest.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/compare.h"
#include "core/model/doctor/finding.h"
#include "core/model/source.h"
#include "core/rope/frequencies.h"
#include "core/rope/kept.h"
#include "nlohmann/json.hpp"

namespace posenc::core {

struct Reader {
  absl::string_view id;     // "mlx", as --reader has it
  absl::string_view title;  // "mlx-lm", as output has it
  absl::string_view version;
  Profile profile;
  absl::string_view models;  // prefix of model types that it runs; empty: any
  bool reads_configs;
};

const std::vector<Reader>& Readers();
const Reader* FindReader(absl::string_view id);

// What a reader does otherwise than its profile.
enum class Rule {
  kDropParameters,   // does not read rope_parameters
  kParametersFirst,  // rope_parameters before rope_scaling
  kTopThetaFirst,    // reads no rope_theta in the dict
  kDefaultTheta,     // the base that it takes for an absent one
  kDefaultPartial,   // likewise, the share of a head that rotates
  kWholeHead,        // rotates the whole head, whatever the file says
};
struct ReaderRule {
  absl::string_view reader;
  Rule rule;
  absl::string_view models;  // model types, separated by blanks; empty: all
  absl::string_view except;
  double value;
  absl::string_view since;
  absl::string_view until;  // empty: it still holds
};
const std::vector<ReaderRule>& ReaderRules();

// True if the reader has that rule for the model type; the rule's value.
bool HasRule(const Reader& reader, Rule rule, const std::string& model_type,
             double* value = nullptr);

// True if the reader is known not to have the model type at all.
bool CannotRun(const Reader& reader, const std::string& model_type);

// The language model's part of a configuration, which may be nested.
nlohmann::json* LanguagePartOf(nlohmann::json* root, std::string* model_type,
                               std::string* path);

// What the reader sees of a configuration.
nlohmann::json SeenBy(const Reader& reader, const nlohmann::json& root);

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
std::vector<LayerGroup> GroupLayers(const nlohmann::json& root, Profile profile,
                                    const Reach& reach);

absl::StatusOr<ResolvedRope> ResolveText(const std::string& text,
                                         Profile profile,
                                         const LayerGroup& group,
                                         const Reach& reach);

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

// The worse of two verdicts, by what is left of scores.
bool IsWorse(const Verdict& a, const Verdict& b);

// 1 line of a status' message, without the field that it begins with.
std::string FactOf(const absl::Status& status);

}  // namespace posenc::core
