#include "server/listen/watch_calls.h"

#include "grpcpp/server_context.h"

namespace posenc::server {

// The peer is known here for callback services, which all of this server's are.
grpc::experimental::Interceptor* WatchCalls::CreateServerInterceptor(
    grpc::experimental::ServerRpcInfo* call) {
  callers_->CallBegan(call->server_context()->peer());
  return nullptr;
}

}  // namespace posenc::server
