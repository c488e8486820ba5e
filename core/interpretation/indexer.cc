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
  constexpr absl::string_view kWidth = "index_head_dim";
  constexpr std::int64_t kDefaultWidth = 128;
  const std::optional<std::int64_t> width = config.Integer(kWidth);
  if (!width) {
    config.Assume(kWidth, absl::StrCat(kDefaultWidth), DefaultOf(rules));
  }
  rope->head_dim = width.value_or(kDefaultWidth);
  // Scores of the indexer have 1 / sqrt(head_dim) alone.
  rope->softmax_scale_multiplier = 1;
  if (rope->spec.nope) return;
  if (rope->head_dim < rope->spec.rotary_dim) {
    config.Fail(kWidth, "is ", rope->head_dim, ", and qk_rope_head_dim ",
                rope->spec.rotary_dim,
                "; an indexer rotates that slice of its heads");
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
