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
#include "server/kserve/statistics.h"
#include "server/memory/request_message.h"
#include "server/methods/methods.h"
#include "server/rpc/handler.h"

namespace posenc::server {

class Inference : public std::enable_shared_from_this<Inference> {
 public:
  // The counts of all models; outlive it.
  using Counts = std::vector<ModelCounts>;

  // start: when its time began, from which a `timeout` counts. stream: it is a
  // message of ModelStreamInfer.
  Inference(Counts* counts, absl::Time start, absl::Duration waited,
            bool stream);
  // Counts the request as failed, unless it was answered.
  ~Inference();

  absl::Status Read(RequestMessage message);

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
  absl::Status ReadInputs();
  absl::Status ReadOutputs();
  // Marks what the answer's message will have of its outputs.
  absl::Status ChooseOutputs(TensorAnswer* answer);
  // The answer's message up to the tensors' bytes.
  std::string Head(const TensorAnswer& answer,
                   const google::protobuf::Message* response) const;
  void NameModel(inference::ModelInferResponse* response) const;
  absl::Status CheckTime() const;

  Counts* const counts_;
  const bool stream_;
  const absl::Time start_;
  absl::Time since_;  // of the part of the time that runs now
  InferTimes times_;
  bool answered_ = false;

  InferEnvelope envelope_;
  const Model* model_ = nullptr;
  std::optional<NativeRequest> native_;
  std::vector<const ModelOutput*> outputs_;  // that were asked for
  absl::Duration timeout_ = absl::InfiniteDuration();
  bool tells_final_ = false;
};

}  // namespace posenc::server
