#include "core/interpretation/indexer.h"

#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "core/error.h"
#include "core/interpretation/provenance.h"

namespace posenc::core::interpretation {
namespace {

// The pairs of the class, or of a key that vLLM reads and transformers does
// not.
Pairing PairingOfIndexer(const JsonObject& config, const Family& family,
                         const ProfileRules& rules) {
  constexpr absl::string_view kKey = "indexer_rope_interleave";
  const std::optional<bool> given = config.Flag(kKey);
  if (!given) return family.indexer;
  const Pairing pairing = *given ? Pairing::kInterleaved : Pairing::kHalfSplit;
  if (rules.vllm_modules) return pairing;
  if (pairing != family.indexer) {
    config.Warn(kKey, " is ", *given ? "true" : "false",
                ", which transformers does not read: its class's indexer has ",
                *given ? "half-split" : "interleaved",
                " pairs, which are used");
  }
  return family.indexer;
}

}  // namespace

void MakeIndexer(const JsonObject& config, const std::string& model_type,
                 const Family& family, const ProfileRules& rules,
                 ModelRope* rope) {
  if (family.indexer == Pairing::kUnspecified) {
    config.report().Refuse(FieldInvalid(
        "part", absl::StrCat("no indexer is known of model_type ",
                             model_type.empty() ? "(absent)" : model_type)));
    return;
  }
  const absl::string_view key = family.indexer_key;
  std::optional<std::int64_t> width = config.Integer(key);
  // MiniMax M3's class takes the older name, where a file has it, before its
  // own.
  const JsonObject older = config.Object("sparse_attention_config");
  if (const auto given = older.Integer("sparse_index_dim")) width = given;
  if (!width && family.indexer_head_dim == 0) {
    config.Fail(key, "is absent, with which the class of model_type ",
                model_type, " has no indexer");
    return;
  }
  if (!width) {
    config.Assume(key, absl::StrCat(family.indexer_head_dim), DefaultOf(rules));
  }
  rope->head_dim = width.value_or(family.indexer_head_dim);
  // Scores of the indexer have 1 / sqrt(head_dim) alone.
  rope->softmax_scale_multiplier = 1;
  if (rope->spec.nope) return;
  if (rope->head_dim < rope->spec.rotary_dim) {
    config.Fail(
        key, "is ", rope->head_dim, ", and ",
        family.width == RotaryWidth::kMla ? "qk_rope_head_dim "
                                          : "the channels that turn are ",
        rope->spec.rotary_dim, "; an indexer rotates that slice of its heads");
    return;
  }
  rope->spec.slice = family.indexer_slice;
  rope->spec.pairing = PairingOfIndexer(config, family, rules);
  // transformers writes interleaved pairs as its attention does.
  rope->spec.output_pairing = rope->spec.pairing == Pairing::kInterleaved &&
                                      rules.profile == Profile::kHf
                                  ? family.output_pairing
                                  : Pairing::kUnspecified;
}

}  // namespace posenc::core::interpretation
