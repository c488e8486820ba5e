// A base that a file gives by a key of another class.

#pragma once

#include <algorithm>

#include "core/doctor/config_case.h"
#include "core/interpretation/families.h"

namespace posenc::core::doctor {

// True if there is a key for a base that the class does not read.
inline bool HasOtherBase(const ConfigCase& config) {
  const auto items = config.part().items();
  return std::any_of(items.begin(), items.end(), [&](const auto& item) {
    return interpretation::IsBaseName(item.key()) &&
           item.key() != config.family().theta_key && item.value().is_number();
  });
}

}  // namespace posenc::core::doctor
