// The first bytes of an HTTP/2 connection, up to the headers of its first call.
//
//   preface (24 bytes)  SETTINGS  [WINDOW_UPDATE, SETTINGS ACK ...]  HEADERS
//
// Whoever has sent less than that has asked for nothing yet, and the listener
// can still hold the connection cheaply, and end it.

#pragma once

#include <cstddef>

#include "absl/strings/string_view.h"

namespace posenc::server {

enum class Opening {
  // It cannot become HTTP/2.
  kForeign,
  // The preface is not complete.
  kPreface,
  // Complete, and no call has begun.
  kNoCall,
  // A frame has begun that is not complete, or headers without their end.
  kPartOfCall,
  // Complete headers, or something that gRPC has to judge or to answer.
  kCall,
};

// Bytes that are looked at: twice the metadata that gRPC takes by default
// (--max-metadata-bytes). What has more is gRPC's to take or to refuse.
inline constexpr std::size_t kMostOpeningBytes = 16 << 10;

// Tells what `bytes`, all that a peer has sent, are the beginning of.
Opening ReadOpening(absl::string_view bytes);

}  // namespace posenc::server
