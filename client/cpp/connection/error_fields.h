// The field names of errors.

#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace posenc {

// Removes `path` from the field names of the server's error, in text and
// details: `table.rows` becomes `rows`. This is for requests that the library
// wraps in another message.
absl::Status OutsideOf(absl::string_view path, const absl::Status& error);

// Makes the error of an argument or option that the client itself refuses. The
// text and the details of this error name the field as the server's errors do:
// "field: fact".
absl::Status WrongArgument(absl::string_view field, absl::string_view fact);

}  // namespace posenc
