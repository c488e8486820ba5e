// Tells a listener of every call that its server gets, those of reflection and
// health among them.

#pragma once

#include "grpcpp/support/server_interceptor.h"
#include "server/listen/callers.h"

namespace posenc::server {

// gRPC asks for an interceptor when a call's headers have come. It gets none,
// which costs least.
class WatchCalls final
    : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  // The callers outlive the server.
  explicit WatchCalls(Callers* callers) : callers_(callers) {}

  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* call) override;

 private:
  Callers* const callers_;
};

}  // namespace posenc::server
