#include "core/interpretation/class_defaults.h"

#include "core/interpretation/profile.h"

namespace posenc::core::interpretation {
namespace {

constexpr ClassDefaults kRows[] = {
#include "class_defaults.inc"
};

}  // namespace

const ClassDefaults* FindClassDefaults(absl::string_view model_type) {
  for (const ClassDefaults& row : kRows) {
    if (IsAmong(model_type, row.model_types)) return &row;
  }
  return nullptr;
}

}  // namespace posenc::core::interpretation
