#include "server/kserve/inference.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/error.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "posenc/wire/frame.h"
#include "server/convert/status.h"
#include "server/kserve/datatypes.h"
#include "server/kserve/response_parameters.h"
#include "server/kserve/scalar.h"
#include "server/rpc/tensor_response.h"

namespace posenc::server {
namespace {

namespace pb = google::protobuf;
using inference::InferParameter;
using inference::ModelInferRequest;
using inference::ModelInferResponse;

constexpr int kRawField = ModelInferResponse::kRawOutputContentsFieldNumber;

// Maps have no order of their own; equal answers get equal bytes.
std::string Serialize(const pb::Message& message) {
  std::string bytes;
  pb::io::StringOutputStream stream(&bytes);
  pb::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  message.SerializeToCodedStream(&coded);
  coded.Trim();
  return bytes;
}

absl::Status WrongKind(const InferParameter& value, absl::string_view wanted) {
  return core::FieldInvalid(
      "", absl::StrCat("is ", KindOf(value), "; must be ", wanted));
}

// Whether a parameter says nothing: what clients send that have no sequences.
bool SaysNothing(const InferParameter& value) {
  return !value.bool_param() && value.int64_param() == 0 &&
         value.uint64_param() == 0 && value.double_param() == 0 &&
         value.string_param().empty();
}

bool IsInteger(const InferParameter& value) {
  return value.has_int64_param() || value.has_uint64_param();
}

absl::StatusOr<absl::Duration> ReadTimeout(const InferParameter& value) {
  if (!IsInteger(value)) {
    return WrongKind(value, "int64_param or uint64_param, microseconds");
  }
  if (value.int64_param() < 0) {
    return core::FieldInvalid(
        "", absl::StrCat(value.int64_param(), "; must not be negative"));
  }
  const std::uint64_t microseconds = std::min<std::uint64_t>(
      value.has_uint64_param()
          ? value.uint64_param()
          : static_cast<std::uint64_t>(value.int64_param()),
      std::numeric_limits<std::int64_t>::max());
  if (microseconds == 0) return absl::InfiniteDuration();
  return absl::Microseconds(static_cast<std::int64_t>(microseconds));
}

// Of an input or an output.
absl::Status NoSuchParameter(absl::string_view name) {
  if (absl::StartsWith(name, "shared_memory_")) {
    return absl::UnimplementedError(
        absl::StrCat(name, ": this server shares no memory"));
  }
  return core::FieldInvalid(absl::StrCat("parameters.", name),
                            "no such parameter");
}

}  // namespace

Inference::Inference(Counts* counts, absl::Time start, absl::Duration waited,
                     bool stream)
    : counts_(counts), stream_(stream), start_(start), since_(absl::Now()) {
  times_.queue = waited;
}

Inference::~Inference() {
  if (model_ == nullptr) return;
  ModelCounts& counts = (*counts_)[model_ - Models().data()];
  if (answered_) {
    counts.Succeeded(times_);
  } else {
    counts.Failed(times_);
  }
}

absl::Status Inference::Read(RequestMessage message) {
  absl::Status status = Parse(std::move(message), &envelope_);
  if (!status.ok()) return status;
  const ModelInferRequest& request = envelope_.request;
  const absl::StatusOr<const Model*> model =
      FindModel(request.model_name(), request.model_version());
  if (!model.ok()) return model.status();
  model_ = *model;
  native_.emplace(*model_->request);
  status = ReadInputs();
  if (status.ok()) status = ReadParameters();
  if (status.ok()) status = ReadOutputs();
  if (status.ok()) status = native_->CheckKnown(*model_->known);
  return status;
}

absl::Status Inference::ReadReserved(const std::string& name,
                                     const InferParameter& value,
                                     bool* reserved) {
  *reserved = true;
  if (name == "timeout") {
    const absl::StatusOr<absl::Duration> timeout = ReadTimeout(value);
    if (timeout.ok()) timeout_ = *timeout;
    return timeout.status();
  }
  if (name == "priority") {
    return IsInteger(value) ? absl::OkStatus()
                            : WrongKind(value, "int64_param or uint64_param");
  }
  if (name == "triton_enable_empty_final_response") {
    if (!value.has_bool_param()) return WrongKind(value, "bool_param");
    tells_final_ = value.bool_param();
    return absl::OkStatus();
  }
  // KServe's clients ask for bytes by it; there is nothing else here.
  if (name == "binary_data_output") {
    return value.has_bool_param() ? absl::OkStatus()
                                  : WrongKind(value, "bool_param");
  }
  if (absl::StartsWith(name, "sequence_")) {
    return SaysNothing(value)
               ? absl::OkStatus()
               : core::FieldInvalid(
                     "", "no sequences here; every request is whole");
  }
  *reserved = false;
  return absl::OkStatus();
}

// In the order of their names, so that equal requests get equal errors.
absl::Status Inference::ReadParameters() {
  std::map<std::string, const InferParameter*> sorted;
  for (const auto& [name, value] : envelope_.request.parameters()) {
    sorted.emplace(name, &value);
  }
  for (const auto& [name, value] : sorted) {
    bool reserved = false;
    absl::Status status = core::Prefixed(absl::StrCat("parameters.", name),
                                         ReadReserved(name, *value, &reserved));
    if (status.ok() && !reserved) status = native_->SetParameter(name, *value);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Inference::ReadInputs() {
  const ModelInferRequest& request = envelope_.request;
  const auto inputs = static_cast<std::size_t>(request.inputs_size());
  const auto typed =
      std::find_if(request.inputs().begin(), request.inputs().end(),
                   [](const auto& input) { return input.has_contents(); });
  const bool is_typed = typed != request.inputs().end();
  if (is_typed && !envelope_.raw.empty()) {
    return core::FieldInvalid(
        "raw_input_contents",
        absl::StrCat("beside contents of the input ", typed->name(),
                     "; send all tensors in one of the two forms"));
  }
  if (!is_typed && envelope_.raw.size() != inputs) {
    return core::FieldInvalid(
        "raw_input_contents",
        absl::StrCat(envelope_.raw.size(), " of them for ", inputs,
                     " inputs; one for each input, in their order"));
  }
  absl::flat_hash_set<absl::string_view> names;
  for (std::size_t i = 0; i < inputs; ++i) {
    const auto& input = request.inputs(static_cast<int>(i));
    const std::string field = absl::StrCat("inputs.", input.name());
    if (!names.insert(input.name()).second) {
      return core::FieldInvalid(field, "given twice");
    }
    for (const auto& [name, value] : input.parameters()) {
      // KServe's client says how long the bytes are.
      if (name == "binary_data_size" && IsInteger(value)) continue;
      return core::Prefixed(field, NoSuchParameter(name));
    }
    v1::Tensor tensor;
    tensor.set_dtype(DtypeOf(input.datatype()));
    if (tensor.dtype() == v1::DTYPE_UNSPECIFIED) {
      return core::FieldInvalid(
          absl::StrCat(field, ".datatype"),
          absl::StrCat("'", input.datatype(), "'; must be one of ",
                       DatatypeNames()));
    }
    *tensor.mutable_shape() = input.shape();
    wire::BorrowedBytes bytes;
    if (!is_typed) {
      bytes = envelope_.raw[i];
    } else if (!input.has_contents()) {
      return core::FieldRequired(
          "raw_input_contents",
          absl::StrCat("the input ", input.name(),
                       " has no contents, others do; send all tensors in one "
                       "of the two forms"));
    } else {
      absl::StatusOr<wire::BorrowedBytes> contents = TypedBytes(input);
      if (!contents.ok()) {
        return core::Prefixed(absl::StrCat(field, ".contents"),
                              contents.status());
      }
      bytes = *std::move(contents);
    }
    const absl::Status set =
        native_->SetTensor(input.name(), std::move(tensor), bytes);
    if (!set.ok()) return set;
  }
  return absl::OkStatus();
}

absl::Status Inference::ReadOutputs() {
  for (const auto& output : envelope_.request.outputs()) {
    const std::string field = absl::StrCat("outputs.", output.name());
    const auto known = std::find_if(
        model_->outputs.begin(), model_->outputs.end(),
        [&](const ModelOutput& each) { return each.name == output.name(); });
    if (known == model_->outputs.end()) {
      return core::FieldInvalid(field, "the model has no such output");
    }
    if (std::find(outputs_.begin(), outputs_.end(), &*known) !=
        outputs_.end()) {
      return core::FieldInvalid(field, "asked for twice");
    }
    for (const auto& [name, value] : output.parameters()) {
      if (name == "binary_data" && value.has_bool_param()) continue;
      if (name == "classification") {
        return core::FieldInvalid(
            absl::StrCat(field, ".parameters.classification"),
            "no classes here; tensors come whole");
      }
      return core::Prefixed(field, NoSuchParameter(name));
    }
    outputs_.push_back(&*known);
  }
  return absl::OkStatus();
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
  const bool all = outputs_.empty();
  if (all) {
    for (const ModelOutput& output : model_->outputs) {
      if (output.listed && find(output) < answer->outputs.size()) {
        outputs_.push_back(&output);
      }
    }
  }
  answer->sent.emplace();
  for (const ModelOutput* const output : outputs_) {
    const std::size_t place = find(*output);
    if (place == answer->outputs.size()) {
      return core::FieldInvalid(absl::StrCat("outputs.", output->name),
                                "not computed by this request");
    }
    answer->sent->push_back(place);
  }
  for (OutputTensor& tensor : answer->outputs) {
    tensor.field = kRawField;
    tensor.within = 0;
    tensor.bare = true;
  }
  return absl::OkStatus();
}

void Inference::NameModel(ModelInferResponse* response) const {
  response->set_model_name(envelope_.request.model_name());
  response->set_model_version(kModelVersion);
  response->set_id(envelope_.request.id());
  if (stream_ && tells_final_) {
    (*response->mutable_parameters())["triton_final_response"].set_bool_param(
        true);
  }
}

std::string Inference::Head(const TensorAnswer& answer,
                            const pb::Message* native) const {
  ModelInferResponse response;
  NameModel(&response);
  if (native != nullptr) AddParameters(*native, response.mutable_parameters());
  absl::uint128 raw = 0;
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    const OutputTensor& tensor = answer.outputs[(*answer.sent)[i]];
    auto* const output = response.add_outputs();
    output->set_name(std::string(outputs_[i]->name));
    output->set_datatype(std::string(DatatypeName(tensor.dtype)));
    output->mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
    raw += wire::FieldBytes(
        kRawField,
        wire::DataBytes(core::DtypeSize(tensor.dtype), tensor.shape));
  }
  std::string head = Serialize(response);
  if (!stream_) return head;
  std::string within;
  wire::AppendFieldHeader(
      inference::ModelStreamInferResponse::kInferResponseFieldNumber,
      absl::Uint128Low64(head.size() + raw), &within);
  return within + head;
}

std::string Inference::ErrorMessage(const absl::Status& error) const {
  inference::ModelStreamInferResponse message;
  message.set_error_message(ToGrpcStatus(error).error_message());
  NameModel(message.mutable_infer_response());
  return Serialize(message);
}

absl::Status Inference::CheckTime() const {
  if (absl::Now() - start_ <= timeout_) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat("parameters.timeout: ", absl::ToInt64Microseconds(timeout_),
                   " us have passed"));
}

// The native response with the request's timeout and counts around it.
class Inference::Response final : public PendingResponse {
 public:
  Response(std::shared_ptr<Inference> inference,
           std::unique_ptr<PendingResponse> native)
      : inference_(std::move(inference)), native_(std::move(native)) {
    tiles_ = native_->tiles();
    work_bytes_ = native_->work_bytes();
    bytes_to_claim_ = native_->bytes_to_claim();
  }

  absl::Status Allocate(ResponseBuffers* buffers) override {
    // Until now it waited for its claim, or for a thread.
    EndPart(&InferTimes::queue);
    const absl::Status allocated = native_->Allocate(buffers);
    bytes_to_claim_ = native_->bytes_to_claim();
    EndPart(&InferTimes::output);
    return allocated;
  }
  absl::Status Compute(std::int64_t tile, StopCheck stop) override {
    const absl::Status in_time = inference_->CheckTime();
    if (in_time.ok()) return native_->Compute(tile, stop);
    // A stream goes on after it.
    late_.store(true);
    return inference_->stream_ ? absl::OkStatus() : in_time;
  }
  void Finish(grpc::ByteBuffer* response) override {
    EndPart(&InferTimes::infer);
    if (late_.load()) {
      const grpc::Slice slice(
          inference_->ErrorMessage(inference_->CheckTime()));
      grpc::ByteBuffer(&slice, 1).Swap(response);
      return;
    }
    native_->Finish(response);
    EndPart(&InferTimes::output);
    inference_->answered_ = true;
  }

 private:
  void EndPart(absl::Duration InferTimes::*part) {
    const absl::Time now = absl::Now();
    inference_->times_.*part += now - inference_->since_;
    inference_->since_ = now;
  }

  const std::shared_ptr<Inference> inference_;
  const std::unique_ptr<PendingResponse> native_;
  std::atomic<bool> late_{false};
};

absl::StatusOr<std::unique_ptr<PendingResponse>> Inference::Answer(
    const MethodContext& context) {
  std::unique_ptr<pb::Message> native_response;
  absl::StatusOr<TensorAnswer> answer = model_->answer(
      native_->message(), native_->borrowed(), context, &native_response);
  if (!answer.ok()) return answer.status();
  absl::Status status = ChooseOutputs(&*answer);
  if (status.ok()) status = CheckTime();
  if (!status.ok()) return status;
  std::string head = Head(*answer, native_response.get());
  absl::StatusOr<std::unique_ptr<PendingResponse>> response =
      MakeTensorResponse(*std::move(answer), shared_from_this(),
                         envelope_.borrowed_from(), std::move(head),
                         context.limits->max_response_bytes);
  if (!response.ok()) return response.status();
  const absl::Time now = absl::Now();
  times_.input += now - since_;
  since_ = now;
  return std::make_unique<Response>(shared_from_this(), *std::move(response));
}

}  // namespace posenc::server
