// The reason and the facts of a call's error (C++17).

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace posenc {

// Returns the name of the server's posenc.v1.ErrorReason, such as
// "ERROR_REASON_FIELD_INVALID": branch on this name, not on the message. Empty
// if the error does not come from the server, or has no reason.
std::string ErrorReason(const absl::Status& status);

// Returns the fact `name` of an error, such as "field"; errors.proto lists the
// facts of each reason. For a stream, "messageIndex" is the index of the faulty
// message, counted from 0. "requestId" is the id in the call's metadata,
// whether the server or the client ended the call. If the library itself
// refuses an argument, the error has a "field", too. Empty if the error has no
// fact of this name.
std::string ErrorFact(const absl::Status& status, absl::string_view name);

}  // namespace posenc
