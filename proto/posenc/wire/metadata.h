// Names of gRPC metadata that belong to the contract.

#pragma once

namespace posenc::wire {

// Request metadata of every call: the size of the call's request message in
// bytes, or, for a stream of requests, that of the largest one. The value is a
// decimal number.
//
// The server claims memory for a call from its budget before it reads the
// message. It claims what is announced here; if nothing is announced, it must
// claim the largest message that it takes (512 MiB unless configured
// otherwise; 5 MiB a message for a stream of requests). A call that announces
// little gets its turn at once when one that announces nothing still waits.
// So every client should announce.
//
// A message that is larger than announced is refused as INVALID_ARGUMENT; an
// announcement above the server's limit is refused as RESOURCE_EXHAUSTED
// before the message is read.
inline constexpr char kMessageBytes[] = "posenc-message-bytes";

}  // namespace posenc::wire
