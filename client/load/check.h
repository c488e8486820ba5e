// Whether an answer has the right values: its elements (of more than 2^21,
// those of every n-th token) against the formula of the contract in long
// double, computed here and sharing nothing with the server. Of presets the
// frequencies are the server's own (ResolveRope); those of the default encoding
// are 10000^(-2i/d).

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "client/load/workload.h"
#include "posenc/client.h"

namespace posenc::load {

// `answer` to request `request` of `rpc`, both serialized. `preset_rope` is
// what ResolveRope says of the workload's preset; null without one. Errors:
// DATA_LOSS for a wrong answer, UNIMPLEMENTED for encodings that are not
// checked.
absl::Status CheckAnswer(const std::string& rpc, const std::string& request,
                         const std::string& answer,
                         const v1::ResolveRopeResponse* preset_rope);

}  // namespace posenc::load
