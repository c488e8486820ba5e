#pragma once

namespace posenc {

// Payload of an absl::Status: a google.rpc.Status, from the server or from this
// client. calls.cc and error_fields.cc attach it, error_fields.cc reads it.
constexpr char kStatusType[] = "type.googleapis.com/google.rpc.Status";

// The type of the detail in it that has reason and field, and the domain of
// posenc's reasons.
constexpr char kErrorInfoType[] = "type.googleapis.com/google.rpc.ErrorInfo";
constexpr char kErrorDomain[] = "posenc";

// The payload with the request id of the failed call.
constexpr char kRequestIdType[] = "posenc/request-id";

}  // namespace posenc
