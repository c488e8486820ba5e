#include "server/kserve/infer_handler.h"

#include <cstdint>
#include <utility>

#include "absl/time/clock.h"
#include "server/rpc/tensor_response.h"

namespace posenc::server {
namespace {

// Triton's clients ask with this metadata that an error end the stream.
constexpr char kErrorsEndStreams[] = "triton_grpc_error";

// What a stream's message may copy out of shared memory, which is claimed for
// unary calls alone.
constexpr std::int64_t kMostCopiedOfStream = 1 << 20;

class ModelInferHandler final : public CallHandler {
 public:
  ModelInferHandler(const MethodContext& context, Inference::Counts* counts,
                    Regions* regions)
      : context_(context),
        infer_{counts, regions, context.sharing,
               context.limits->max_request_bytes} {}

  void Waited(absl::Duration time) override { waited_ = time; }

  absl::Status Receive(RequestMessage message) override {
    inference_ = std::make_shared<Inference>(infer_, start_, waited_, false);
    return inference_->Read(std::move(message));
  }
  std::int64_t copied_bytes() const override {
    return inference_ == nullptr ? 0 : inference_->copied_bytes();
  }
  bool TakesLong() const override {
    return inference_ != nullptr && inference_->TakesLong();
  }
  absl::StatusOr<std::unique_ptr<PendingResponse>> Next() override {
    if (inference_ == nullptr) return nullptr;
    return std::exchange(inference_, nullptr)->Answer(context_);
  }

 private:
  const MethodContext context_;
  const InferContext infer_;
  const absl::Time start_ = absl::Now();
  absl::Duration waited_;
  std::shared_ptr<Inference> inference_;
};

// Each message is a request of its own, and gets one answer. What is wrong with
// one is its answer; the stream goes on.
class ModelStreamInferHandler final : public CallHandler {
 public:
  ModelStreamInferHandler(const MethodContext& context,
                          Inference::Counts* counts, Regions* regions)
      : context_(context),
        infer_{counts, regions, context.sharing, kMostCopiedOfStream} {
    if (context.call == nullptr) return;
    errors_end_it_ = context.call->Find(kErrorsEndStreams) == "true";
  }

  void Waited(absl::Duration time) override { waited_ = time; }

  absl::Status Receive(RequestMessage message) override {
    inference_ = std::make_shared<Inference>(
        infer_, absl::Now(), waited_ - std::exchange(told_, waited_), true);
    read_ = inference_->Read(std::move(message));
    return errors_end_it_ ? read_ : absl::OkStatus();
  }
  bool TakesLong() const override {
    return inference_ != nullptr && read_.ok() && inference_->TakesLong();
  }
  absl::StatusOr<std::unique_ptr<PendingResponse>> Next() override {
    if (inference_ == nullptr) return nullptr;
    const auto inference = std::exchange(inference_, nullptr);
    absl::Status error = read_;
    if (error.ok()) {
      auto answer = inference->Answer(context_);
      if (answer.ok() || errors_end_it_) return answer;
      error = answer.status();
    }
    return MakeReadyResponse(inference->ErrorMessage(error));
  }

 private:
  const MethodContext context_;
  const InferContext infer_;
  bool errors_end_it_ = false;
  absl::Duration waited_, told_;
  std::shared_ptr<Inference> inference_;  // the message that waits for Next()
  absl::Status read_;
};

}  // namespace

std::unique_ptr<CallHandler> StartModelInfer(const MethodContext& context,
                                             Inference::Counts* counts,
                                             Regions* regions) {
  return std::make_unique<ModelInferHandler>(context, counts, regions);
}

std::unique_ptr<CallHandler> StartModelStreamInfer(const MethodContext& context,
                                                   Inference::Counts* counts,
                                                   Regions* regions) {
  return std::make_unique<ModelStreamInferHandler>(context, counts, regions);
}

}  // namespace posenc::server
