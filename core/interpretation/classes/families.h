// Facts that a model's class knows and its config.json does not say: one row of
// data per family of classes, in rows/families.json and, for classes that
// transformers does not have, rows/remote_families.json. Fields that a row
// leaves out have the defaults of Family, which are those of transformers'
// configuration classes.

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

// The dicts of rotary parameters that a class takes.
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
  kChunkedList,      // likewise, and those are the layers of full attention; an
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
  std::int64_t rotary_dim = 0;  // of an absent key; 0: by the share
  RotarySlice slice = RotarySlice::kLeading;
  double partial = 1;
  absl::string_view partial_key = "partial_rotary_factor";
  absl::string_view theta_key = "rope_theta";  // empty: theta is fixed
  double theta = 10000;  // where neither the dict nor theta_key gives one
  absl::string_view head_dim_key = "head_dim";
  std::int64_t head_dim = 0;         // 0: hidden_size / num_attention_heads
  std::int64_t global_head_dim = 0;  // of full attention, if it differs
  std::int64_t original = 0;         // the class's own original length; 0: none
  AxisAssignment axes = AxisAssignment::kSectioned;
  std::int32_t sections[3] = {};  // as published; 0: one axis if none is given
  bool reads_sections = false;    // of a class without sections of its own
  LayerKind kinds[2] = {};
  NopeRule nope = NopeRule::kNone;
  // Every n-th layer is of full attention; 0: the config must say.
  std::int64_t full_every = 0;
  bool full_first = false;  // layer 0, n, 2n, ... rather than n - 1, ...
  // The last layer is of full attention, too; and it is so whatever type the
  // file's list gives it.
  bool full_last = false;
  bool forces_last = false;
  // Types of layers that repeat in another order: F is full attention (or the
  // first of `kinds`), S sliding attention (or the second), L linear attention,
  // C a convolution, H hybrid. Letters before a bar do not repeat.
  absl::string_view layer_pattern = {};
  bool fixed_partial = false;  // the class reads no share beside the dict
  bool yarn_is_longrope = false;
  bool softmax_mscale = false;  // g(factor, mscale_all_dim)^2 on the scores
  bool reverse = false;
  DictRule dicts = DictRule::kOne;
  // JSON that the class takes for an absent rope_parameters; empty: none. If it
  // has a rope_theta, the configuration's own is not read beside it.
  absl::string_view rope_parameters = {};
  // True for types that are not known: their base and share are taken by any
  // name that files have for them.
  bool any_names = false;
  // Types of scaling that the class accepts, separated by blanks; empty: all.
  absl::string_view rope_types = {};
  // Types of layers that the class takes, where they are fewer than
  // transformers knows, as files spell them.
  absl::string_view layer_types = {};
  bool needs_original = false;  // refuses a scaled dict without the length
  // A key that turns rotation on and off, the only value with which there is
  // rope, and the class's own value where the key is absent, as JSON.
  absl::string_view rope_switch = {};
  absl::string_view rope_switch_value = {};
  absl::string_view rope_switch_absent = {};
  // Layers turn by the bases of layer_rope_theta. Other classes read there only
  // which layers have 0.
  bool layer_bases = false;
  // The pairs of the indexer of sparse attention, and the slice of its heads
  // that rotates; kUnspecified: the class has none.
  Pairing indexer = Pairing::kUnspecified;
  RotarySlice indexer_slice = RotarySlice::kLeading;
  absl::string_view indexer_key = "index_head_dim";  // the width of its heads
  std::int64_t indexer_head_dim = 128;  // of an absent key; 0: no indexer
  // The kind of layers that have it, whichever is asked for; empty: that one.
  absl::string_view indexer_type = {};
  absl::string_view learned = {};  // how a checkpoint's tensors change it
  std::int64_t states = 1;  // hidden states that attention takes side by side
  // A key with which the class takes this length, whatever the file gives.
  absl::string_view long_switch = {};
  std::int64_t long_length = 0;
  bool alpha = false;  // a dynamic dict's alpha scales the base once
  // A key whose multiple of 10000 is the base of a file without rope_theta.
  absl::string_view base_ratio = {};
  bool lists = false;  // rope_theta and partial_rotary_factors are by layer
  bool unit_amplitude = false;   // YaRN's amplitude is 1 if none is given
  bool scales_queries = false;   // layers without rope do, by the position
  bool entries_by_type = false;  // per_layer_config is read by type of layer
  bool scaling_layers = false;   // rope_scaling_layers is read
  bool merges_entries = false;  // per_layer_config does not replace the class's
  // transformers has no class: its code lies beside its checkpoints. Some names
  // of a class that it has are unknown to it, too.
  bool remote = false;
  absl::string_view remote_types = {};
};

absl::Span<const Family> Families();

// A model type as the table spells it: "Llama_4" for "Llama-4_text".
std::string ModelKey(absl::string_view model_type);

// The family of a model type. If the table does not have it, `known` becomes
// false and the family is Llama's without its peculiarities.
const Family& FindFamily(absl::string_view model_type, bool* known = nullptr);

// The family of a type that is not known and whose heads have a slice
// qk_rope_head_dim: DeepSeek V3's.
const Family& UnknownLatentFamily();

// True if transformers has no class of that type, as ModelKey() spells it, and
// its code lies beside its checkpoints.
bool IsRemote(absl::string_view model_type);

// Keys by which some classes, but not most, read the base.
inline constexpr char kBaseNames[] =
    "rotary_emb_base rope_embedding_base rotary_embedding_base rope_base "
    "rope_freq_base";
bool IsBaseName(absl::string_view key);

}  // namespace posenc::core::interpretation
