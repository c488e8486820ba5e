#include "server/wire/bulk_service.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/error.h"
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

BulkService::BulkService(const BulkOptions& options)
    : options_(options),
      cache_(kCacheBytes),
      admission_(std::make_shared<Admission>(options.in_flight_bytes,
                                             options.max_waiting)),
      memory_(admission_),
      deadlines_(options.default_deadline),
      pool_(options.threads),
      resources_{&pool_, admission_.get(), &memory_, &deadlines_,
                 options.max_request_bytes} {}

grpc::ServerGenericBidiReactor* BulkService::CreateReactor(
    grpc::GenericCallbackServerContext* context) {
  absl::string_view name = context->method();
  const BulkMethod* const method =
      absl::ConsumePrefix(&name, "/posenc.v1.PositionalEncodingService/")
          ? FindBulkMethod(name)
          : nullptr;
  if (method == nullptr) {
    return new Refusal(absl::UnimplementedError(
        absl::StrCat(context->method(), ": no such method")));
  }
  if (draining_.load()) {
    return new Refusal(core::MakeError(
        absl::StatusCode::kUnavailable, core::ErrorReason::kDraining, "",
        "the server is draining; retry elsewhere"));
  }
  const SessionOptions session = {&cache_, options_.max_response_bytes};
  return BulkCall::Start(
      context,
      method->stream ? BulkCall::Kind::kStream : BulkCall::Kind::kUnary,
      method->start(session), resources_);
}

}  // namespace posenc::server
