// gguf.scaling-missing, gguf.scaling-type-missing, gguf.original-length, and
// scalings that differ.

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/doctor/gguf_case.h"

namespace posenc::core::doctor {
namespace {

std::string OriginalFlag(const GgufCase& one) {
  return absl::StrCat(" --yarn-orig-ctx ",
                      one.Yarn()->original_max_position_embeddings);
}

// Returns flags of llama.cpp that express the reference's scaling.
std::string ScalingFlags(const GgufCase& one) {
  const bool yarn = one.Yarn() != nullptr;
  return absl::StrCat("--rope-scaling ", yarn ? "yarn" : "linear",
                      " --rope-scale ", PlainNumber(one.ReferenceFactor()),
                      yarn ? OriginalFlag(one) : "");
}

// Returns the flags of the command line that scale; "" if no flag scales.
std::string FlagsThatScale(const GgufCase& one) {
  std::vector<std::string> given;
  for (const char* flag : {"--rope-scaling", "--rope-scale",
                           "--rope-freq-scale", "--yarn-orig-ctx"}) {
    if (const std::string* const value = one.runtime().Find(flag)) {
      given.push_back(absl::StrCat(flag, " ", *value));
    }
  }
  return absl::StrJoin(given, " ");
}

// Reports a scaling in the file or in flags, if the reference has no scaling.
void CheckUnscaled(GgufCase* one) {
  const double factor = one->gguf().factor.value_or(1);
  if (one->gguf().ScalingType() == "none" || factor == 1 ||
      !one->Tensors().empty()) {
    return;
  }
  one->MarkExplained();
  one->MarkAmplitudeExplained();
  const std::string flags = FlagsThatScale(*one);
  // If flags extend the model to more positions, the scaling is intentional.
  if (!flags.empty() && !one->file().factor &&
      RuntimeLength(one->runtime()) >
          one->config()->MaxPositions().value_or(0)) {
    return;
  }
  const std::string key = one->gguf().Key("rope.scaling.factor");
  one->Add(
      "readers.frequencies",
      {"llama.cpp",
       Say("gguf.scales", {flags.empty() ? key : flags + ": the factor", factor,
                           one->gguf().ScalingType(), one->config_path()}),
       flags.empty() ? Say("gguf.scales-fix", {one->config_path()})
                     : absl::StrCat("leave out ", flags)},
      {key});
}

// Reports a type, factor or original length that differs from the
// reference's.
void CheckOtherScaling(GgufCase* one, const char* type) {
  std::vector<std::string> facts, keys;
  const auto tell = [&](const char* name, const Value& is,
                        const Value& wanted) {
    keys.push_back(one->gguf().Key(name));
    facts.push_back(absl::StrCat(keys.back(), " is ", is.text, " instead of ",
                                 wanted.text));
  };
  if (one->gguf().ScalingType() != type) {
    tell("rope.scaling.type", one->gguf().ScalingType(), type);
  }
  const double factor = one->gguf().factor.value_or(1);
  if (DiffersBy(factor, one->ReferenceFactor())) {
    tell("rope.scaling.factor",
         GivenOr("absent: ", one->gguf().factor.has_value(), factor),
         one->ReferenceFactor());
  }
  if (!facts.empty()) one->MarkAmplitudeExplained();
  const auto& original = one->gguf().original_context_length;
  if (one->Yarn() != nullptr && one->gguf().ScalingType() == "yarn" &&
      original && *original != one->Yarn()->original_max_position_embeddings) {
    tell("rope.scaling.original_context_length", *original,
         one->Yarn()->original_max_position_embeddings);
  }
  if (facts.empty()) return;
  const std::string flags = FlagsThatScale(*one);
  one->Explain("readers.frequencies",
               {"llama.cpp",
                absl::StrCat(absl::StrJoin(facts, ", "), "; ",
                             one->config_path(), " has ", one->ReferenceText()),
                absl::StrCat(flags.empty()
                                 ? "convert it again, or "
                                 : absl::StrCat("instead of ", flags, " give "),
                             ScalingFlags(*one))},
               keys);
}

}  // namespace

void CheckGgufScaling(GgufCase* one) {
  const bool yarn = one->Yarn() != nullptr;
  if (!yarn && one->ReferenceScaling<LinearScaling>() == nullptr &&
      IsScaled(*one->reference())) {
    return;  // tensors of factors scale it
  }
  if (one->ReferenceFactor() == 1) return CheckUnscaled(one);
  const std::string key = one->gguf().Key("rope.scaling.type");
  const char* const type = yarn ? "yarn" : "linear";
  const bool none = one->gguf().scaling_type == "none";
  const bool by_flag = none && one->file().ScalingType() != "none";
  if (none || (!one->gguf().scaling_type && !one->gguf().factor &&
               one->Tensors().empty())) {
    Finding& finding = one->Explain(
        "gguf.scaling-missing",
        {key, none ? "none" : "absent", by_flag ? " by --rope-scaling" : "",
         one->config_path(), one->ReferenceText(), ScalingFlags(*one)},
        {key});
    if (by_flag) finding.fix = "leave out --rope-scaling none";
  } else if (!one->gguf().scaling_type && one->gguf().factor && yarn) {
    one->Explain(
        "gguf.scaling-type-missing",
        {key, *one->gguf().factor, one->config_path(), one->ReferenceText(),
         type, one->gguf().original_context_length ? "" : OriginalFlag(*one)},
        {key});
  } else {
    return CheckOtherScaling(one, type);
  }
  one->MarkAmplitudeExplained();
}

void CheckGgufOriginalLength(GgufCase* one) {
  const std::string type = one->gguf().ScalingType();
  // The converter writes longrope's factors, but not the scaling type.
  const bool has_lists =
      !one->gguf().factors_long.empty() || !one->gguf().factors_short.empty();
  if (!(type == "yarn" || type == "longrope" || has_lists) ||
      one->gguf().original_context_length) {
    return;
  }
  const std::int64_t original =
      one->Yarn() != nullptr ? one->Yarn()->original_max_position_embeddings
      : one->reference() ? one->reference()->original_max_position_embeddings
                         : 0;
  if (one->gguf().context_length == original) return;
  const std::string key =
      one->gguf().Key("rope.scaling.original_context_length");
  const std::string taken = one->gguf().context_length
                                ? absl::StrCat(*one->gguf().context_length)
                                : "nothing";
  std::string wanted = absl::StrCat(original), given = wanted;
  if (original == 0) {
    wanted = "the original length, which is not known";
    given = one->gguf().context_length
                ? absl::StrCat(taken, " if the model was trained with that")
                : "the original length";
  }
  // --yarn-orig-ctx affects only YaRN. For LongRoPE, only the file's key
  // decides between the short and the long factors.
  const std::string flag =
      type == "yarn" ? absl::StrCat("--yarn-orig-ctx ", given)
                     : absl::StrCat("--override-kv ", key, "=int:", given);
  one->Explain("gguf.original-length", {key, taken, wanted, flag, given},
               {key});
  // longrope's amplitude does not depend on the original length.
  if (type == "yarn") one->MarkAmplitudeExplained();
}

}  // namespace posenc::core::doctor
