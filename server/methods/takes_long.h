// Decides which small requests take too long for a thread that serves
// connections.

#pragma once

#include <algorithm>

#include "posenc/v1/service.pb.h"
#include "server/methods/rope_source.h"

namespace posenc::server {

// These return whether the answer to a request takes half a millisecond or more
// although its message is small. By default, this is so if ResolvesLong() is
// true for one of its encodings.
bool TakesLong(const v1::ResolveRopeRequest& request);
inline bool TakesLong(const v1::AnalyzeRopeRequest& request) {
  return ResolvesLong(request.rope(), request.head_dim()) ||
         ResolvesLong(request.compare_with(), request.head_dim());
}
inline bool TakesLong(const v1::DiagnoseRopeRequest& /*request*/) {
  return true;  // about ten readers of each configuration are compared
}
// Computing a frequency takes a microsecond, so 1024 channels (512 frequencies)
// take half a millisecond.
inline bool TakesLong(const v1::AbsoluteEncoding& encoding) {
  return std::max({encoding.sinusoidal().dim(), encoding.timestep().dim(),
                   encoding.sincos_grid().dim()}) > 1024;
}
inline bool TakesLong(const v1::AddEncodingRequest& request) {
  return TakesLong(request.encoding());
}
inline bool TakesLong(const v1::BuildBiasRequest& request) {
  return request.bias().sandwich().dim() > 1024;
}
inline bool TakesLong(const v1::BuildTableRequest& request) {
  return ResolvesLong(request.rope()) || TakesLong(request.absolute()) ||
         request.positions().has_packed();
}
// Before the first part, the positions of all rows are checked, and a stream
// may have any number of rows.
inline bool TakesLong(const v1::BuildTableStreamRequest& /*request*/) {
  return true;
}
template <typename Request>
bool TakesLong(const Request& request) {
  if constexpr (requires { request.old_rope(); }) {
    return request.cache().model_layers_size() > 0 ||
           ResolvesLong(request.old_rope()) || ResolvesLong(request.new_rope());
  } else if constexpr (requires { request.rope(); }) {
    return ResolvesLong(request.rope());
  } else if constexpr (requires { request.vision().rope(); }) {
    return ResolvesLong(request.vision().rope());
  } else {
    return false;
  }
}

}  // namespace posenc::server
