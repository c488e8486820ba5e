#include "server/listen/watch_calls.h"

#include <string>

#include "grpcpp/server_context.h"

namespace posenc::server {
namespace {

// For calls of synchronous services (reflection is one): gRPC 1.51 tells their
// peer only after it has asked for interceptors.
class AtFirstEvent final : public grpc::experimental::Interceptor {
 public:
  AtFirstEvent(Callers* callers, grpc::experimental::ServerRpcInfo* call)
      : callers_(callers), call_(call) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* event) override {
    if (!told_) {
      callers_->CallBegan(call_->server_context()->peer());
      told_ = true;
    }
    event->Proceed();
  }

 private:
  Callers* const callers_;
  grpc::experimental::ServerRpcInfo* const call_;
  bool told_ = false;
};

}  // namespace

grpc::experimental::Interceptor* WatchCalls::CreateServerInterceptor(
    grpc::experimental::ServerRpcInfo* call) {
  const std::string peer = call->server_context()->peer();
  if (peer.empty()) return new AtFirstEvent(callers_, call);
  callers_->CallBegan(peer);
  return nullptr;
}

}  // namespace posenc::server
