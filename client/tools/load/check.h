// Checks the heads that ApplyRope and Reposition return, for --verify. The
// heads are compared with the contract's formula in long double
// (client/tools/check, which shares no code with the server). If there are more
// than 2^21 elements, every n-th token is checked. Frequencies are
// 10000^(-2i/d) for the default encoding. For a preset the frequencies come
// from the server's ResolveRope, because the rotation is checked, not the
// preset.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "client/tools/load/workload.h"
#include "posenc/client.h"

namespace posenc::load {

// Checks the server's `answer` to `request` of `rpc`; both are serialized.
// `preset_rope` is ResolveRope's answer for the workload's preset; null without
// a preset. Answers of other RPCs are not checked. Returns DATA_LOSS for a
// wrong answer, and names the first wrong element. Returns UNIMPLEMENTED for
// encodings that this check does not support.
absl::Status CheckAnswer(const std::string& rpc, const std::string& request,
                         const std::string& answer,
                         const v1::ResolveRopeResponse* preset_rope);

}  // namespace posenc::load
