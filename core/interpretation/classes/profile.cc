#include "core/interpretation/classes/profile.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace posenc::core::interpretation {
namespace {

constexpr ProfileRules kRules[] = {
#include "profiles.inc"
};

}  // namespace

const ProfileRules& RulesOf(Profile profile) {
  for (const ProfileRules& rules : kRules) {
    if (rules.profile == profile) return rules;
  }
  return kRules[0];
}

ProfileRules RulesFor(const ProfileVersion& reader,
                      absl::string_view model_type) {
  if (FindReadingRow(reader.profile, reader.version, model_type,
                     ReadingRule::kByTransformers) != nullptr) {
    return RulesOf(Profile::kHf);
  }
  ProfileRules rules = RulesOf(reader.profile);
  rules.version = reader.version;
  return rules;
}

const ReadingRow* ClassRow(absl::string_view model_type, ReadingRule rule) {
  return FindReadingRow(Profile::kHf, {}, model_type, rule);
}

std::string ClassOf(absl::string_view model_type, absl::string_view project) {
  return absl::StrCat(project, absl::EndsWith(project, "s") ? "'" : "'s",
                      " class", model_type.empty() ? "" : " of model_type ",
                      model_type);
}

bool ReadsByClass(const ProfileRules& rules) {
  return rules.profile == Profile::kHf || rules.vllm_modules;
}

std::string KnownTypes(const ProfileRules& rules,
                       absl::string_view model_type) {
  std::string types(rules.rope_types);
  for (const ReadingRow& row : ReadingRows()) {
    if (row.rule == ReadingRule::kKnowsType && row.reader == rules.profile &&
        IsSince(rules.version, row.since) &&
        (row.families.empty() || IsAmong(model_type, row.families))) {
      absl::StrAppend(&types, " ", row.what);
    }
  }
  return types;
}

bool IsAmong(absl::string_view name, absl::string_view names) {
  for (const absl::string_view one : absl::StrSplit(names, ' ')) {
    if (one == name) return true;
  }
  return false;
}

}  // namespace posenc::core::interpretation
