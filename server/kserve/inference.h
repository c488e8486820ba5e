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
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "inference/inference.pb.h"
#include "server/kserve/envelope.h"
#include "server/kserve/models.h"
#include "server/kserve/native_request.h"
#include "server/kserve/parameters.h"
#include "server/kserve/regions.h"
#include "server/kserve/statistics.h"
#include "server/methods/methods.h"
#include "server/methods/shared_tensors.h"
#include "server/rpc/handler.h"

namespace posenc::server {

// Parameters of tensors in shared memory.
inline constexpr char kRegion[] = "shared_memory_region";
inline constexpr char kRegionOffset[] = "shared_memory_offset";
inline constexpr char kRegionBytes[] = "shared_memory_byte_size";

class Inference : public std::enable_shared_from_this<Inference> {
 public:
  // What all requests share: the counts of each model, and the regions, which
  // are null if no memory is shared. Outlive them.
  struct Common {
    std::vector<ModelCounts>* counts;
    Regions* regions;
  };

  // start: when its time began, from which a `timeout` counts. stream: it is a
  // message of ModelStreamInfer.
  Inference(const MethodContext& context, const Common& common,
            absl::Time start, absl::Duration waited, bool stream);
  // Counts the request as failed, unless it was answered.
  ~Inference();

  absl::Status Read(RequestMessage message);
  // Bytes that Read() copied out of shared memory.
  std::int64_t copied_bytes() const { return shared_->copied_bytes(); }
  // After Read(): see CallHandler.
  bool TakesLong() const { return model_->takes_long(native_->message()); }

  // After Read(), once.
  absl::StatusOr<std::unique_ptr<PendingResponse>> Answer();

  // The names that each answer repeats, also if Read() has failed.
  inference::ModelInferResponse Named() const;

 private:
  using Input = inference::ModelInferRequest::InferInputTensor;

  // What parameters of an input or an output say of shared memory.
  struct Placed {
    std::optional<std::string> region;
    std::optional<std::uint64_t> offset, bytes;
    v1::SharedMemory memory;  // which is looked at later

    bool given() const { return region || offset || bytes; }
  };
  struct Output {
    const ModelOutput* model;
    Placed placed;
  };

  absl::Status ReadInputs();
  absl::Status ReadInput(const Input& input, const wire::BorrowedBytes* raw);
  absl::Status ReadParameters();
  // False if the parameter is the native request's.
  bool ReadReserved(const std::string& name,
                    const inference::InferParameter& value,
                    absl::Status* status);
  absl::Status ReadOutputs();
  absl::Status ReadPlaced(const std::string& name,
                          const inference::InferParameter& value,
                          Placed* placed) const;
  absl::Status Find(Placed* placed) const;

  // Marks what the answer's message will have of its outputs, and gives those
  // in shared memory their places.
  absl::Status ChooseOutputs(TensorAnswer* answer);
  // The answer's message up to the tensors' bytes.
  std::string Head(const TensorAnswer& answer,
                   google::protobuf::Message* native) const;
  absl::Status CheckTime() const;
  // Asked before each tile, by any thread, and at the end.
  absl::Status GoesOn();
  absl::Status Complete(const absl::Status& holds);
  // Adds what has passed to a part of the request's time.
  void EndPart(absl::Duration InferTimes::*part);

  const MethodContext context_;
  const Common common_;
  const bool stream_;
  const absl::Time start_;
  absl::Time since_;  // of the part of the time that runs now
  InferTimes times_;
  std::atomic<bool> computing_{false};
  bool answered_ = false;

  InferEnvelope envelope_;
  const Model* model_ = nullptr;
  std::optional<NativeRequest> native_;
  std::vector<Output> outputs_;  // that were asked for
  const std::shared_ptr<SharedTensors> shared_;
  absl::Duration timeout_ = absl::InfiniteDuration();
  bool tells_final_ = false;
};

// The handler of a call.
std::unique_ptr<CallHandler> StartInference(const MethodContext& context,
                                            const Inference::Common& common,
                                            bool stream);

}  // namespace posenc::server
