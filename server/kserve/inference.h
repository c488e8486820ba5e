// One request of ModelInfer or ModelStreamInfer, from its message to the
// message that answers it.
//
//   ModelInferRequest --Read--> NativeRequest --Model::answer--> TensorAnswer
//     --Answer--> | model_name .. outputs | raw_output_contents | .. |
//
// The tensors' bytes go the way of the native calls: borrowed from the request,
// and written over it where the RPC allows that.

#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/kserve/envelope.h"
#include "server/kserve/models.h"
#include "server/kserve/native_request.h"
#include "server/kserve/regions.h"
#include "server/kserve/statistics.h"
#include "server/memory/request_message.h"
#include "server/methods/methods.h"
#include "server/methods/shared_tensors.h"
#include "server/rpc/handler.h"

namespace posenc::server {

// What the requests of one call share.
struct InferContext {
  std::vector<ModelCounts>* counts;  // of all models; outlive it
  Regions* regions;                  // likewise; null: no memory is shared
  CallSharing sharing;
  std::int64_t max_copied_bytes;  // see SharedTensors
};

class Inference : public std::enable_shared_from_this<Inference> {
 public:
  using Counts = std::vector<ModelCounts>;

  // start: when its time began, from which a `timeout` counts. stream: it is a
  // message of ModelStreamInfer.
  Inference(const InferContext& context, absl::Time start,
            absl::Duration waited, bool stream);
  // Bytes that Read() copied out of shared memory.
  std::int64_t copied_bytes() const { return shared_->copied_bytes(); }
  // Counts the request as failed, unless it was answered.
  ~Inference();

  absl::Status Read(RequestMessage message);

  // After Read(): see CallHandler.
  bool TakesLong() const { return model_->takes_long(native_->message()); }

  // After Read(), once. Failures are the caller's to tell, but for those of
  // computing a stream's message: they are its answer.
  absl::StatusOr<std::unique_ptr<PendingResponse>> Answer(
      const MethodContext& context);

  // A stream's message that tells of an error.
  std::string ErrorMessage(const absl::Status& error) const;

 private:
  class Response;

  absl::Status ReadParameters();
  absl::Status ReadReserved(const std::string& name,
                            const inference::InferParameter& value,
                            bool* reserved);
  // What parameters of an input or an output say of shared memory.
  struct Placed {
    std::optional<std::string> region;
    std::optional<std::uint64_t> offset, bytes;

    bool given() const { return region || offset || bytes; }
  };
  absl::Status ReadPlace(const std::string& name,
                         const inference::InferParameter& value,
                         Placed* place) const;
  // The place in a file, which is looked at later.
  absl::StatusOr<v1::SharedMemory> Find(const Placed& place) const;
  absl::Status ReadInput(
      const inference::ModelInferRequest::InferInputTensor& input,
      const wire::BorrowedBytes* raw, v1::Tensor* tensor,
      wire::BorrowedBytes* bytes) const;
  absl::Status ReadInputs();
  absl::Status ReadOutputs();
  // Gives outputs their places in shared memory.
  absl::Status PlaceOutputs(TensorAnswer* answer);
  // Marks what the answer's message will have of its outputs.
  absl::Status ChooseOutputs(TensorAnswer* answer);
  // The answer's message up to the tensors' bytes.
  std::string Head(const TensorAnswer& answer,
                   const google::protobuf::Message* response) const;
  void NameModel(inference::ModelInferResponse* response) const;
  absl::Status CheckTime() const;

  const InferContext context_;
  const bool stream_;
  const absl::Time start_;
  absl::Time since_;  // of the part of the time that runs now
  InferTimes times_;
  bool answered_ = false;

  InferEnvelope envelope_;
  const Model* model_ = nullptr;
  std::optional<NativeRequest> native_;
  std::vector<const ModelOutput*> outputs_;      // that were asked for
  std::map<const ModelOutput*, Placed> placed_;  // those in shared memory
  const std::shared_ptr<SharedTensors> shared_;
  absl::Duration timeout_ = absl::InfiniteDuration();
  bool tells_final_ = false;
};

}  // namespace posenc::server
