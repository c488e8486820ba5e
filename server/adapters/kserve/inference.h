// Handles one request of ModelInfer or ModelStreamInfer, from the received
// message to the message of the answer.
//
//   ModelInferRequest --Read--> native request --Model::answer--> TensorAnswer
//     --Answer--> | model_name .. outputs | raw_output_contents | .. |
//
// The bytes of tensors are borrowed from the request, and results overwrite
// them if the RPC allows it, as in the contract's calls.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "google/protobuf/message.h"
#include "inference/inference.pb.h"
#include "posenc/v1/tensor.pb.h"
#include "posenc/wire/split.h"
#include "server/adapters/kserve/models.h"
#include "server/adapters/kserve/parameters.h"
#include "server/adapters/kserve/regions.h"
#include "server/adapters/kserve/statistics.h"
#include "server/call/handler.h"
#include "server/memory/request_message.h"
#include "server/methods/methods.h"
#include "server/methods/shared_tensors.h"

namespace posenc::server {

// Names of the parameters that describe tensors in shared memory.
inline constexpr char kRegion[] = "shared_memory_region";
inline constexpr char kRegionOffset[] = "shared_memory_offset";
inline constexpr char kRegionBytes[] = "shared_memory_byte_size";

// Objects that all requests share. They outlive the requests.
struct Facts {
  std::vector<ModelCounts> counts{Models().size()};
  std::atomic<bool> ready{false};
  std::unique_ptr<Regions> regions;  // null: no memory is shared
};

class Inference : public std::enable_shared_from_this<Inference> {
 public:
  // The request's parameter `timeout` is measured from `start`. `stream` is
  // true for a message of ModelStreamInfer.
  Inference(const MethodContext& context, Facts* facts, absl::Time start,
            absl::Duration waited, bool stream);
  // Counts the request as failed if it has no answer yet.
  ~Inference();

  absl::Status Read(RequestMessage message);
  // Implements CallHandler::TakesLong(). Must be called after Read().
  bool TakesLong() const {
    return model_->takes_long(*native_) || parts_.TakesLong();
  }

  // Returns the response, whose tensors are not computed yet. Must be called
  // only once, after Read().
  absl::StatusOr<std::unique_ptr<PendingResponse>> Answer(StopCheck stop);

  // Returns a response with the fields that every answer repeats: model and id.
  // Works even if Read() has failed.
  inference::ModelInferResponse Named() const;

 private:
  using Input = inference::ModelInferRequest::InferInputTensor;

  // The parameters for shared memory of an input or an output.
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

  struct Place {
    google::protobuf::Message* parent;
    const google::protobuf::FieldDescriptor* field;
  };

  // Parses into envelope_. Returns INVALID_ARGUMENT if the message is
  // malformed, or has more tensors or parameters than any model takes. Returns
  // UNIMPLEMENTED, kFieldUnknown, for fields that this server does not know,
  // and kMessageTooLarge if the message has more than 16 MiB outside
  // raw_input_contents.
  absl::Status Parse(RequestMessage message);
  absl::Status ReadInputs();
  absl::Status ReadInput(const Input& input, const wire::BorrowedBytes* raw);
  absl::Status ReadParameters();
  // Reads a parameter that KServe or its clients define. Returns false for any
  // other name: the parameter is then a field of the native request.
  bool ReadReserved(const std::string& name,
                    const inference::InferParameter& value,
                    absl::Status* status);
  absl::Status ReadOutputs();
  // Reads the parameters of an input or an output, and finds its place in
  // shared memory. `ignores` returns true for other parameters that are
  // accepted without effect. Any further parameter is an error.
  absl::StatusOr<Placed> ReadPlaced(
      const ParameterMap& parameters,
      bool (*ignores)(absl::string_view name,
                      const inference::InferParameter& value)) const;

  // SetTensor() sets a tensor of the native request, and SetParameter() sets
  // any other field; `path` names the field. Both return an error that names no
  // field if the path does not exist or was set before. The bytes of a tensor
  // are borrowed if the tensor is a direct field of the request; otherwise they
  // are copied into the request. A tensor in shared memory has no bytes before
  // Answer().
  absl::Status SetTensor(const std::string& path, v1::Tensor tensor,
                         const wire::BorrowedBytes& data);
  absl::Status SetParameter(const std::string& path,
                            const inference::InferParameter& value);
  // Returns the field that `path` names, and the message that contains it.
  // `none` is the text of the error for a wrong path.
  absl::StatusOr<Place> Walk(absl::string_view path, absl::string_view none);
  // Records that `path` is set. Returns INVALID_ARGUMENT if this path, a path
  // inside it or a path around it was set before.
  absl::Status Take(const std::string& path);
  // Claims memory for the encodings of the native request.
  absl::Status ClaimRopes();

  // Selects the outputs of the answer, and sets the places of the outputs in
  // shared memory.
  absl::Status ChooseOutputs(TensorAnswer* answer);
  // Returns the part of the answer's message before the tensors' bytes. Moves
  // fields out of the native response.
  std::string Head(const TensorAnswer& answer) const;
  absl::Status CheckTime() const;
  // Adds the time since the last EndPart(), or since the constructor, to the
  // member `part` of times_.
  void EndPart(absl::Duration InferTimes::*part);

  const MethodContext context_;
  Facts* const facts_;
  const bool stream_;
  const absl::Time start_;
  absl::Time since_;  // start of the current part
  InferTimes times_;
  std::atomic<bool> computing_{false};
  bool answered_ = false;

  // The received message, parsed. The bytes of raw_input_contents point
  // into `message` if `borrows` is true. Otherwise they point into `request`,
  // because only the generated parser understands the message's framing.
  struct {
    inference::ModelInferRequest request;  // without the bytes in `raw`
    RequestMessage message;
    std::vector<wire::BorrowedBytes> raw;
    bool borrows = false;
  } envelope_;

  const Model* model_ = nullptr;
  std::unique_ptr<google::protobuf::Message> native_;
  std::set<std::string> taken_;  // paths that are set
  std::size_t json_bytes_ = 0;   // JSON in all parameters
  // Field numbers and bytes of the borrowed tensors.
  std::vector<int> fields_;
  BorrowedList bytes_;
  SharedParts parts_;    // of native_
  OwnedElements owned_;  // converted elements of native_

  std::vector<Output> outputs_;  // the requested outputs
  const std::shared_ptr<SharedTensors> shared_;
  absl::Duration timeout_ = absl::InfiniteDuration();
  bool tells_final_ = false;
};

// Makes the handler of a call of ModelInfer, or of ModelStreamInfer if `stream`
// is true.
std::unique_ptr<CallHandler> StartInference(const MethodContext& context,
                                            Facts* facts, bool stream);

}  // namespace posenc::server
