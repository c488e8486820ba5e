// One request of ModelInfer or ModelStreamInfer, from its message to the
// message of its answer.
//
//   ModelInferRequest --Read--> NativeRequest --Model::answer--> TensorAnswer
//     --Answer--> | model_name .. outputs | raw_output_contents | .. |
//
// The tensors' bytes are treated as in the contract's calls: borrowed from the
// request, and written over it if the RPC allows that.

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

// Names of parameters for tensors in shared memory.
inline constexpr char kRegion[] = "shared_memory_region";
inline constexpr char kRegionOffset[] = "shared_memory_offset";
inline constexpr char kRegionBytes[] = "shared_memory_byte_size";

class Inference : public std::enable_shared_from_this<Inference> {
 public:
  // Objects that all requests share, and that outlive them: the counts of each
  // model, and the regions, null if no memory is shared.
  struct Common {
    std::vector<ModelCounts>* counts;
    Regions* regions;
  };

  // start: the time from which a `timeout` counts. stream: the request is a
  // message of ModelStreamInfer.
  Inference(const MethodContext& context, const Common& common,
            absl::Time start, absl::Duration waited, bool stream);
  // Counts the request as failed, unless it was answered.
  ~Inference();

  absl::Status Read(RequestMessage message);
  // Returns the bytes that Read() has copied out of shared memory.
  std::int64_t copied_bytes() const { return shared_->copied_bytes(); }
  // See CallHandler. Call it after Read().
  bool TakesLong() const { return model_->takes_long(native_->message()); }

  // Call this once, after Read().
  absl::StatusOr<std::unique_ptr<PendingResponse>> Answer();

  // Returns the names that each answer repeats, even if Read() has failed.
  inference::ModelInferResponse Named() const;

 private:
  using Input = inference::ModelInferRequest::InferInputTensor;

  // The parameters of an input or an output about shared memory.
  struct Placed {
    std::optional<std::string> region;
    std::optional<std::uint64_t> offset, bytes;
    v1::SharedMemory memory;  // not checked yet

    bool given() const { return region || offset || bytes; }
  };
  struct Output {
    const ModelOutput* model;
    Placed placed;
  };

  absl::Status ReadInputs();
  absl::Status ReadInput(const Input& input, const wire::BorrowedBytes* raw);
  absl::Status ReadParameters();
  // Returns false if the parameter belongs to the native request.
  bool ReadReserved(const std::string& name,
                    const inference::InferParameter& value,
                    absl::Status* status);
  absl::Status ReadOutputs();
  absl::Status ReadPlaced(const std::string& name,
                          const inference::InferParameter& value,
                          Placed* placed) const;
  absl::Status Find(Placed* placed) const;

  // Selects the outputs of the answer's message, and gives those in shared
  // memory their places.
  absl::Status ChooseOutputs(TensorAnswer* answer);
  // Returns the answer's message up to the tensors' bytes.
  std::string Head(const TensorAnswer& answer,
                   google::protobuf::Message* native) const;
  absl::Status CheckTime() const;
  // Checks the timeout before each tile, on any thread.
  absl::Status GoesOn();
  absl::Status Complete(const absl::Status& holds);
  // Adds the time since the last call to a part of the request's time.
  void EndPart(absl::Duration InferTimes::*part);

  const MethodContext context_;
  const Common common_;
  const bool stream_;
  const absl::Time start_;
  absl::Time since_;  // start of the current part
  InferTimes times_;
  std::atomic<bool> computing_{false};
  bool answered_ = false;

  InferEnvelope envelope_;
  const Model* model_ = nullptr;
  std::optional<NativeRequest> native_;
  std::vector<Output> outputs_;  // requested ones
  const std::shared_ptr<SharedTensors> shared_;
  absl::Duration timeout_ = absl::InfiniteDuration();
  bool tells_final_ = false;
};

// Makes the handler of a call.
std::unique_ptr<CallHandler> StartInference(const MethodContext& context,
                                            const Inference::Common& common,
                                            bool stream);

}  // namespace posenc::server
