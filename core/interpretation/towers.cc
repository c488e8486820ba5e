#include "core/interpretation/towers.h"

#include "core/interpretation/profile.h"

namespace posenc::core::interpretation {
namespace {

constexpr Tower kTowers[] = {
#include "towers.inc"
};

}  // namespace

const Tower* FindTower(absl::string_view model_type) {
  if (model_type.empty()) return nullptr;
  for (const Tower& tower : kTowers) {
    if (IsAmong(model_type, tower.model_types)) return &tower;
  }
  return nullptr;
}

const Tower* FindTowerOfParent(absl::string_view parent, bool typed) {
  if (parent.empty()) return nullptr;
  for (const Tower& tower : kTowers) {
    if (IsAmong(parent, tower.parents)) return &tower;
    if (!typed && IsAmong(parent, tower.default_of)) return &tower;
  }
  return nullptr;
}

}  // namespace posenc::core::interpretation
