// The details of errors, and the field names in them.

#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace posenc {

// Type of a payload of an absl::Status: a google.rpc.Status, from the server or
// from this client. calls.cc and error_fields.cc add it, error_fields.cc reads
// it.
constexpr char kStatusType[] = "type.googleapis.com/google.rpc.Status";

// Type of the detail in this google.rpc.Status that has the reason and the
// field, and the domain of posenc's reasons.
constexpr char kErrorInfoType[] = "type.googleapis.com/google.rpc.ErrorInfo";
constexpr char kErrorDomain[] = "posenc";

// Type of the payload with the request id of the failed call.
constexpr char kRequestIdType[] = "posenc/request-id";

// Removes `path` from the field names of the server's error, in text and
// details: `table.rows` becomes `rows`. This is needed if the library wraps the
// caller's request in another message.
absl::Status OutsideOf(absl::string_view path, const absl::Status& error);

// Makes the error of an argument or option that the client itself refuses. The
// text and the details of this error name the field as the server's errors do:
// "field: fact".
absl::Status WrongArgument(absl::string_view field, absl::string_view fact);

}  // namespace posenc
