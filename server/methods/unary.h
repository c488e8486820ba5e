// Handlers of RPCs with one request and one response. Each handler calls a
// function that answers a request (methods.h).

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/base/status_macros.h"
#include "server/call/computation.h"
#include "server/call/handler.h"
#include "server/call/request.h"
#include "server/methods/methods.h"
#include "server/methods/shared_tensors.h"
#include "server/methods/takes_long.h"

namespace posenc::server {

template <typename Request>
class UnaryHandler final : public CallHandler {
 public:
  // A function that returns the answer to a request. The request must outlive
  // the answer.
  using Answer = absl::StatusOr<TensorAnswer> (*)(const Request& request,
                                                  const MethodContext& context);

  UnaryHandler(const MethodContext& context, Answer answer)
      : context_(context), answer_(answer) {}

  absl::Status Receive(RequestMessage message) override {
    ASSIGN_OR_RETURN(parsed_, Parse<Request>(std::move(message), Tensors()));
    if (parsed_->may_share) parts_ = FindSharedParts(&parsed_->request);
    return absl::OkStatus();
  }
  bool TakesLong() const override {
    return parsed_ != nullptr &&
           (server::TakesLong(parsed_->request) || parts_.TakesLong());
  }
  absl::StatusOr<std::unique_ptr<PendingResponse>> Next(
      StopCheck stop) override {
    if (parsed_ == nullptr) return nullptr;
    auto parsed = std::exchange(parsed_, nullptr);
    RETURN_IF_ERROR(ReadShared(parsed.get()));
    context_.borrowed = parsed->Borrowed(Tensors());
    context_.owned = &parsed->owned;
    context_.reserve = parsed->Claim();
    context_.stop = stop;
    absl::StatusOr<TensorAnswer> answer = answer_(parsed->request, context_);
    if (!answer.ok()) return answer.status();
    if (shared_ != nullptr) {
      RETURN_IF_ERROR(
          shared_->PlaceOutputs(parts_, *Request::descriptor(), &*answer));
      SharedTensors::Attach(shared_, &*answer);
    }
    std::string fields;
    if (answer->response != nullptr && !answer->outputs.empty()) {
      fields = answer->response->SerializeAsString();
    }
    const RequestMessage* const message =
        parsed->borrows ? &parsed->message : nullptr;
    return MakeResponse(*std::move(answer), std::move(parsed), message,
                        std::move(fields), context_.limits->max_response_bytes);
  }

 private:
  // Returns the numbers of the fields whose bytes are borrowed.
  static absl::Span<const int> Tensors() {
    static const auto* const fields =
        new std::vector<int>(TensorFields(*Request::descriptor()));
    return *fields;
  }

  absl::Status ReadShared(ParsedRequest<Request>* parsed) {
    if (parts_.none()) return absl::OkStatus();
    shared_ = std::make_shared<SharedTensors>(
        context_.sharing, context_.limits->max_request_bytes);
    parsed->shared = true;
    return shared_->ReadInputs(parts_, parsed->Claim(), &parsed->request,
                               Tensors(), &parsed->split.tensors);
  }

  MethodContext context_;
  const Answer answer_;
  // The request that Next() answers, and its parts about shared memory.
  std::shared_ptr<ParsedRequest<Request>> parsed_;
  SharedParts parts_;
  std::shared_ptr<SharedTensors> shared_;  // null: no shared memory
};

// Makes the handler of a call whose answer has tensors.
template <auto answer, typename Request>
std::unique_ptr<CallHandler> StartCall(
    absl::StatusOr<TensorAnswer> (*)(const Request&, const MethodContext&),
    const MethodContext& context) {
  return std::make_unique<UnaryHandler<Request>>(context, answer);
}

// Makes the handler of a call whose answer has no tensors. The answer is
// computed as one tile, so that a long computation can be stopped.
template <auto answer, typename Request, typename Response>
std::unique_ptr<CallHandler> StartCall(absl::Status (*)(const Request&,
                                                        const MethodContext&,
                                                        StopCheck, Response*),
                                       const MethodContext& context) {
  return std::make_unique<UnaryHandler<Request>>(
      context,
      [](const Request& request,
         const MethodContext& with) -> absl::StatusOr<TensorAnswer> {
        auto response = std::make_shared<Response>();
        TensorAnswer answered;
        answered.computation = std::make_unique<TileFunction>(
            1, [&request, with, response = response.get()](
                   std::int64_t /*tile*/,
                   absl::Span<const OutputBuffer> /*none*/, StopCheck stop) {
              return answer(request, with, stop, response);
            });
        answered.response = std::move(response);
        return answered;
      });
}

// Makes the handler of a call from a function of methods.h.
template <auto answer>
std::unique_ptr<CallHandler> StartUnary(const MethodContext& context) {
  return StartCall<answer>(answer, context);
}

}  // namespace posenc::server
