// The reason and the facts of a call's error (C++17).

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace posenc {

// Returns the name of the server's posenc.v1.ErrorReason, such as
// "ERROR_REASON_FIELD_INVALID": branch on this, not on the message. Empty if
// the error is not the server's, or has no reason.
std::string ErrorReason(const absl::Status& status);

// Returns a fact that comes with the reason (errors.proto lists them), such as
// "field" or, for streams, "messageIndex": the message at fault, counted from
// 0. "requestId" is the id in the call's metadata, whether the server or the
// client ended the call. Errors about arguments that the library itself refuses
// have a "field", too. Empty if there is no fact of that name.
std::string ErrorFact(const absl::Status& status, absl::string_view name);

}  // namespace posenc
