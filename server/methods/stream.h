// Handlers of streams of requests.

#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/error.h"
#include "google/protobuf/descriptor.h"
#include "server/convert/shared_parts.h"
#include "server/convert/unknown_fields.h"
#include "server/methods/methods.h"
#include "server/methods/rope_source.h"
#include "server/rpc/computation.h"
#include "server/rpc/handler.h"
#include "server/rpc/request.h"

namespace posenc::server {

// Parses a message of a stream, which must not name shared memory.
template <typename Request>
absl::StatusOr<std::shared_ptr<ParsedRequest<Request>>> ParseOfStream(
    RequestMessage message, absl::Span<const int> tensor_fields = {}) {
  auto parsed = Parse<Request>(std::move(message), tensor_fields);
  if (!parsed.ok() || !(*parsed)->may_share) return parsed;
  const absl::Status none = FindSharedParts(&(*parsed)->request).CheckNone();
  if (!none.ok()) return none;
  return parsed;
}

// Handles a stream of requests with one response for each.
//
// The first message carries the settings. Every message, the first included,
// may carry tensors. A message without tensors checks the settings, and its
// response is empty. The messages of a stream have the fields of the unary
// call, so each is handled as that call would be, with the settings of the
// first message copied into it.
template <typename Request>
class StreamHandler final : public CallHandler {
 public:
  struct Functions {
    // Checks the settings without a tensor.
    absl::Status (*check)(const Request& request);
    absl::StatusOr<TensorAnswer> (*answer)(const Request& request,
                                           const BorrowedTensors& borrowed,
                                           const MethodContext& context);
  };

  // settings, tensors: numbers of the request's fields.
  StreamHandler(const MethodContext& context, absl::Span<const int> settings,
                absl::Span<const int> tensors, const Functions& functions)
      : context_(context),
        setting_fields_(Fields(settings)),
        tensor_fields_(Fields(tensors)),
        tensors_(tensors),
        functions_(functions) {}

  absl::Status Receive(RequestMessage message) override {
    auto parsed = ParseOfStream<Request>(std::move(message), tensors_);
    if (!parsed.ok()) return parsed.status();
    Request* const request = &(*parsed)->request;
    const google::protobuf::Reflection& fields = *request->GetReflection();
    if (!settings_) {
      fields.SwapFields(request, &settings_.emplace(), setting_fields_);
      ropes_ = std::move((*parsed)->ropes);
      context_.ropes = &ropes_;
    }
    for (const auto* const field : setting_fields_) {
      if (!fields.HasField(*request, field)) continue;
      return core::FieldInvalid(field->name(),
                                "given again; the settings of a stream are in "
                                "its first message only");
    }
    request->MergeFrom(*settings_);
    parsed_ = *std::move(parsed);
    return absl::OkStatus();
  }
  bool TakesLong() const override {
    return parsed_ != nullptr && !resolved_ && ResolvesLong(parsed_->request);
  }
  bool HasNext() const override { return parsed_ != nullptr; }
  absl::StatusOr<std::unique_ptr<PendingResponse>> Next() override {
    if (parsed_ == nullptr) return nullptr;
    auto parsed = std::exchange(parsed_, nullptr);
    resolved_ = true;
    if (!HasTensor(parsed->request)) {
      const absl::Status good = functions_.check(parsed->request);
      if (!good.ok()) return good;
      return std::make_unique<PendingResponse>("");
    }
    absl::StatusOr<TensorAnswer> answer = functions_.answer(
        parsed->request, parsed->Borrowed(tensors_), context_);
    return Respond(std::move(answer), std::move(parsed), "",
                   context_.limits->max_response_bytes);
  }

 private:
  using FieldList = std::vector<const google::protobuf::FieldDescriptor*>;

  static FieldList Fields(absl::Span<const int> numbers) {
    FieldList fields;
    fields.reserve(numbers.size());
    for (const int number : numbers) {
      fields.push_back(Request::descriptor()->FindFieldByNumber(number));
    }
    return fields;
  }
  bool HasTensor(const Request& request) const {
    return std::any_of(
        tensor_fields_.begin(), tensor_fields_.end(), [&](const auto* field) {
          return request.GetReflection()->HasField(request, field);
        });
  }

  MethodContext context_;
  const FieldList setting_fields_, tensor_fields_;
  const absl::Span<const int> tensors_;
  const Functions functions_;
  std::optional<Request> settings_;
  RopeBytes ropes_;  // encodings among the settings
  // The request that Next() answers.
  std::shared_ptr<const ParsedRequest<Request>> parsed_;
  bool resolved_ = false;  // the cache has the stream's encodings
};

}  // namespace posenc::server
