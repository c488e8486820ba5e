// Reads absolute encodings of requests.

#pragma once

#include "absl/status/statusor.h"
#include "core/absolute/encoding.h"
#include "posenc/v1/absolute.pb.h"
#include "server/convert/tensor.h"

namespace posenc::server {

// Tables of the encoding point into the message, or into `owned`.
absl::StatusOr<core::AbsoluteEncoding> ReadAbsolute(
    const v1::AbsoluteEncoding& encoding, OwnedElements* owned);

}  // namespace posenc::server
