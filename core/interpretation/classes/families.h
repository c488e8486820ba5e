// Facts that are in a model's class but not in its config.json. Each family of
// classes has one row of data: in rows/families.json, or in
// rows/remote_families.json if transformers does not have the classes. If a row
// leaves a field out, the default in Family applies. Family has the defaults of
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
  kRotaryDimElsewhere,  // kPartial in transformers, kRotaryDim elsewhere
  kRotaryDimOrHead,     // kHead in transformers, kRotaryDim elsewhere
  kMla,  // key qk_rope_head_dim; qk_nope_head_dim counts the other channels
  kProjected,  // max(projection_dim / (2 * num_attention_heads), 32)
};

// The dicts of rotary parameters that a class accepts.
enum class DictRule {
  kOne,     // one for all layers, or one for each type of layer
  kSplit,   // as kOne, but a flat dict applies only to kinds with `scaled`,
            // and its base is not read
  kMerged,  // one for each type; rope_scaling is added to the dict of full
            // attention, and a flat rope_parameters is dropped
  kTyped,   // as kMerged, but a flat rope_parameters is refused
  kNested,  // one for each type, unchanged; transformers refuses a flat dict
  kNone,    // none: nothing is scaled
};

// Layers of one type.
struct LayerKind {
  absl::string_view type;       // empty: no such kind
  absl::string_view theta_key;  // empty: theta is fixed
  double theta = 10000;
  bool scaled = true;  // false: a flat rope_scaling does not apply
  double partial = 0;  // rotated share of a head; 0: the family's share
};

// The layers that have no rope.
enum class NopeRule {
  kNone,
  kFullAttention,    // full attention, if the model also has a sliding window
  kSlidingOnly,      // full attention, with or without a window in the model
  kWindowed,         // full attention, and every layer without a window
  kWindowedOrDense,  // as kWindowed, but dense layers before the layers of
                     // experts may rotate (Cohere 2 MoE)
  kLayerList,        // layers that no_rope_layers marks with 0
  kChunkedList,      // as kLayerList; the marked layers have full attention,
                     // and an empty list counts as absent
  kFromLast,         // the last layer, and every n-th before it
  kEveryLayer,       // every layer: the class does not rotate
  kNoLength,         // every layer if max_position_embeddings is absent:
                     // Baichuan's 13B models have ALiBi
  kNullBase,         // every layer if the base is null
};

// The facts of one family. The comment at a bool describes the value true.
struct Family {
  absl::string_view model_types;  // separated by blanks, without "_text"
  Pairing pairing = Pairing::kHalfSplit;
  Pairing output_pairing = Pairing::kUnspecified;
  RotaryWidth width = RotaryWidth::kHead;
  std::int64_t rotary_dim = 0;  // default of this key; 0: the share decides
  RotarySlice slice = RotarySlice::kLeading;
  double partial = 1;  // share of a head that rotates if `width` is kPartial
  absl::string_view partial_key = "partial_rotary_factor";
  absl::string_view theta_key = "rope_theta";  // empty: theta is fixed
  double theta = 10000;  // if neither the dict nor theta_key gives it
  absl::string_view head_dim_key = "head_dim";
  std::int64_t head_dim = 0;         // 0: hidden_size / num_attention_heads
  std::int64_t global_head_dim = 0;  // head_dim of full attention; 0: head_dim
  bool derives_head_dim = false;     // attention never reads head_dim_key
  std::int64_t original = 0;  // default of the original length; 0: no default
  AxisAssignment axes = AxisAssignment::kSectioned;
  std::int32_t sections[3] = {};  // default sections; 0: no default
  bool reads_sections = false;    // reads sections without having a default
  LayerKind kinds[2] = {};
  NopeRule nope = NopeRule::kNone;
  // Every n-th layer has full attention; 0: the configuration decides.
  std::int64_t full_every = 0;
  bool full_first = false;  // from layer 0 on, not from layer n - 1 on
  // full_last: the last layer has full attention if the file has no list of
  // layer types. full_once: the last layer has full attention if layer_pattern
  // gives no layer full attention. forces_last: the last layer has full
  // attention even if the list gives it another type.
  bool full_last = false;
  bool full_once = false;
  bool forces_last = false;
  // The layer types as a repeated sequence of letters. F is full attention or
  // the first of `kinds`, S is sliding attention or the second of `kinds`, L is
  // linear attention, C is a convolution, and H is hybrid. Letters before a bar
  // do not repeat.
  absl::string_view layer_pattern = {};
  // Names of configuration keys, separated by blanks. The value of such a key
  // is n, and every n-th layer has full attention. (EXAONE's key may have a
  // pattern of letters instead.) Without such a key, layer_pattern or
  // full_every decides. The other layers of a class with a layer_pattern have
  // linear attention.
  absl::string_view interval_keys = {};
  // The key that turns sliding attention off in files without layer_types.
  absl::string_view sliding_switch = {};
  // The layers that have only cross-attention, separated by blanks, for files
  // without cross_attention_layers.
  absl::string_view cross_layers = {};
  bool fixed_partial = false;  // the class reads no share outside of the dict
  bool yarn_is_longrope = false;
  // Scores are multiplied by g(factor, mscale_all_dim)^2 (profile.h has g).
  bool softmax_mscale = false;
  bool reverse = false;
  bool reads_interleave = false;  // rope_interleave: false means half-split
  absl::string_view interleave_key = {};  // another key with that meaning
  DictRule dicts = DictRule::kOne;
  // JSON: the class's default for an absent rope_parameters; empty: no default.
  // If the default has a rope_theta, the configuration's own rope_theta is not
  // read.
  absl::string_view rope_parameters = {};
  // True for unknown types, whose base and rotated share may have any of the
  // names that files use.
  bool any_names = false;
  // Types of scaling that the class accepts, separated by blanks; empty: all.
  absl::string_view rope_types = {};
  // The layer types that the class accepts, as files spell them; empty: all
  // types that transformers knows.
  absl::string_view layer_types = {};
  // The class refuses a scaled dict without original_max_position_embeddings.
  bool needs_original = false;
  // rope_switch is a key that turns rotation on and off. rope_switch_value is
  // the only value that turns rotation on, and rope_switch_absent is the
  // class's default; both are JSON.
  absl::string_view rope_switch = {};
  absl::string_view rope_switch_value = {};
  absl::string_view rope_switch_absent = {};
  // Each layer has the base that layer_rope_theta lists for it. Other classes
  // use that list only to find the layers with base 0.
  bool layer_bases = false;
  // The pairing of sparse attention's indexer, and the rotated slice of its
  // heads; kUnspecified: the class has no indexer.
  Pairing indexer = Pairing::kUnspecified;
  RotarySlice indexer_slice = RotarySlice::kLeading;
  absl::string_view indexer_key = "index_head_dim";  // the indexer's head_dim
  std::int64_t indexer_head_dim = 128;  // if the key is absent; 0: no indexer
  // The layer type whose rope the indexer has, whatever layer the caller
  // chooses; empty: the rope of the chosen layer.
  absl::string_view indexer_type = {};
  absl::string_view learned = {};  // how a checkpoint's tensors change the rope
  // Number of hidden states that attention concatenates.
  std::int64_t states = 1;
  // If the key that long_switch names is true, the class uses long_length and
  // ignores the file's length.
  absl::string_view long_switch = {};
  std::int64_t long_length = 0;
  // A dynamic dict's alpha scales the base in the same way for every length.
  bool alpha = false;
  // If rope_theta is absent, the base is 10000 times the value of this key.
  absl::string_view base_ratio = {};
  // rope_theta and partial_rotary_factors are lists with an element for each
  // layer.
  bool lists = false;
  // In files, layer_types and num_hidden_layers count attention and MLP as two
  // layers, and layer_types names the second "mlp".
  bool lists_mlps = false;
  bool unit_amplitude = false;  // YaRN's amplitude is 1 if none is given
  // The class scales queries by their position, with llama_4_scaling_beta.
  bool reads_beta = false;
  // In layers without rope, the class scales queries by their position.
  bool scales_queries = false;
  // The class reads one entry of per_layer_config for each layer type.
  bool entries_by_type = false;
  bool scaling_layers = false;  // rope_scaling_layers is read
  // The class takes a dict's entries only if the dict has an entry for each of
  // the class's layer types.
  bool all_entries = false;
  // If a dict has no entry for a layer type, the class uses its own entry for
  // this type. The class merges nothing else.
  bool fills_entries = false;
  // The class adds the file's per_layer_config to its own per_layer_config. In
  // other classes, the file's per_layer_config replaces the class's.
  bool merges_entries = false;
  // The types without a class in transformers: model_types if `remote` is true,
  // else remote_types. The code of these types is stored with their
  // checkpoints.
  bool remote = false;
  absl::string_view remote_types = {};

  // False for the families of unknown types.
  bool known() const { return !any_names; }
  // True if the class adds rope_scaling to its entries for layer types.
  bool merges_dicts() const {
    return dicts == DictRule::kMerged || dicts == DictRule::kTyped;
  }
  // True if the class has parameters for layer types that a dict lacks.
  bool fills_in() const { return merges_dicts() || fills_entries; }
};

absl::Span<const Family> Families();

// Returns a model type as rows spell it, for example "Llama_4" for
// "Llama-4_text".
std::string ModelKey(absl::string_view model_type);

// Returns the family of a model type. If no row has the type, returns the
// family for unknown types, which is Llama's family with a few more keys.
const Family& FindFamily(absl::string_view model_type);

// Returns the family of an unknown type whose heads have a slice
// qk_rope_head_dim. This family has DeepSeek V3's rules.
const Family& UnknownLatentFamily();

// True if transformers has no class of that type, and the code is stored with
// the checkpoints. `model_type` has the spelling of ModelKey().
bool IsRemote(absl::string_view model_type);

// The names that classes have for a key. The usual name is the first.
inline constexpr char kWidthNames[] = "hidden_size n_embd d_model dim";
inline constexpr char kHeadsNames[] =
    "num_attention_heads n_head n_heads num_heads decoder_num_attention_heads "
    "encoder_num_attention_heads";
inline constexpr char kLayersNames[] =
    "num_hidden_layers n_layer n_layers num_layers";
inline constexpr char kLengthNames[] =
    "max_position_embeddings n_positions max_seq_len seq_length";
// All keys that occur in the Family::interval_keys of some row.
inline constexpr char kIntervalNames[] =
    "sliding_window_pattern _sliding_window_pattern global_attn_every_n_layers "
    "full_attention_interval layer_group_size";

// Keys from which a few classes read the base.
inline constexpr char kBaseNames[] =
    "rotary_emb_base rope_embedding_base rotary_embedding_base rope_base "
    "rope_freq_base";
bool IsBaseName(absl::string_view key);

}  // namespace posenc::core::interpretation
