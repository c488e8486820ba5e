#pragma once

namespace posenc {

// Payload of an absl::Status: a google.rpc.Status, of the server or of the same
// form. calls.cc and error_fields.cc attach it, error_fields.cc reads it.
constexpr char kStatusType[] = "type.googleapis.com/google.rpc.Status";

// The type of its detail with reason and field, and the domain of posenc's
// reasons.
constexpr char kErrorInfoType[] = "type.googleapis.com/google.rpc.ErrorInfo";
constexpr char kErrorDomain[] = "posenc";

// The payload with the request id of the failed call.
constexpr char kRequestIdType[] = "posenc/request-id";

}  // namespace posenc
