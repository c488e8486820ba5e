// What an engine may have done to keys of a cache instead of what the
// configuration says.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "client/cli/key_motion.h"
#include "core/doctor/config_case.h"

namespace posenc::cli {

// A move that an engine may have made instead, and how to mend it.
struct Explanation {
  std::string did;
  std::string fix;
  Motion motion;
};

// Explanations for a layer of the group, in the order in which they are tried.
// The configuration must have a reference.
std::vector<Explanation> ExplanationsOf(const core::doctor::ConfigCase& config,
                                        std::size_t group,
                                        std::int64_t head_dim,
                                        std::int64_t shift);

}  // namespace posenc::cli
