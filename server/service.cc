#include "server/service.h"

#include "absl/strings/strip.h"
#include "core/error.h"
#include "google/protobuf/descriptor.h"
#include "server/convert/status.h"
#include "server/methods/methods.h"

namespace posenc::server {
namespace {

// Bytes of encodings that are kept: some hundred models, or a few of the
// widest.
constexpr std::size_t kCacheBytes = 16 << 20;

// A call that is answered without being read.
class Refusal final : public grpc::ServerGenericBidiReactor {
 public:
  explicit Refusal(const absl::Status& status) { Finish(ToGrpcStatus(status)); }
  void OnDone() override { delete this; }
};

}  // namespace

RpcService::RpcService(const Limits& limits)
    : limits_(limits),
      registered_(this),
      cache_(kCacheBytes),
      admission_(std::make_shared<Admission>(
          limits.in_flight_bytes,
          static_cast<std::size_t>(limits.max_waiting))),
      buffers_(admission_),
      deadlines_(limits.default_deadline),
      pool_(limits.threads),
      resources_{&pool_,      admission_.get(), &buffers_,
                 &deadlines_, &calls_,          &limits_} {}

RpcService::Registered::Registered(RpcService* service) : service_(service) {
  const google::protobuf::ServiceDescriptor* const descriptor =
      google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(
          Rpcs::service_full_name());
  const int stream = descriptor->FindMethodByName("ApplyRopeStream")->index();
  for (int i = 0; i < descriptor->method_count(); ++i) {
    if (i != stream) MarkMethodGeneric(i);
  }
}

grpc::ServerGenericBidiReactor* RpcService::Registered::ApplyRopeStream(
    grpc::CallbackServerContext* context) {
  return service_->Start("ApplyRopeStream", context);
}

grpc::ServerGenericBidiReactor* RpcService::CreateReactor(
    grpc::GenericCallbackServerContext* context) {
  // "/posenc.v1.PositionalEncodingService/ApplyRope"
  absl::string_view name = context->method();
  if (!absl::ConsumePrefix(&name, "/") ||
      !absl::ConsumePrefix(&name, Rpcs::service_full_name()) ||
      !absl::ConsumePrefix(&name, "/")) {
    name = "";
  }
  return Start(name, context);
}

grpc::ServerGenericBidiReactor* RpcService::Start(
    absl::string_view name, grpc::CallbackServerContext* context) {
  const Method* const method = FindMethod(name);
  if (method == nullptr) {
    return new Refusal(absl::UnimplementedError("no such method"));
  }
  if (draining_.load()) {
    return new Refusal(core::MakeError(
        absl::StatusCode::kUnavailable, core::ErrorReason::kDraining, "",
        "the server is draining; retry elsewhere"));
  }
  return Call::Start(context,
                     method->stream ? Call::Kind::kStream : Call::Kind::kUnary,
                     method->start({&limits_, &cache_}), resources_);
}

}  // namespace posenc::server
