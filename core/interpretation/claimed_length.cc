#include "core/interpretation/claimed_length.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/interpretation/classes/families.h"
#include "core/interpretation/composite.h"
#include "core/interpretation/json_object.h"
#include "core/interpretation/presets.h"

namespace posenc::core::interpretation {

std::int64_t ClaimedLength(const RopeSource& source) {
  const auto text = ConfigOf(source);
  const json root = text ? ParseText(*text).value : json();
  Report ignored;
  return root.is_object() ? ClaimedLength(JsonObject(&root, "", &ignored)) : 0;
}

std::int64_t ClaimedLength(const JsonObject& root) {
  std::string ignored;
  const JsonObject part = LanguagePart(root, &ignored);
  const std::string names = absl::StrCat(kLengthNames, " max_seqlen");
  for (const absl::string_view key : absl::StrSplit(names, ' ')) {
    for (const JsonObject* object : {&part, &root}) {
      const json& value = object->At(key);
      if (!value.is_number()) continue;
      const double length = value.get<double>();
      if (length >= 1 && length <= 0x1p31) {
        return static_cast<std::int64_t>(length);
      }
    }
  }
  return 0;
}

}  // namespace posenc::core::interpretation
