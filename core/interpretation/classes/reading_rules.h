// Differences between readers of one file that depend on the model's class or
// on the reader's version. Each fact is one row of data (rows/readings.json).
// profile.h has the facts about a project that are true for every file and
// version.

#pragma once

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/interpretation/source.h"

namespace posenc::core::interpretation {

// The numbers of a version, for example {0, 33, 0} for "0.33.0". An empty list
// stands for the newest version.
using Version = std::vector<int>;

enum class ReadingRule {
  // Choice between the two spellings, rope_scaling (with rope_theta) and
  // rope_parameters. The first row of rows/readings.json that applies and has
  // one of these rules decides.
  kScalingReplaces,    // rope_scaling replaces rope_parameters
  kParametersReplace,  // rope_parameters replaces rope_scaling
  kParametersFill,     // rope_parameters gives only what rope_scaling lacks
  kParametersBase,     // rope_parameters gives rope_theta and no scaling
  kParametersUnread,   // only rope_scaling and rope_theta are read
  // Each of the following rules applies on its own. YarnAttentionFactor
  // (profile.h) defines g and the mscale pair. s is the scaling factor.
  kTypeFirst,        // reads `type` before rope_type
  kTypesConflict,    // refuses `type` and rope_type that differ
  kKnowsType,        // knows the rope types in `what`
  kNeedsBase,        // fails without rope_theta
  kNeedsKeys,        // fails if a key in `what` is absent, but accepts null
  kOneBase,          // takes rope_theta for layers of every type
  kOneRope,          // has one dict for layers of every type
  kScalesAll,        // scales layers of every type
  kBaseKey,          // reads the base from the key in `what`
  kDictBase,         // takes the dict's rope_theta, or else `number`
  kNoRotaryDim,      // reads a share of the head, not rotary_dim
  kReadsRotaryDim,   // reads rotary_dim, and else a share of the head
  kShareBeside,      // reads a share beside the dict, not in it
  kRatioFactor,      // YaRN: the factor is max_position_embeddings / original
  kDefaultBase,      // takes `number` for an absent rope_theta
  kDefaultFactor,    // takes `number` for an absent factor of a scaling
  kFixedBase,        // takes the base `number`, whatever the file says
  kDefaultShare,     // takes `number` for an absent share of the head
  kDefaultSlice,     // takes `number` for an absent qk_rope_head_dim
  kDefaultRest,      // takes `number` for an absent qk_nope_head_dim
  kNoClass,          // has no class for these model types
  kHasClass,         // has classes for these model types alone
  kPermutesRows,     // its own files have the rows of half-split models in
                     // interleaved order; the result has the pairing `what`,
                     // for the reason `says`
  kNoSwitch,         // rotates even if Family::rope_switch turns rotation off
  kWholeHead,        // rotates the whole head, despite partial_rotary_factor;
                     // with kReadsRotaryDim, only without rotary_dim
  kUnscaled,         // does not scale, except the rope types in `what`
  kDynamicConstant,  // dynamic: scales by s * s - (s - 1) at every length
  kAmplitudeMultiplier,  // YaRN: g(s, 1) * attn_factor
  kAmplitudeByKeys,      // YaRN: attention_factor, the mscale pair, or g(s, 1)
  kAmplitudeByAllDim,    // YaRN: g(s, 1) / g(s, mscale_all_dim)
  kSoftmaxUnscaled,      // YaRN: does not scale latent attention's softmax
  kReadsMscales,   // LongRoPE: reads the amplitudes from the keys in `what`
  kShortFactors,   // LongRoPE: does not use long_factor
  kTrainedBeside,  // reads max_trained_positions beside the dict, too
  // Behaviour of transformers' classes, and of other projects that use these
  // classes.
  kFailsAtType,       // fails at the rope types in `what`
  kFailsAtNullEntry,  // fails at null for a type of layer
  kFailsAtEntries,    // has one dict for all layers, and fails at a dict with
                      // entries for layer types
  kFailsAtSections,   // fails at sections that do not fill the pairs
  kWidthMultiple,     // takes only multiples of `number`; 0: the head's width
  kNullShare,         // treats a null share as absent
  kNullHeadDim,       // leaves head_dim null if the file lacks it
  kDerivesHeadDim,    // replaces every head_dim by qk_rope_head_dim
  kReadsShare,        // latent attention: applies a share to unscaled rope, too
  kTakesNulls,        // accepts null for every key
  kAmplitudePlain,    // YaRN: g(s, 1)
  kByTransformers,    // runs transformers' own code for these model types
  kFixedBetas,  // YaRN's ramp ends at 32 and 1 turns, whatever the file says
};

struct ReadingRow {
  Profile reader;
  absl::string_view families;  // separated by blanks; empty: all
  absl::string_view since;     // the first version; empty: all before `until`
  absl::string_view until;  // the first version without this fact; empty: none
  ReadingRule rule;
  absl::string_view says;  // the fact, without the subject (the project)
  absl::string_view what = {};
  double number = 0;
};

// A reader by name: a project in one of its versions, as doctor reports it.
struct Reader {
  absl::string_view id;       // "mlx", as in --reader
  absl::string_view title;    // "mlx-lm", as in doctor's output
  absl::string_view version;  // as in doctor's output
  Profile profile;
  absl::string_view reads_as;  // the version of its rules; empty: the newest
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

// Returns the numbers of a version such as "0.33.0", "v5.2" or "b1234". Any
// other text is INVALID_ARGUMENT with field profile_version.
absl::StatusOr<Version> ParseVersion(Profile reader, absl::string_view text);

struct ProfileVersion {
  Profile profile = Profile::kHf;
  Version version = {};
};

// True if `version` is `other` or later. The newest version (empty) is later
// than every number.
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

// True if that version of the project certainly has no class for the model
// type.
bool LacksClass(Profile reader, const Version& version,
                absl::string_view model_type);

// Returns the row that says how that reader chooses between the two spellings,
// rope_scaling and rope_parameters.
const ReadingRow& SpellingRow(Profile reader, const Version& version,
                              absl::string_view model_type);

}  // namespace posenc::core::interpretation
