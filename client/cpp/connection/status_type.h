#pragma once

namespace posenc {

// Type of a payload of an absl::Status: a google.rpc.Status, from the server or
// from this client. calls.cc and error_fields.cc add it, error_fields.cc reads
// it.
constexpr char kStatusType[] = "type.googleapis.com/google.rpc.Status";

// Type of the detail that has the reason and the field in such a
// google.rpc.Status, and the domain of posenc's reasons.
constexpr char kErrorInfoType[] = "type.googleapis.com/google.rpc.ErrorInfo";
constexpr char kErrorDomain[] = "posenc";

// Type of the payload with the request id of the failed call.
constexpr char kRequestIdType[] = "posenc/request-id";

}  // namespace posenc
