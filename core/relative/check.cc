#include "core/relative/check.h"

#include "absl/strings/str_cat.h"
#include "core/base/error.h"

namespace posenc::core {
absl::Status CheckCount(absl::string_view field, std::int64_t count) {
  if (count >= 1) return absl::OkStatus();
  const std::string fact = absl::StrCat("is ", count, "; must be at least 1");
  return count == 0 ? FieldRequired(field, fact) : FieldInvalid(field, fact);
}

absl::Status CheckHeads(std::int64_t heads) {
  if (heads <= kMaxHeads) return CheckCount("heads", heads);
  return FieldInvalid("heads",
                      absl::StrCat("is ", heads, "; at most ", kMaxHeads));
}

absl::Status CheckWidth(absl::string_view field, absl::string_view name,
                        std::int64_t width) {
  if (width <= kMaxWidth) return absl::OkStatus();
  return FieldInvalid(field, absl::StrCat(name, " is ", width,
                                          "; must be at most ", kMaxWidth));
}

}  // namespace posenc::core
