// Which fields an error names.

#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace posenc {

// The server's error with the fields of the message at `path` named as if that
// message were the request: `table.rows` becomes `rows`, in text and details.
// For requests that the library has wrapped in another message by itself.
absl::Status OutsideOf(absl::string_view path, const absl::Status& error);

// The error of an argument or an option that the client refuses itself. Its
// text and details name the field as the server's errors do: "field: fact".
absl::Status WrongArgument(absl::string_view field, absl::string_view fact);

}  // namespace posenc
