// The checks of doctor: one row of data each. $n is filled in by the check.

#include "core/model/doctor/finding.h"

namespace posenc::core {
namespace {

constexpr Severity kError = Severity::kError;
constexpr Severity kWarning = Severity::kWarning;
constexpr Severity kNote = Severity::kNote;

}  // namespace

const std::vector<CheckRow>& CheckRows() {
  static const auto* const rows = new std::vector<CheckRow>{
      {"config.new-spelling-only", kNote, true,
       "rope_parameters alone, where a reader of the older keys differs",
       "$0: only rope_parameters is given; $2 instead of $1",
       "beside rope_parameters add $3", "MarinFold 184"},
      {"config.both-spellings", kError, false,
       "rope_scaling and rope_parameters that say different things",
       "$0: rope_scaling says $1, rope_parameters $2; transformers takes the "
       "first, llama.cpp's converter the second",
       "keep one of the two: remove $3", "llama.cpp 18013"},
      {"config.theta-conflict", kError, false,
       "a rope_theta beside the dict unlike the one inside it",
       "$0: rope_theta is $1 and $2.rope_theta $3; transformers 5 takes the "
       "second, transformers 4 and mlx-lm the first",
       "make them equal: \"rope_theta\": $3 in both places", "vLLM 44158"},
      {"config.theta-absent", kWarning, false,
       "no base, where readers' defaults or the published base differ",
       "$0: rope_theta is absent; $1", "write it: \"rope_theta\": $2",
       "DeepSpeed 8345"},
      {"config.type-conflict", kError, false,
       "\"type\" and \"rope_type\" that differ",
       "$0: \"type\" is $1 and \"rope_type\" $2; mlx-lm reads the first, "
       "transformers the second",
       "remove \"type\" from $3", ""},
      {"config.type-missing", kError, false, "a factor without a type",
       "$0: $1 has $2 and no rope_type: transformers ignores it",
       "add \"rope_type\": \"$3\" to $1", "marin 7156"},
      {"config.type-unknown", kError, false,
       "a type that a reader refuses or does not know",
       "$0: rope_type $1 is known to $2; $3 refuse it", "spell it $4",
       "vLLM 56446"},
      {"config.key-unread", kNote, false,
       "a rotary key that a reader skips; the numbers are alike",
       "$0: $1 is not read by $2", "$3", ""},
      {"config.key-twice", kWarning, false, "a key that stands twice",
       "$0: $1 stands twice, as $2 and as $3; every reader takes the last",
       "remove one of the two: $3 is what counts", ""},
      {"config.factor-ratio", kWarning, false,
       "a factor unlike the new length over the original one",
       "$0: $1.factor is $2, and max_position_embeddings $3 / "
       "original_max_position_embeddings $4 is $5; transformers took the ratio "
       "before PR 40320",
       "make them agree: $6", "transformers 38224"},
      {"config.original-absent", kNote, true,
       "a scaling without its original length",
       "$0: $1 has no original_max_position_embeddings: $2",
       "write it: \"original_max_position_embeddings\": $3 in $1, or the "
       "length that the model was trained with",
       "Megatron-LM 1418"},
      {"config.length-not-raised", kWarning, false,
       "a factor above 1, and a length that is still the original one",
       "$0: factor is $1 and max_position_embeddings $2, the original length: "
       "engines cap requests or tables at $2",
       "raise it: \"max_position_embeddings\": $3", "sglang 2943; vLLM 9490"},
      {"config.tokenizer-length", kNote, false,
       "model_max_length unlike max_position_embeddings",
       "$0: model_max_length is $1, and max_position_embeddings of $2 $3; "
       "engines take the smaller",
       "set model_max_length in $0 to $3", "vLLM 3892"},
      {"config.factor-below-one", kWarning, false, "a factor below 1",
       "$0: $1.factor is $2: below 1 it spreads positions instead of "
       "compressing them",
       "set factor in $1 to $3 if positions are to be compressed, or $4", ""},
      {"config.longrope-switch", kWarning, false,
       "longrope, whose list readers choose in different ways",
       "$0: longrope: at $1 tokens keys in the cache were turned with the "
       "short "
       "list and later ones are with the long one; $2",
       "Reposition cached keys (posenc reposition --length $1 --new-length $3) "
       "when a sequence passes $1 tokens, or fix the length that the engine "
       "serves",
       "transformers 33129; vLLM 27431"},
      {"config.longrope-lengths", kError, false,
       "longrope's lists that have not one value for each pair",
       "$0: $1 for $2 pairs (rotary_dim $3)",
       "give short_factor and long_factor $2 values each", ""},
      {"config.dynamic-ntk", kWarning, false,
       "dynamic scaling, whose base keys in a cache do not follow",
       "$0: dynamic: the base follows the sequence's length beyond $1, and "
       "keys "
       "that are in the cache do not follow; $2",
       "fix the base for the length to be served: for example \"rope_type\": "
       "\"yarn\" with a factor, or serve at most $1 tokens",
       "TensorRT-LLM 1299"},
      {"config.partial-default", kNote, true,
       "an absent share of rotated channels, where a reader takes another than "
       "the class",
       "$0: $1 is absent, and the class's default is $2: $3",
       "write it: \"$1\": $2", "mlx-lm 1698; vLLM 43770"},
      {"config.partial-conflict", kError, false,
       "keys that tell different rotated widths",
       "$0: the rotated width is told in ways that disagree: $1",
       "keep one of them: remove $2", ""},
      {"config.head-dim-derived", kWarning, false,
       "an absent head_dim that is no power of two or no whole number, or one "
       "unlike k_proj's rows",
       "$0: $1", "$2", ""},
      {"config.layers-differ", kNote, false,
       "layers with another base, scaling or width, or none",
       "$0: $1; one rope for all layers is wrong",
       "nothing is to be done in the file: give layer_index (or layer_type) "
       "wherever one rope is asked for",
       "LMCache 4666"},
      {"config.sections", kError, false,
       "an mrope_section that is absent, or of another sum than the pairs",
       "$0: $1", "add \"mrope_section\": $2 to $3", "exllamav3 332"},
      {"config.unlike-published", kWarning, false,
       "a preset's shape with another base or scaling",
       "$0: has the shape of $1: $1 has $2, here $3",
       "take the published values, unless the model was trained with others: "
       "$4",
       "llama-models 241; LongLoRA 181"},
      {"readers.frequencies", kNote, true,
       "a reader whose frequencies differ, where no check of the file says why",
       "$0: $1's frequencies differ: $2", "$3", "vLLM 28244"},
      {"readers.amplitude", kNote, true, "a reader whose amplitude differs",
       "$0: $1's amplitude differs: $2 against $3$4", "$5", "DeepSeek-R1 684"},
      {"readers.softmax", kNote, true,
       "a reader whose factor on the softmax differs",
       "$0: $1's factor on the softmax differs: $2 against $3",
       "give $1 the softmax scale of the reference: $3 times the usual one",
       "transformers 47435"},
      {"readers.axes", kWarning, false, "a reader whose position axes differ",
       "$0: $1's position axes differ: $2; text is right, images are not",
       "serve text alone with $1, or another reader", "MNN 4133"},
      {"readers.pairing", kError, false,
       "a reader that rotates another width, slice or pairing",
       "$0: $1 rotates other channels of the same weights: $2",
       "use another reader, or convert the weights (posenc convert) if pairing "
       "alone differs",
       "maxtext 4616"},
      {"readers.refuses", kWarning, false, "a reader that cannot run the model",
       "$0: $1 cannot run it: $2", "use another reader, or mend what $1 names",
       ""},
      {"params.config-differs", kNote, true,
       "params.json and config.json that say different things",
       "$0: $1; $2: $3", "$4", "vLLM 57563; llama.cpp 22612"},
      {"tables.inv-freq-differs", kError, false,
       "a saved table unlike the configuration",
       "$0: $1 is as with $2, $3 says $4",
       "set $5 in $3: the trained one is likelier the table's; or remove the "
       "table and keep the configuration",
       ""},
      {"tables.inv-freq-rounded", kWarning, false,
       "a saved table that was rounded to 16 or 8 bits",
       "$0: $1 is rounded to $2: $3",
       "recompute it in float32, or remove the table from the file",
       "Automodel 2549"},
      {"tables.inv-freq-layers", kError, false,
       "layers' tables that differ without cause, or hold no frequencies",
       "$0: $1",
       "recompute the table from the configuration, or remove it from the file",
       "FastPLMs 47"},
      {"gguf.freq-base", kError, false,
       "an absent base, or one unlike the configuration's",
       "$0: $1 is $2: $3 for $4",
       "--override-kv $1=float:$4, or convert it anew", "llama.cpp 2768"},
      {"gguf.scaling-missing", kError, false,
       "no scaling, where the configuration has one",
       "$0: $1 is absent, $2 has $3", "convert it anew, or $4",
       "llama.cpp 13322"},
      {"gguf.scaling-type-missing", kError, false,
       "a factor without a type, which is linear then",
       "$0: without $1 the factor is linear, by $2; $3 has $4",
       "write $1 = $5, or --rope-scaling $5$6", ""},
      {"gguf.original-length", kNote, true,
       "YaRN or longrope without the original length",
       "$0: $1 is absent: $2 for $3", "start it with $4, or write $1 = $5", ""},
      {"gguf.factor-tensors", kError, false,
       "factors that are absent, of another length or value, or beside a "
       "factor",
       "$0: $1", "convert it anew with a current convert_hf_to_gguf.py$2",
       "ik_llama.cpp 402"},
      {"gguf.amplitude", kNote, true, "an amplitude unlike the configuration's",
       "$0: amplitude $1 by $2, and $3 by $4",
       "--override-kv $5, or convert it anew", "llama.cpp 17945"},
      {"gguf.yarn-ext-factor", kError, false,
       "a yarn_ext_factor that is neither 0, 1 nor negative",
       "$0: $1 is $2; 0 (no ramp), 1 (YaRN) and negative numbers (unset) have "
       "a "
       "meaning",
       "--override-kv $1=float:1, or --yarn-ext-factor 1", "ik_llama.cpp 2003"},
      {"gguf.dimension-count", kError, false,
       "another rotated width than the configuration's",
       "$0: $1 is $2, and $3 rotates $4 channels",
       "--override-kv $1=int:$4, or convert it anew", "llama.cpp 12957"},
      {"gguf.sections", kError, false,
       "sections unlike mrope_section, or not four of them", "$0: $1 is $2",
       "convert it anew: $1 = $3", "llama.cpp 25334"},
      {"gguf.swa", kWarning, false,
       "a base or width of sliding layers unlike the configuration's",
       "$0: $1 is $2, and the sliding layers of $3 have $4",
       "convert it anew, or --override-kv $1=$5:$4", "llama.cpp 14367"},
      {"gguf.pairing", kError, false,
       "rows of q_proj in another order than the architecture's", "$0: $1",
       "convert it anew with the converter of this architecture",
       "TinyLlama 24"},
      {"gguf.other-loaders", kNote, false,
       "scaling or factors that other loaders drop",
       "$0: it has $1: transformers' GGUF loader keeps rope.freq_base alone, "
       "others drop rope_freqs",
       "run it with llama.cpp, or give other loaders the config.json",
       "vLLM 7268"},
      {"gguf.unknown-architecture", kNote, false,
       "an architecture of which no row tells the pairing",
       "$0: architecture $1 is not known here: its pairing is unknown",
       "nothing is to be done in the file: frequencies are compared all the "
       "same",
       ""},
      {"runtime.override-drops-theta", kNote, true,
       "an override that replaces rope_parameters without the base",
       "--runtime: $0 replaces rope_parameters without rope_theta; $1 then "
       "takes $2 for $3",
       "add \"rope_theta\": $3 to it", "recipes 856"},
      {"runtime.flag-gone", kError, false,
       "a flag that the newest known version refuses",
       "--runtime: $0 is gone; vLLM from 0.11.1 on refuses it", "$1", ""},
      {"runtime.flag-unread", kWarning, false,
       "a flag that is taken and has no effect",
       "--runtime: $0 has no effect: $1", "$2", ""},
      {"runtime.length-beyond", kWarning, false,
       "a longer served length than any file claims, and no scaling",
       "--runtime: $0 is $1, beyond $2, $3, and nothing is scaled: the model "
       "was not trained with such distances",
       "serve at most $3$4", ""},
      {"cache.mismatch", kError, false,
       "a layer whose moved keys are not the engine's own", "$0: $1", "$2", ""},
      {"cache.not-certifiable", kError, false,
       "layers or shapes that cannot be compared", "$0: $1", "$2", ""},
  };
  return *rows;
}

}  // namespace posenc::core
