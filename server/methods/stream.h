// The handler of a stream of requests, each of which gets one response.
//
// The first message carries the settings. Every message, the first included,
// may carry tensors. A message without tensors checks the settings, and its
// response is empty. The messages of a stream have the fields of the unary
// call, so each is handled as that call would be, with the settings of the
// first message copied into it.

#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/error.h"
#include "server/convert/shared_parts.h"
#include "server/methods/methods.h"
#include "server/methods/rope_source.h"
#include "server/rpc/handler.h"
#include "server/rpc/request.h"

namespace posenc::server {

template <typename Request>
class StreamHandler : public CallHandler {
 public:
  absl::Status Receive(RequestMessage message) final {
    absl::StatusOr<std::shared_ptr<ParsedRequest<Request>>> parsed =
        Parse<Request>(std::move(message), tensor_fields_);
    if (!parsed.ok()) return parsed.status();
    Request* const request = &(*parsed)->request;
    static const SharedPartsFinder kFinder(*Request::descriptor());
    const absl::Status sent = kFinder.Find(request).CheckNone();
    if (!sent.ok()) return sent;
    if (!settings_) {
      settings_.emplace();
      CopySettings(*request, &*settings_);
    } else {
      const absl::Status none = RefuseSettings(*request);
      if (!none.ok()) return none;
      CopySettings(*settings_, request);
    }
    parsed_ = *std::move(parsed);
    return absl::OkStatus();
  }
  bool TakesLong() const final {
    return parsed_ != nullptr && !resolved_ && ResolvesLong(parsed_->request);
  }
  bool HasNext() const final { return parsed_ != nullptr; }
  absl::StatusOr<std::unique_ptr<PendingResponse>> Next() final {
    if (parsed_ == nullptr) return nullptr;
    auto parsed = std::exchange(parsed_, nullptr);
    resolved_ = true;
    if (!HasTensor(parsed->request)) {
      const absl::Status good = CheckSettings(parsed->request);
      if (!good.ok()) return good;
      return MakeReadyResponse("");
    }
    absl::StatusOr<TensorAnswer> answer =
        Answer(parsed->request, parsed->Borrowed(tensor_fields_));
    return Respond(std::move(answer), std::move(parsed), "",
                   context_.limits->max_response_bytes);
  }

 protected:
  StreamHandler(const MethodContext& context,
                absl::Span<const int> tensor_fields)
      : context_(context), tensor_fields_(tensor_fields) {}

  // The error for a setting in a later message.
  static absl::Status NotFirst(absl::string_view field) {
    return core::FieldInvalid(
        field,
        "given again; the settings of a stream are in its first message only");
  }

  virtual void CopySettings(const Request& from, Request* to) = 0;
  // An error if `request` has a setting.
  virtual absl::Status RefuseSettings(const Request& request) = 0;
  virtual bool HasTensor(const Request& request) = 0;
  // Checks what can be checked without a tensor.
  virtual absl::Status CheckSettings(const Request& request) = 0;
  virtual absl::StatusOr<TensorAnswer> Answer(
      const Request& request, const BorrowedTensors& borrowed) = 0;

  const MethodContext context_;

 private:
  const absl::Span<const int> tensor_fields_;
  std::optional<Request> settings_;
  // The message that waits for Next().
  std::shared_ptr<const ParsedRequest<Request>> parsed_;
  bool resolved_ = false;  // the cache has the stream's encodings
};

}  // namespace posenc::server
