// Differences between readers of one file that depend on the model's class or
// on a version: one row of data for each fact (rows/readings.json). profile.h
// has the facts about a project that hold for every file and version.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/interpretation/source.h"

namespace posenc::core::interpretation {

// Numbers of a version: {0, 33, 0}. Empty stands for the newest.
using Version = std::vector<int>;

enum class ReadingRule {
  // Choice between the two spellings: the first row that applies counts.
  kScalingReplaces,    // rope_scaling replaces rope_parameters
  kParametersReplace,  // rope_parameters replaces rope_scaling
  kParametersFill,     // rope_parameters gives what the old spelling does not
  kParametersBase,     // rope_parameters gives rope_theta and no scaling
  kParametersUnread,   // rope_scaling and rope_theta alone are read
  // Each of the following rules applies on its own.
  kTypeFirst,            // `type` before rope_type
  kTypesConflict,        // `type` and rope_type that differ are refused
  kKnowsType,            // knows the rope types in `what`
  kNeedsBase,            // fails without rope_theta
  kNeedsKeys,            // fails if a key in `what` is absent, but not at null
  kOneBase,              // takes rope_theta for layers of every type
  kOneRope,              // has one dict for layers of every type
  kBaseKey,              // reads the base by the key in `what`
  kDictBase,             // takes rope_theta of the dict, or `number`
  kNoRotaryDim,          // reads a share of the head, not rotary_dim
  kRatioFactor,          // YaRN: max_position_embeddings / original
  kDefaultBase,          // takes `number` for an absent rope_theta
  kDefaultFactor,        // takes `number` for an absent factor of a scaling
  kFixedBase,            // takes `number`, whatever the file says
  kDefaultShare,         // takes `number` for an absent share of the head
  kDefaultSlice,         // takes `number` for an absent qk_rope_head_dim
  kDefaultRest,          // takes `number` for an absent qk_nope_head_dim
  kNoClass,              // has no class for these model types
  kHasClass,             // has classes for these model types alone
  kPermutesRows,         // makes half-split rows interleaved when it converts
  kNoSwitch,             // rotates whatever Family::rope_switch says
  kWholeHead,            // rotates the head whatever partial_rotary_factor says
  kUnscaled,             // does not scale, except the rope types in `what`
  kDynamicConstant,      // dynamic: s * s - (s - 1) for every length
  kDynamicByTrained,     // dynamic: s * L / T - (s - 1), of lengths in the file
  kAmplitudeMultiplier,  // YaRN: g(s, 1) * attn_factor
  kAmplitudeByKeys,      // YaRN: attention_factor, the mscale pair, or g(s, 1)
  kAmplitudeByAllDim,    // YaRN: g(s, 1) / g(s, mscale_all_dim)
  kSoftmaxUnscaled,      // YaRN: leaves the softmax of latent attention alone
  kReadsMscales,         // LongRoPE: reads the amplitudes of the keys in `what`
  kTrainedBeside,        // reads max_trained_positions beside the dict, too
  // Behaviour of transformers' classes, also for other projects that read by
  // them.
  kFailsAtType,       // fails at the rope types in `what`
  kFailsAtNullEntry,  // fails at null for a type of layer
  kFailsAtEntries,    // has one dict, and knows types of layers: fails at
                      // entries for them
  kFailsAtSections,   // fails at sections that do not fill the pairs
  kWidthMultiple,     // refuses a rotated width that `number` does not divide
  kNullShare,         // takes a null share for an absent one
  kNullHeadDim,       // leaves head_dim null where the file has none
  kDerivesHeadDim,    // takes qk_rope_head_dim for a null head_dim
  kTakesNulls,        // takes null for every key
};

struct ReadingRow {
  Profile reader;
  absl::string_view families;  // separated by blanks; empty: every
  absl::string_view
      since;  // the first version; empty: every one before `until`
  absl::string_view until;  // the first version without it; empty: none
  ReadingRule rule;
  absl::string_view says;  // the fact, without its subject, the project
  absl::string_view what = {};
  double number = 0;
};

// A reader by name: a project in one of its versions, as doctor reports it.
struct Reader {
  absl::string_view id;       // "mlx", as in --reader
  absl::string_view title;    // "mlx-lm", as in output
  absl::string_view version;  // as in output
  Profile profile;
  absl::string_view reads_as;  // that version of the profile; empty: the newest
  absl::string_view models;    // prefix of model types that it runs; empty: any
  bool reads_configs;
  bool by_name = false;  // used only if the caller names it
};

absl::Span<const ReadingRow> ReadingRows();
absl::Span<const Reader> Readers();

// Returns null if no reader has this id.
const Reader* FindReader(absl::string_view id);

// Returns the version whose rules the reader follows.
Version VersionOf(const Reader& reader);

// Returns the numbers of "0.33.0", "v5.2" or "b1234"; INVALID_ARGUMENT with
// field profile_version for any other text.
absl::StatusOr<Version> ParseVersion(Profile reader, absl::string_view text);

// A project, in one of its versions.
struct ProfileVersion {
  Profile profile = Profile::kHf;
  Version version = {};
};

// True if `version` is `other` or later. "Newest" is later than every number.
bool IsSince(const Version& version, absl::string_view other);
bool IsSince(const Version& version, const Version& other);

// For a version that is too old or too new, returns the oldest or newest known
// version; nullopt for a version between them. If only one version of the
// project is known, returns that version.
std::optional<absl::string_view> NearestVersion(Profile reader,
                                                const Version& version);

// Returns the first row of that rule for a model of that type; null if no row
// applies.
const ReadingRow* FindReadingRow(Profile reader, const Version& version,
                                 absl::string_view model_type,
                                 ReadingRule rule);

// True if that version of the project certainly lacks the model type.
bool LacksClass(Profile reader, const Version& version,
                absl::string_view model_type);

// Returns the row that tells how that reader chooses between the two spellings.
const ReadingRow& SpellingRow(Profile reader, const Version& version,
                              absl::string_view model_type);

}  // namespace posenc::core::interpretation
