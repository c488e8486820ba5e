// Names of gRPC metadata that belong to the contract.

#pragma once

namespace posenc::wire {

// Request metadata of every call: the size of the request message in bytes, or,
// for a stream of requests, of its largest message. The value is a decimal
// number.
//
// Before the server reads a message, it claims this many bytes of its budget.
// Without the number, the server claims a small part of the budget (5 MiB a
// message for a stream of requests), and may refuse a larger message. So every
// client should send the number.
//
// A message that is larger than announced is refused as INVALID_ARGUMENT; an
// announcement above the server's limit is refused as RESOURCE_EXHAUSTED
// before the message is read.
inline constexpr char kMessageBytes[] = "posenc-message-bytes";

}  // namespace posenc::wire
