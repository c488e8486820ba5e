// Handlers of RPCs with one message each way. Each is made from a function that
// answers a request.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "google/protobuf/descriptor.h"
#include "server/budget/errors.h"
#include "server/convert/shared_parts.h"
#include "server/methods/methods.h"
#include "server/methods/rope_source.h"
#include "server/methods/shared_tensors.h"
#include "server/rpc/computation.h"
#include "server/rpc/handler.h"
#include "server/rpc/request.h"

namespace posenc::server {

template <typename Request>
class UnaryHandler final : public CallHandler {
 public:
  // A function that returns the answer to a request, which must outlive it.
  // Sets the response's small fields if they are known before the computation.
  using Answer = absl::StatusOr<TensorAnswer> (*)(
      const ParsedRequest<Request>& parsed, const MethodContext& context,
      std::string* fields);

  // tensor_fields: fields whose bytes are borrowed. response: its type; places
  // in shared memory refer to its field names.
  UnaryHandler(const MethodContext& context,
               absl::Span<const int> tensor_fields,
               const google::protobuf::Descriptor& response, Answer answer)
      : context_(context),
        tensor_fields_(tensor_fields),
        response_(response),
        answer_(answer) {}

  absl::Status Receive(RequestMessage message) override {
    absl::StatusOr<std::shared_ptr<ParsedRequest<Request>>> parsed =
        Parse<Request>(std::move(message), tensor_fields_);
    if (!parsed.ok()) return parsed.status();
    const absl::Status shared = ReadShared(parsed->get());
    if (!shared.ok()) return shared;
    parsed_ = *std::move(parsed);
    return absl::OkStatus();
  }
  std::int64_t copied_bytes() const override {
    return shared_ == nullptr ? 0 : shared_->copied_bytes();
  }
  bool TakesLong() const override {
    return parsed_ != nullptr && ResolvesLong(parsed_->request);
  }
  bool HasNext() const override { return parsed_ != nullptr; }
  absl::StatusOr<std::unique_ptr<PendingResponse>> Next() override {
    if (parsed_ == nullptr) return nullptr;
    auto parsed = std::exchange(parsed_, nullptr);
    std::string fields;
    context_.ropes = &parsed->ropes;
    absl::StatusOr<TensorAnswer> answer = answer_(*parsed, context_, &fields);
    if (answer.ok() && shared_ != nullptr) {
      const absl::Status placed =
          shared_->PlaceOutputs(parts_, response_, &*answer);
      if (!placed.ok()) return placed;
      SharedTensors::Attach(shared_, &*answer);
    }
    return Respond(std::move(answer), std::move(parsed), std::move(fields),
                   context_.limits->max_response_bytes);
  }

 private:
  absl::Status ReadShared(ParsedRequest<Request>* parsed) {
    if (!parsed->may_share) return absl::OkStatus();
    parts_ = FindSharedParts(&parsed->request);
    if (parts_.none()) return absl::OkStatus();
    shared_ = std::make_shared<SharedTensors>(
        context_.sharing, context_.limits->max_request_bytes);
    parsed->shared = true;
    return shared_->ReadInputs(parts_, &parsed->request, tensor_fields_,
                               &parsed->split.tensors);
  }

  MethodContext context_;
  const absl::Span<const int> tensor_fields_;
  const google::protobuf::Descriptor& response_;
  const Answer answer_;
  // The request that Next() answers, and its parts about shared memory.
  std::shared_ptr<const ParsedRequest<Request>> parsed_;
  SharedParts parts_;
  std::shared_ptr<SharedTensors> shared_;  // null: no shared memory
};

// Starts calls with tensors both ways: `answer(request, borrowed, context)`
// returns a TensorAnswer. `fields` are the numbers of the request's tensors.
template <typename Request, typename Response, auto answer, int... fields>
std::unique_ptr<CallHandler> StartTensorCall(const MethodContext& context) {
  static constexpr int kFields[] = {fields...};
  return std::make_unique<UnaryHandler<Request>>(
      context, kFields, *Response::descriptor(),
      [](const ParsedRequest<Request>& parsed, const MethodContext& with,
         std::string* /*fields*/) {
        return answer(parsed.request, parsed.Borrowed(kFields), with);
      });
}

// Starts calls that return tensors and small fields: `answer(request, context,
// &response)` returns a TensorAnswer and sets the other fields.
template <typename Request, typename Response, auto answer>
std::unique_ptr<CallHandler> StartBuildCall(const MethodContext& context) {
  return std::make_unique<UnaryHandler<Request>>(
      context, absl::Span<const int>(), *Response::descriptor(),
      [](const ParsedRequest<Request>& parsed, const MethodContext& with,
         std::string* small) {
        Response response;
        auto answered = answer(parsed.request, with, &response);
        *small = response.SerializeAsString();
        return answered;
      });
}

// Returns the `work` of answers that take microseconds.
template <typename Request>
std::size_t LittleWork(const Request& /*request*/) {
  return 0;
}

// Starts calls with a small message each way: `answer(request, context, stop,
// &response)` is computed as one tile, so that a long one can be stopped.
// `work(request)` estimates its time as the number of bytes that could be
// copied in that time; above 128 KiB the answer is computed on the pool.
template <typename Request, typename Response, auto answer,
          auto work = LittleWork<Request>>
std::unique_ptr<CallHandler> StartMessageCall(const MethodContext& context) {
  return std::make_unique<UnaryHandler<Request>>(
      context, absl::Span<const int>(), *Response::descriptor(),
      [](const ParsedRequest<Request>& parsed, const MethodContext& with,
         std::string* /*fields*/) -> absl::StatusOr<TensorAnswer> {
        const auto fields = std::make_shared<std::string>();
        TensorAnswer answered;
        answered.fields = fields;
        answered.computation = std::make_unique<TileFunction>(
            1,
            [&request = parsed.request, with, fields](
                std::int64_t /*tile*/, absl::Span<const OutputBuffer> /*none*/,
                StopCheck stop) {
              Response response;
              absl::Status status = answer(request, with, stop, &response);
              if (status.ok()) {
                status = CheckResponse(response.ByteSizeLong(),
                                       with.limits->max_response_bytes);
              }
              if (status.ok()) *fields = response.SerializeAsString();
              return status;
            },
            work(parsed.request));
        return answered;
      });
}

}  // namespace posenc::server
