#pragma once

namespace posenc {

// Payloads of an absl::Status, which calls.cc and error_fields.cc attach and
// messages.cc reads: a google.rpc.Status, the server's or of the same form.
constexpr char kStatusType[] = "type.googleapis.com/google.rpc.Status";

// The type of the detail in it that has the reason and the field, and the
// domain that posenc's reasons belong to.
constexpr char kErrorInfoType[] = "type.googleapis.com/google.rpc.ErrorInfo";
constexpr char kErrorDomain[] = "posenc";

// The payload that holds the request id of the call that ended so.
constexpr char kRequestIdType[] = "posenc/request-id";

}  // namespace posenc
