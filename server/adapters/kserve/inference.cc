#include "server/adapters/kserve/inference.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "posenc/wire/frame.h"
#include "server/base/errors.h"
#include "server/base/steady_time.h"
#include "server/call/pending_response.h"
#include "server/convert/fields.h"
#include "server/convert/status.h"

namespace posenc::server {
namespace {

using inference::ModelInferResponse;

constexpr int kRawField = ModelInferResponse::kRawOutputContentsFieldNumber;

// Triton's clients send this metadata if an error must end the stream.
constexpr char kErrorsEndStreams[] = "triton_grpc_error";

absl::uint128 DataBytes(const OutputTensor& tensor) {
  return wire::DataBytes(core::DtypeSize(tensor.dtype), tensor.shape);
}

}  // namespace

Inference::Inference(const MethodContext& context, Facts* facts,
                     absl::Time start, absl::Duration waited, bool stream)
    : context_(context),
      facts_(facts),
      stream_(stream),
      start_(start),
      since_(SteadyNow()),
      shared_(std::make_shared<SharedTensors>(
          context.sharing, context.limits->max_request_bytes)) {
  times_.queue = waited;
}

Inference::~Inference() {
  if (model_ == nullptr) return;
  facts_->counts[model_ - Models().data()].Add(times_, answered_);
}

absl::Status Inference::ChooseOutputs(TensorAnswer* answer) {
  const auto find = [answer](const ModelOutput& output) {
    return static_cast<std::size_t>(
        std::find_if(answer->outputs.begin(), answer->outputs.end(),
                     [&](const OutputTensor& tensor) {
                       return tensor.field == output.field &&
                              tensor.within == output.within;
                     }) -
        answer->outputs.begin());
  };
  if (outputs_.empty()) {
    for (const ModelOutput& output : model_->outputs) {
      if (output.listed && find(output) < answer->outputs.size()) {
        outputs_.push_back({&output, {}});
      }
    }
  }
  if (outputs_.empty()) {
    return core::FieldInvalid("outputs",
                              "this request computes no output of the model ",
                              model_->name);
  }
  answer->sent.emplace();
  for (const Output& output : outputs_) {
    answer->sent->push_back(find(*output.model));
    if (answer->sent->back() < answer->outputs.size()) continue;
    return core::FieldInvalid(absl::StrCat("outputs.", output.model->name),
                              "not computed by this request");
  }
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    const Placed& placed = outputs_[i].placed;
    if (!placed.given()) continue;
    const std::size_t at = (*answer->sent)[i];
    const absl::uint128 size = DataBytes(answer->outputs[at]);
    const std::string field = absl::StrCat("outputs.", outputs_[i].model->name);
    if (size > *placed.bytes) {
      return core::FieldInvalid(
          absl::StrCat(field, ".parameters.", kRegionBytes), "is ",
          *placed.bytes, "; the tensor has ", ToString(size), " bytes");
    }
    RETURN_IF_ERROR(shared_->PlaceOutput(field, placed.memory, at, answer));
  }
  SharedTensors::Attach(shared_, answer);
  for (OutputTensor& tensor : answer->outputs) {
    tensor.field = kRawField;
    tensor.within = 0;
    tensor.bare = true;
  }
  return absl::OkStatus();
}

inference::ModelInferResponse Inference::Named() const {
  ModelInferResponse response;
  response.set_model_name(envelope_.request.model_name());
  response.set_model_version(kModelVersion);
  response.set_id(envelope_.request.id());
  if (stream_ && tells_final_) {
    (*response.mutable_parameters())["triton_final_response"].set_bool_param(
        true);
  }
  return response;
}

std::string Inference::Head(const TensorAnswer& answer) const {
  ModelInferResponse response = Named();
  if (answer.response != nullptr) {
    AddParameters(answer.response.get(), response.mutable_parameters());
  }
  absl::uint128 raw = 0;
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    const auto& [model, placed] = outputs_[i];
    const OutputTensor& tensor = answer.outputs[(*answer.sent)[i]];
    auto* const output = response.add_outputs();
    output->set_name(std::string(model->name));
    output->set_datatype(std::string(DatatypeName(tensor.dtype)));
    Append(tensor.shape, output->mutable_shape());
    absl::uint128 size = DataBytes(tensor);
    if (placed.given()) {
      auto& parameters = *output->mutable_parameters();
      parameters[kRegion].set_string_param(*placed.region);
      if (const auto offset = placed.offset.value_or(0); offset != 0) {
        parameters[kRegionOffset].set_int64_param(
            static_cast<std::int64_t>(offset));
      }
      parameters[kRegionBytes].set_int64_param(
          static_cast<std::int64_t>(absl::Uint128Low64(size)));
      size = 0;  // the bytes are not in the message
    }
    raw += wire::FieldBytes(kRawField, size);
  }
  std::string head = Serialize(response);
  if (!stream_) return head;
  std::string within;
  wire::AppendFieldHeader(
      inference::ModelStreamInferResponse::kInferResponseFieldNumber,
      absl::Uint128Low64(head.size() + raw), &within);
  return within + head;
}

absl::Status Inference::CheckTime() const {
  if (SteadyNow() - start_ <= timeout_) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat("parameters.timeout: ", absl::ToInt64Microseconds(timeout_),
                   " us have passed"));
}

void Inference::EndPart(absl::Duration InferTimes::*part) {
  const absl::Time now = SteadyNow();
  times_.*part += now - since_;
  since_ = now;
}

absl::StatusOr<std::unique_ptr<PendingResponse>> Inference::Answer(
    StopCheck stop) {
  // Outputs in regions are not in the message, but each must fit into its file.
  // So a request with outputs in regions gets the largest size of a file as its
  // limit. MakeResponse() checks the size of the message with the real limit.
  Limits limits = *context_.limits;
  MethodContext native_context = context_;
  native_context.limits = &limits;
  native_context.reserve = [this](std::int64_t bytes) {
    return envelope_.message.ClaimMore(bytes);
  };
  native_context.stop = stop;
  native_context.owned = &owned_;
  const bool shares = !parts_.tensors.empty();
  if (shares) {
    RETURN_IF_ERROR(shared_->ReadInputs(parts_, native_context.reserve,
                                        native_.get(), fields_, &bytes_));
  }
  native_context.borrowed = {fields_, bytes_, shares};
  for (const Output& output : outputs_) {
    if (!output.placed.given()) continue;
    limits.max_response_bytes = std::max(limits.max_response_bytes,
                                         context_.sharing.files->max_bytes());
  }
  absl::StatusOr<TensorAnswer> answer =
      model_->answer(*native_, native_context);
  if (!answer.ok()) return answer.status();
  RETURN_IF_ERROR(ChooseOutputs(&*answer));
  RETURN_IF_ERROR(CheckTime());
  // The computation calls `check` before each tile, on any thread.
  answer->check = [this] {
    // Before its first tile, the request has waited for its claim or a thread.
    if (!computing_.exchange(true)) EndPart(&InferTimes::queue);
    return CheckTime();
  };
  answer->complete = [this, complete = std::move(answer->complete)] {
    absl::Status holds = complete();
    EndPart(&InferTimes::infer);
    answered_ = holds.ok();
    return holds;
  };
  EndPart(&InferTimes::input);
  std::string head = Head(*answer);
  EndPart(&InferTimes::output);
  // Null if the request has no bytes, or its bytes are not in the message.
  const RequestMessage* const borrowed =
      envelope_.borrows && !envelope_.raw.empty() ? &envelope_.message
                                                  : nullptr;
  return MakeResponse(*std::move(answer), shared_from_this(), borrowed,
                      std::move(head), context_.limits->max_response_bytes);
}

namespace {

// Each message of a stream is a separate request with one answer. If a request
// has an error, the error is its answer, and the stream continues.
class InferHandler final : public CallHandler {
 public:
  InferHandler(const MethodContext& context, Facts* facts, bool stream)
      : context_(context),
        facts_(facts),
        stream_(stream),
        errors_end_it_(!stream ||
                       (context.call != nullptr &&
                        context.call->Find(kErrorsEndStreams) == "true")) {}

  void Waited(absl::Duration time) override { waited_ = time; }

  // The limit is lower than for other calls, because parameters can be JSON,
  // which takes far longer to parse than the contract's messages.
  std::size_t inline_message_bytes() const override { return 8 << 10; }
  absl::Status Receive(RequestMessage message) override {
    inference_ = std::make_shared<Inference>(
        context_, facts_, stream_ ? SteadyNow() : start_,
        waited_ - std::exchange(told_, waited_), stream_);
    absl::Status read = inference_->Read(std::move(message));
    if (!errors_end_it_) named_ = inference_->Named();
    if (!read.ok()) inference_ = nullptr;
    return read;
  }
  bool TakesLong() const override {
    return inference_ != nullptr && inference_->TakesLong();
  }
  absl::StatusOr<std::unique_ptr<PendingResponse>> Next(
      StopCheck stop) override {
    if (inference_ == nullptr) return nullptr;
    return std::exchange(inference_, nullptr)->Answer(stop);
  }
  std::optional<std::string> Tell(const absl::Status& error) override {
    if (errors_end_it_) return std::nullopt;
    inference_ = nullptr;  // not null if an allocation failed in Receive()
    inference::ModelStreamInferResponse message;
    message.set_error_message(ToGrpcStatus(error).error_message());
    *message.mutable_infer_response() = named_;
    return Serialize(message);
  }

 private:
  const MethodContext context_;
  Facts* const facts_;
  const bool stream_, errors_end_it_;
  const absl::Time start_ = SteadyNow();
  absl::Duration waited_, told_;
  std::shared_ptr<Inference> inference_;  // the request that Next() answers
  inference::ModelInferResponse named_;   // names of a stream's last request
};

}  // namespace

std::unique_ptr<CallHandler> StartInference(const MethodContext& context,
                                            Facts* facts, bool stream) {
  return std::make_unique<InferHandler>(context, facts, stream);
}

}  // namespace posenc::server
