// Decides which small requests take too long for a thread that serves
// connections.

#pragma once

#include <algorithm>

#include "posenc/v1/service.pb.h"
#include "server/methods/rope_source.h"

namespace posenc::server {

// These functions return whether a request with a small message takes half a
// millisecond or more. By default, they return whether ResolvesLong() is true
// for an encoding of the request.
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
// The positions of all rows are checked before the first part, and a stream may
// have any number of rows.
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
