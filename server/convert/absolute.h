// Reads absolute encodings of requests.

#pragma once

#include "absl/status/statusor.h"
#include "core/absolute/add_encoding.h"
#include "core/absolute/encoding.h"
#include "core/base/tensor.h"
#include "posenc/v1/absolute.pb.h"
#include "server/convert/tensor.h"

namespace posenc::server {

// An encoding whose tables point into the message, or into `tensors`.
struct InputAbsolute {
  core::AbsoluteEncoding encoding;
  InputTensors tensors;
};
absl::StatusOr<InputAbsolute> ReadAbsolute(
    const v1::AbsoluteEncoding& encoding);

}  // namespace posenc::server
