// Handlers of RPCs with one message each way, made from the function that
// answers.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/budget/errors.h"
#include "server/convert/shared_parts.h"
#include "server/methods/methods.h"
#include "server/methods/rope_source.h"
#include "server/methods/shared_tensors.h"
#include "server/rpc/handler.h"
#include "server/rpc/request.h"

namespace posenc::server {

// Parses the one request, and asks Respond() for the one response.
template <typename Request>
class UnaryHandler : public CallHandler {
 public:
  absl::Status Receive(RequestMessage message) final {
    absl::StatusOr<std::shared_ptr<ParsedRequest<Request>>> parsed =
        Parse<Request>(std::move(message), tensor_fields_);
    if (!parsed.ok()) return parsed.status();
    const absl::Status shared = ReadShared(parsed->get());
    if (!shared.ok()) return shared;
    parsed_ = *std::move(parsed);
    return absl::OkStatus();
  }
  std::int64_t copied_bytes() const final {
    return shared_ == nullptr ? 0 : shared_->copied_bytes();
  }
  bool TakesLong() const final {
    return parsed_ != nullptr && ResolvesLong(parsed_->request);
  }
  bool HasNext() const final { return parsed_ != nullptr; }
  absl::StatusOr<std::unique_ptr<PendingResponse>> Next() final {
    if (parsed_ == nullptr) return nullptr;
    return RespondTo(std::exchange(parsed_, nullptr));
  }

 protected:
  using Parsed = std::shared_ptr<const ParsedRequest<Request>>;

  UnaryHandler(const MethodContext& context,
               absl::Span<const int> tensor_fields)
      : context_(context), tensor_fields_(tensor_fields) {}

  virtual absl::StatusOr<std::unique_ptr<PendingResponse>> RespondTo(
      Parsed parsed) = 0;

  // The response of an answer, whose tensors go where the request wants them.
  template <typename Response>
  absl::StatusOr<std::unique_ptr<PendingResponse>> Place(
      absl::StatusOr<TensorAnswer>&& answer, Parsed parsed,
      std::string fields) {
    if (answer.ok() && shared_ != nullptr) {
      const absl::Status placed =
          shared_->PlaceOutputs(parts_, *Response::descriptor(), &*answer);
      if (!placed.ok()) return placed;
      SharedTensors::Attach(shared_, &*answer);
    }
    return Respond(std::move(answer), std::move(parsed), std::move(fields),
                   context_.limits->max_response_bytes);
  }

  const MethodContext context_;
  const absl::Span<const int> tensor_fields_;  // whose bytes are borrowed

 private:
  absl::Status ReadShared(ParsedRequest<Request>* parsed) {
    if (!parsed->may_share) return absl::OkStatus();
    static const SharedPartsFinder kFinder(*Request::descriptor());
    parts_ = kFinder.Find(&parsed->request);
    if (parts_.none()) return absl::OkStatus();
    shared_ = std::make_shared<SharedTensors>(
        context_.sharing, context_.limits->max_request_bytes);
    parsed->shared = true;
    return shared_->ReadInputs(parts_, &parsed->request, tensor_fields_,
                               &parsed->split.tensors);
  }

  Parsed parsed_;
  SharedParts parts_;                      // of `parsed_`
  std::shared_ptr<SharedTensors> shared_;  // null: the request has none
};

// Tensors in, tensors out: `answer(request, borrowed, context)` gives a
// TensorAnswer. `fields` are the numbers of the request's tensors.
template <typename Request, typename Response, auto answer, int... fields>
class TensorHandler final : public UnaryHandler<Request> {
 public:
  static std::unique_ptr<CallHandler> Start(const MethodContext& context) {
    return std::make_unique<TensorHandler>(context);
  }
  explicit TensorHandler(const MethodContext& context)
      : UnaryHandler<Request>(context, kFields) {}

 private:
  static constexpr int kFields[] = {fields...};

  absl::StatusOr<std::unique_ptr<PendingResponse>> RespondTo(
      typename UnaryHandler<Request>::Parsed parsed) override {
    absl::StatusOr<TensorAnswer> answered =
        answer(parsed->request, parsed->Borrowed(kFields), this->context_);
    return this->template Place<Response>(std::move(answered),
                                          std::move(parsed), "");
  }
};

// Settings in, tensors and small fields out: `answer(request, context,
// &response)` gives a TensorAnswer and sets the response's other fields.
template <typename Request, typename Response, auto answer>
class BuildHandler final : public UnaryHandler<Request> {
 public:
  static std::unique_ptr<CallHandler> Start(const MethodContext& context) {
    return std::make_unique<BuildHandler>(context);
  }
  explicit BuildHandler(const MethodContext& context)
      : UnaryHandler<Request>(context, {}) {}

 private:
  absl::StatusOr<std::unique_ptr<PendingResponse>> RespondTo(
      typename UnaryHandler<Request>::Parsed parsed) override {
    Response response;
    absl::StatusOr<TensorAnswer> answered =
        answer(parsed->request, this->context_, &response);
    return this->template Place<Response>(
        std::move(answered), std::move(parsed), response.SerializeAsString());
  }
};

// The `work` of answers that take microseconds.
template <typename Request>
std::size_t LittleWork(const Request& /*request*/) {
  return 0;
}

// A small message in, a small message out: `answer(request, context, stop,
// &response)`. `work(request)` estimates the time as the number of bytes that
// could be copied in it; above 128 KiB the answer is computed on the pool.
template <typename Request, typename Response, auto answer,
          auto work = LittleWork<Request>>
class MessageHandler final : public UnaryHandler<Request> {
 public:
  static std::unique_ptr<CallHandler> Start(const MethodContext& context) {
    return std::make_unique<MessageHandler>(context);
  }
  explicit MessageHandler(const MethodContext& context)
      : UnaryHandler<Request>(context, {}) {}

 private:
  using Parsed = typename UnaryHandler<Request>::Parsed;

  // Computed as one tile, so that a long answer can be stopped.
  class MessageResponse final : public PendingResponse {
   public:
    MessageResponse(Parsed parsed, const MethodContext& context)
        : parsed_(std::move(parsed)), context_(context) {
      tiles_ = 1;
      work_bytes_ = work(parsed_->request);
    }
    absl::Status Compute(std::int64_t /*tile*/, StopCheck stop) override {
      const absl::Status status =
          answer(parsed_->request, context_, stop, &response_);
      if (!status.ok()) return status;
      return CheckResponse(response_.ByteSizeLong(),
                           context_.limits->max_response_bytes);
    }
    void Finish(grpc::ByteBuffer* response) override {
      const grpc::Slice slice(response_.SerializeAsString());
      bytes_ = static_cast<std::int64_t>(slice.size());
      grpc::ByteBuffer(&slice, 1).Swap(response);
    }
    std::int64_t unclaimed_bytes() const override { return bytes_; }

   private:
    const Parsed parsed_;
    const MethodContext context_;
    Response response_;
    std::int64_t bytes_ = 0;  // of the finished response
  };

  absl::StatusOr<std::unique_ptr<PendingResponse>> RespondTo(
      Parsed parsed) override {
    return std::make_unique<MessageResponse>(std::move(parsed), this->context_);
  }
};

}  // namespace posenc::server
