// Facts that are in a model's class but not in its config.json. Each family of
// classes has one row of data: in rows/families.json, or in
// rows/remote_families.json if transformers does not have the classes. A field
// that a row leaves out has the default of Family, which is that of
// transformers' configuration classes.

#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/rope/spec.h"

namespace posenc::core::interpretation {

// The source of the rotated width.
enum class RotaryWidth {
  kHead,       // head_dim; partial_rotary_factor counts for scaled rope only
  kPartial,    // floor(head_dim * partial_rotary_factor)
  kRotaryDim,  // key rotary_dim
  kRotaryDimElsewhere,  // likewise, but in transformers kPartial
  kRotaryDimOrHead,     // likewise, but in transformers kHead
  kMla,                 // key qk_rope_head_dim, behind qk_nope_head_dim
  kProjected,           // max(projection_dim / (2 * num_attention_heads), 32)
};

// The dicts of rotary parameters that a class accepts.
enum class DictRule {
  kOne,     // one for all layers, or one for each type of layer
  kSplit,   // as kOne, but a flat one is for scaled kinds, and has no base
  kMerged,  // one for each type; rope_scaling goes into full attention's, and a
            // flat rope_parameters is dropped
  kTyped,   // as kMerged, but a flat rope_parameters is refused
  kNested,  // one for each type as the file has it; transformers refuses a flat
            // one
  kNone,    // none: nothing is scaled
};

// Layers of one type.
struct LayerKind {
  absl::string_view type;       // empty: no such kind
  absl::string_view theta_key;  // empty: theta is fixed
  double theta = 10000;
  bool scaled = true;  // false: a flat rope_scaling is not for it
  double partial = 0;  // 0: the family's
};

enum class NopeRule {
  kNone,
  kFullAttention,    // full attention, if there is a sliding window, too
  kSlidingOnly,      // full attention, whether or not there is a window
  kWindowed,         // full attention, and every layer without a window
  kWindowedOrDense,  // likewise, but dense layers before those of experts may
                     // rotate: Cohere 2 MoE's
  kLayerList,        // no_rope_layers: 0 marks a layer without rope
  kChunkedList,      // likewise, and these layers have full attention; an
                     // empty list is an absent one
  kFromLast,         // the last layer, and every n-th before it
  kEveryLayer,       // the class rotates nothing
  kNoLength,         // of a model without max_position_embeddings: Baichuan's
                     // 13B have ALiBi
  kNullBase,         // every layer if the base is null
};

struct Family {
  absl::string_view model_types;  // separated by blanks, without "_text"
  Pairing pairing = Pairing::kHalfSplit;
  Pairing output_pairing = Pairing::kUnspecified;
  RotaryWidth width = RotaryWidth::kHead;
  std::int64_t rotary_dim = 0;  // if the key is absent; 0: by the share
  RotarySlice slice = RotarySlice::kLeading;
  double partial = 1;
  absl::string_view partial_key = "partial_rotary_factor";
  absl::string_view theta_key = "rope_theta";  // empty: theta is fixed
  double theta = 10000;  // if neither the dict nor theta_key gives it
  absl::string_view head_dim_key = "head_dim";
  std::int64_t head_dim = 0;         // 0: hidden_size / num_attention_heads
  std::int64_t global_head_dim = 0;  // of full attention, if it differs
  std::int64_t original = 0;         // the class's own original length; 0: none
  AxisAssignment axes = AxisAssignment::kSectioned;
  std::int32_t sections[3] = {};  // as published; 0: one axis unless given
  bool reads_sections = false;    // for a class without default sections
  LayerKind kinds[2] = {};
  NopeRule nope = NopeRule::kNone;
  // Every n-th layer has full attention; 0: the configuration must tell.
  std::int64_t full_every = 0;
  bool full_first = false;  // layer 0, n, 2n, ... rather than n - 1, ...
  // The last layer has full attention, too, whatever type the file's list gives
  // it.
  bool full_last = false;
  bool forces_last = false;
  // A repeated sequence of layer types that is not "every n-th": F is full
  // attention (or the first of `kinds`), S sliding attention (or the second), L
  // linear attention, C a convolution, H hybrid. Letters before a bar do not
  // repeat.
  absl::string_view layer_pattern = {};
  bool fixed_partial = false;  // the class reads no share beside the dict
  bool yarn_is_longrope = false;
  bool softmax_mscale = false;  // g(factor, mscale_all_dim)^2 on the scores
  bool reverse = false;
  DictRule dicts = DictRule::kOne;
  // JSON: the class's default for an absent rope_parameters; empty: no default.
  // If it has a rope_theta, the configuration's own rope_theta is not read.
  absl::string_view rope_parameters = {};
  // True for unknown types: the base and the rotated share may have any of the
  // names that files use for them.
  bool any_names = false;
  // Types of scaling that the class accepts, separated by blanks; empty: all.
  absl::string_view rope_types = {};
  // The layer types that the class accepts, as files spell them; empty: all
  // that transformers knows.
  absl::string_view layer_types = {};
  bool needs_original = false;  // refuses a scaled dict without that length
  // A key that turns rotation on and off, the only value that turns it on, and
  // the class's default for an absent key, both as JSON.
  absl::string_view rope_switch = {};
  absl::string_view rope_switch_value = {};
  absl::string_view rope_switch_absent = {};
  // The bases of layers are those in layer_rope_theta. Other classes read from
  // it only which layers have 0.
  bool layer_bases = false;
  // The pairing of sparse attention's indexer, and the rotated slice of its
  // heads; kUnspecified: the class has no indexer.
  Pairing indexer = Pairing::kUnspecified;
  RotarySlice indexer_slice = RotarySlice::kLeading;
  absl::string_view indexer_key = "index_head_dim";  // the width of its heads
  std::int64_t indexer_head_dim = 128;  // if the key is absent; 0: no indexer
  // The kind of layers that have the indexer, whichever layer the caller
  // chooses; empty: the chosen layer.
  absl::string_view indexer_type = {};
  absl::string_view learned = {};  // how a checkpoint's tensors change it
  std::int64_t states = 1;  // hidden states that attention takes side by side
  // If this key is set, the class uses this length, whatever the file gives.
  absl::string_view long_switch = {};
  std::int64_t long_length = 0;
  bool alpha = false;  // a dynamic dict's alpha scales the base once
  // A key: without rope_theta, the base is 10000 times its value.
  absl::string_view base_ratio = {};
  bool lists = false;  // rope_theta and partial_rotary_factors are by layer
  bool unit_amplitude = false;   // YaRN's amplitude is 1 if none is given
  bool scales_queries = false;   // layers without rope do, by the position
  bool entries_by_type = false;  // per_layer_config is read by type of layer
  bool scaling_layers = false;   // rope_scaling_layers is read
  bool merges_entries = false;  // per_layer_config does not replace the class's
  // transformers has no class with this name. Either the code lies beside the
  // checkpoints, or the name is another one of a class that it has.
  bool remote = false;
  absl::string_view remote_types = {};
};

absl::Span<const Family> Families();

// Returns a model type as the table spells it: "Llama_4" for "Llama-4_text".
std::string ModelKey(absl::string_view model_type);

// Returns the family of a model type. If the table does not have the type,
// `known` becomes false and the family is Llama's without its special rules.
const Family& FindFamily(absl::string_view model_type, bool* known = nullptr);

// Returns the family of an unknown type whose heads have a slice
// qk_rope_head_dim: DeepSeek V3's.
const Family& UnknownLatentFamily();

// True if transformers has no class of that type, which ModelKey() spells, and
// the code lies beside the checkpoints.
bool IsRemote(absl::string_view model_type);

// Keys by which some classes, but not most, read the base.
inline constexpr char kBaseNames[] =
    "rotary_emb_base rope_embedding_base rotary_embedding_base rope_base "
    "rope_freq_base";
bool IsBaseName(absl::string_view key);

}  // namespace posenc::core::interpretation
