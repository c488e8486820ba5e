// Mistakes of engines: moves of cached keys that differ from the move that the
// configuration defines.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "client/tools/diagnosis/key_motion.h"
#include "core/doctor/config_case.h"

namespace posenc::cli {

// A wrong move that an engine may have made, and the remedy.
struct Explanation {
  std::string did;
  std::string fix;
  Motion motion;
};

// Returns the explanations for a layer of this layer group, in the order in
// which the certificate tries them. `config` must have a reference.
std::vector<Explanation> ExplanationsOf(const core::doctor::ConfigCase& config,
                                        std::size_t group,
                                        std::int64_t head_dim,
                                        std::int64_t shift);

}  // namespace posenc::cli
