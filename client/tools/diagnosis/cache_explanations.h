// Moves of cached keys that an engine may have made instead of the
// configuration's.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "client/tools/diagnosis/key_motion.h"
#include "core/doctor/config_case.h"

namespace posenc::cli {

// A move that an engine may have made instead, and its remedy.
struct Explanation {
  std::string did;
  std::string fix;
  Motion motion;
};

// Returns the explanations for a layer of the group, in the order in which they
// are tried. `config` must have a reference.
std::vector<Explanation> ExplanationsOf(const core::doctor::ConfigCase& config,
                                        std::size_t group,
                                        std::int64_t head_dim,
                                        std::int64_t shift);

}  // namespace posenc::cli
