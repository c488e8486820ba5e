#include "core/interpretation/classes/families.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "core/interpretation/classes/profile.h"

namespace posenc::core::interpretation {
namespace {

// The family of unknown model types is Llama's family with a few more keys,
// such as partial_rotary_factor.
constexpr Family kOther = {.width = RotaryWidth::kPartial,
                           .interval_keys = kIntervalNames,
                           .any_names = true,
                           .scaling_layers = true};
constexpr Family kOtherLatent = {.pairing = Pairing::kInterleaved,
                                 .output_pairing = Pairing::kHalfSplit,
                                 .width = RotaryWidth::kMla,
                                 .slice = RotarySlice::kTrailing,
                                 .interval_keys = kIntervalNames,
                                 .softmax_mscale = true,
                                 .reads_interleave = true,
                                 .any_names = true};

constexpr Family kFamilies[] = {
#include "families.inc"
};

std::string Underscored(absl::string_view model_type) {
  return absl::StrReplaceAll(model_type, {{"-", "_"}, {" ", "_"}});
}

}  // namespace

std::string ModelKey(absl::string_view model_type) {
  return std::string(absl::StripSuffix(Underscored(model_type), "_text"));
}

absl::Span<const Family> Families() { return kFamilies; }

const Family& FindFamily(absl::string_view model_type) {
  for (const std::string& key :
       {Underscored(model_type), ModelKey(model_type)}) {
    const Family* family = FindRow(kFamilies, &Family::model_types, key);
    if (family != nullptr) return *family;
  }
  return kOther;
}

bool IsBaseName(absl::string_view key) { return IsAmong(key, kBaseNames); }

const Family& UnknownLatentFamily() { return kOtherLatent; }

bool IsRemote(absl::string_view model_type) {
  return std::any_of(
      std::begin(kFamilies), std::end(kFamilies), [&](const Family& family) {
        return !model_type.empty() &&
               IsAmong(model_type, family.remote ? family.model_types
                                                 : family.remote_types);
      });
}

}  // namespace posenc::core::interpretation
