#include "server/wire/call_service.h"

#include "absl/strings/strip.h"
#include "core/error.h"
#include "google/protobuf/descriptor.h"
#include "server/status.h"
#include "server/wire/sessions.h"

namespace posenc::server {
namespace {

// Encodings kept: some hundred models, or a few of the widest.
constexpr std::size_t kCacheBytes = 16 << 20;

// A call that is answered without being read.
class Refusal final : public grpc::ServerGenericBidiReactor {
 public:
  explicit Refusal(const absl::Status& status) { Finish(ToGrpcStatus(status)); }
  void OnDone() override { delete this; }
};

}  // namespace

CallService::CallService(const CallOptions& options)
    : options_(options),
      registered_(this),
      cache_(kCacheBytes),
      admission_(std::make_shared<Admission>(options.in_flight_bytes,
                                             options.max_waiting)),
      memory_(admission_),
      deadlines_(options.default_deadline),
      pool_(options.threads),
      resources_{&pool_,      admission_.get(), &memory_,
                 &deadlines_, &calls_,          options.max_request_bytes} {}

CallService::Registered::Registered(CallService* calls) : calls_(calls) {
  const google::protobuf::ServiceDescriptor* const service =
      google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(
          Rpcs::service_full_name());
  const int stream = service->FindMethodByName("ApplyRopeStream")->index();
  for (int i = 0; i < service->method_count(); ++i) {
    if (i != stream) MarkMethodGeneric(i);
  }
}

grpc::ServerGenericBidiReactor* CallService::Registered::ApplyRopeStream(
    grpc::CallbackServerContext* context) {
  return calls_->Start("ApplyRopeStream", context);
}

grpc::ServerGenericBidiReactor* CallService::CreateReactor(
    grpc::GenericCallbackServerContext* context) {
  absl::string_view name = context->method();
  if (!absl::ConsumePrefix(&name, "/") ||
      !absl::ConsumePrefix(&name, Rpcs::service_full_name()) ||
      !absl::ConsumePrefix(&name, "/")) {
    name = "";
  }
  return Start(name, context);
}

grpc::ServerGenericBidiReactor* CallService::Start(
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
  const SessionOptions session = {&cache_, options_.max_request_bytes,
                                  options_.max_response_bytes};
  return CallReactor::Start(
      context,
      method->stream ? CallReactor::Kind::kStream : CallReactor::Kind::kUnary,
      method->start(session), resources_);
}

}  // namespace posenc::server
