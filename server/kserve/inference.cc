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
#include "server/budget/errors.h"
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

// The parameters in the order of their names. A map's own order changes from
// message to message, and equal requests must get equal errors.
std::map<std::string, const InferParameter*> Sorted(
    const pb::Map<std::string, InferParameter>& parameters) {
  std::map<std::string, const InferParameter*> sorted;
  for (const auto& [name, value] : parameters) sorted.emplace(name, &value);
  return sorted;
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

constexpr char kRegion[] = "shared_memory_region";
constexpr char kRegionOffset[] = "shared_memory_offset";
constexpr char kRegionBytes[] = "shared_memory_byte_size";

// A parameter that counts bytes.
absl::StatusOr<std::uint64_t> ReadBytes(const InferParameter& value) {
  if (!IsInteger(value)) return WrongKind(value, "int64_param or uint64_param");
  if (value.int64_param() < 0) {
    return core::FieldInvalid(
        "", absl::StrCat(value.int64_param(), "; must not be negative"));
  }
  return value.has_uint64_param()
             ? value.uint64_param()
             : static_cast<std::uint64_t>(value.int64_param());
}

bool IsShared(const ModelInferRequest::InferInputTensor& input) {
  return input.parameters().contains(kRegion);
}

// KServe's client gives an input in a region contents, too, which are empty.
bool HasContents(const ModelInferRequest::InferInputTensor& input) {
  return input.has_contents() &&
         (!IsShared(input) || input.contents().ByteSizeLong() > 0);
}

}  // namespace

Inference::Inference(const InferContext& context, absl::Time start,
                     absl::Duration waited, bool stream)
    : context_(context),
      stream_(stream),
      start_(start),
      since_(absl::Now()),
      shared_(std::make_shared<SharedTensors>(context.sharing,
                                              context.max_copied_bytes)) {
  times_.queue = waited;
}

Inference::~Inference() {
  if (model_ == nullptr) return;
  ModelCounts& counts = (*context_.counts)[model_ - Models().data()];
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
  native_.emplace(*model_->request, &envelope_.message);
  status = ReadInputs();
  if (status.ok()) status = ReadParameters();
  if (status.ok()) status = ReadOutputs();
  if (status.ok()) status = native_->CheckKnown(*model_->known);
  if (status.ok()) status = native_->ReadShared(*model_->shared, shared_.get());
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

absl::Status Inference::ReadParameters() {
  for (const auto& [name, value] : Sorted(envelope_.request.parameters())) {
    bool reserved = false;
    absl::Status status = core::Prefixed(absl::StrCat("parameters.", name),
                                         ReadReserved(name, *value, &reserved));
    if (status.ok() && !reserved) status = native_->SetParameter(name, *value);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Inference::ReadPlace(const std::string& name,
                                  const InferParameter& value,
                                  Placed* place) const {
  const auto read = [&]() -> absl::Status {
    if (name == kRegion) {
      if (!value.has_string_param()) return WrongKind(value, "string_param");
      place->region = value.string_param();
      return SharedTensors::CheckAllowed(context_.sharing);
    }
    if (name != kRegionOffset && name != kRegionBytes) {
      return core::FieldInvalid("", "no such parameter");
    }
    const absl::StatusOr<std::uint64_t> bytes = ReadBytes(value);
    if (!bytes.ok()) return bytes.status();
    (name == kRegionOffset ? place->offset : place->bytes) = *bytes;
    return absl::OkStatus();
  };
  return core::Prefixed(absl::StrCat("parameters.", name), read());
}

absl::StatusOr<v1::SharedMemory> Inference::Find(const Placed& place) const {
  if (!place.region) {
    return core::FieldRequired(absl::StrCat("parameters.", kRegion),
                               "not given, but bytes or an offset in it are");
  }
  if (!place.bytes) {
    return core::FieldRequired(absl::StrCat("parameters.", kRegionBytes),
                               "not given");
  }
  absl::StatusOr<v1::SharedMemory> found = context_.regions->Find(
      *place.region, place.offset.value_or(0), *place.bytes);
  if (found.ok()) return found;
  return core::Prefixed(absl::StrCat("parameters.", kRegion), found.status());
}

absl::Status Inference::ReadInput(
    const ModelInferRequest::InferInputTensor& input,
    const wire::BorrowedBytes* raw, v1::Tensor* tensor,
    wire::BorrowedBytes* bytes) const {
  Placed placed;
  for (const auto& [name, value] : Sorted(input.parameters())) {
    // KServe's client says how long the bytes are.
    if (name == "binary_data_size" && IsInteger(*value)) continue;
    const absl::Status read = ReadPlace(name, *value, &placed);
    if (!read.ok()) return read;
  }
  tensor->set_dtype(DtypeOf(input.datatype()));
  if (tensor->dtype() == v1::DTYPE_UNSPECIFIED) {
    return core::FieldInvalid(
        "datatype", absl::StrCat("'", input.datatype(), "'; must be one of ",
                                 DatatypeNames()));
  }
  *tensor->mutable_shape() = input.shape();
  if (placed.given()) {
    const absl::StatusOr<v1::SharedMemory> place = Find(placed);
    if (!place.ok()) return place.status();
    if (HasContents(input)) {
      return core::FieldInvalid("contents",
                                "beside a region; give one of the two");
    }
    const absl::StatusOr<absl::uint128> size = TensorBytes(*tensor);
    if (!size.ok()) return size.status();
    if (*size != *placed.bytes) {
      return core::FieldInvalid(
          absl::StrCat("parameters.", kRegionBytes),
          absl::StrCat("is ", *placed.bytes, "; the tensor has ",
                       ToString(*size), " bytes"));
    }
    *tensor->mutable_shared() = *place;
    return absl::OkStatus();
  }
  if (raw != nullptr) {
    *bytes = *raw;
    return absl::OkStatus();
  }
  absl::StatusOr<wire::BorrowedBytes> contents = TypedBytes(input);
  if (!contents.ok()) return core::Prefixed("contents", contents.status());
  *bytes = *std::move(contents);
  return absl::OkStatus();
}

// raw_input_contents belong to the inputs that are not in shared memory.
absl::Status Inference::ReadInputs() {
  const ModelInferRequest& request = envelope_.request;
  const auto& inputs = request.inputs();
  const auto sent = static_cast<std::size_t>(
      inputs.size() - std::count_if(inputs.begin(), inputs.end(), IsShared));
  const auto typed = std::find_if(inputs.begin(), inputs.end(), HasContents);
  const bool is_typed = typed != inputs.end();
  if (is_typed && !envelope_.raw.empty()) {
    return core::FieldInvalid(
        "raw_input_contents",
        absl::StrCat("beside contents of the input ", typed->name(),
                     "; send all tensors in one of the two forms"));
  }
  if (!is_typed && envelope_.raw.size() != sent) {
    return core::FieldInvalid(
        "raw_input_contents",
        absl::StrCat(envelope_.raw.size(), " of them for ", sent,
                     " inputs; one for each input that is not in shared "
                     "memory, in their order"));
  }
  absl::flat_hash_set<absl::string_view> names;
  std::size_t next = 0;  // of envelope_.raw
  for (const auto& input : inputs) {
    const std::string field = absl::StrCat("inputs.", input.name());
    if (!names.insert(input.name()).second) {
      return core::FieldInvalid(field, "given twice");
    }
    const bool has_raw = !is_typed && !IsShared(input);
    if (is_typed && !IsShared(input) && !input.has_contents()) {
      return core::FieldRequired(
          "raw_input_contents",
          absl::StrCat("the input ", input.name(),
                       " has no contents, others do; send all tensors in one "
                       "of the two forms"));
    }
    v1::Tensor tensor;
    wire::BorrowedBytes bytes;
    absl::Status status = core::Prefixed(
        field, ReadInput(input, has_raw ? &envelope_.raw[next++] : nullptr,
                         &tensor, &bytes));
    if (status.ok()) {
      status = native_->SetTensor(input.name(), std::move(tensor), bytes);
    }
    if (!status.ok()) return status;
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
    Placed placed;
    for (const auto& [name, value] : Sorted(output.parameters())) {
      if (name == "binary_data" && value->has_bool_param()) continue;
      if (name == "classification") {
        return core::FieldInvalid(
            absl::StrCat(field, ".parameters.classification"),
            "no classes here; tensors come whole");
      }
      const absl::Status read = ReadPlace(name, *value, &placed);
      if (!read.ok()) return core::Prefixed(field, read);
    }
    if (placed.given()) {
      const absl::Status found = Find(placed).status();
      if (!found.ok()) return core::Prefixed(field, found);
      placed_[&*known] = placed;
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
  const absl::Status placed = PlaceOutputs(answer);
  if (!placed.ok()) return placed;
  for (OutputTensor& tensor : answer->outputs) {
    tensor.field = kRawField;
    tensor.within = 0;
    tensor.bare = true;
  }
  return absl::OkStatus();
}

absl::Status Inference::PlaceOutputs(TensorAnswer* answer) {
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    const auto placed = placed_.find(outputs_[i]);
    if (placed == placed_.end()) continue;
    const std::size_t at = (*answer->sent)[i];
    const OutputTensor& tensor = answer->outputs[at];
    const std::string field = absl::StrCat("outputs.", outputs_[i]->name);
    const absl::uint128 size =
        wire::DataBytes(core::DtypeSize(tensor.dtype), tensor.shape);
    if (size > *placed->second.bytes) {
      return core::FieldInvalid(
          absl::StrCat(field, ".parameters.", kRegionBytes),
          absl::StrCat("is ", *placed->second.bytes, "; the tensor has ",
                       ToString(size), " bytes"));
    }
    const absl::StatusOr<v1::SharedMemory> place = Find(placed->second);
    if (!place.ok()) return core::Prefixed(field, place.status());
    const absl::Status there = shared_->PlaceOutput(field, *place, at, answer);
    if (!there.ok()) return there;
  }
  SharedTensors::Attach(shared_, answer);
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
    absl::uint128 size =
        wire::DataBytes(core::DtypeSize(tensor.dtype), tensor.shape);
    const auto placed = placed_.find(outputs_[i]);
    if (placed != placed_.end()) {
      auto& parameters = *output->mutable_parameters();
      parameters[kRegion].set_string_param(*placed->second.region);
      if (placed->second.offset.value_or(0) != 0) {
        parameters[kRegionOffset].set_int64_param(
            static_cast<std::int64_t>(*placed->second.offset));
      }
      parameters[kRegionBytes].set_int64_param(
          static_cast<std::int64_t>(absl::Uint128Low64(size)));
      size = 0;  // they are not in the message
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
  absl::Status Complete() override {
    error_ = late_.load() ? inference_->CheckTime() : native_->Complete();
    return inference_->stream_ ? absl::OkStatus() : error_;
  }
  void Finish(grpc::ByteBuffer* response) override {
    EndPart(&InferTimes::infer);
    if (!error_.ok()) {
      const grpc::Slice slice(inference_->ErrorMessage(error_));
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
  absl::Status error_;  // for a stream's message
};

absl::StatusOr<std::unique_ptr<PendingResponse>> Inference::Answer(
    const MethodContext& context) {
  // Outputs that lie in regions are in no message, and each is within a file.
  // The message itself is checked below, when it is known what it has.
  Limits limits = *context.limits;
  if (!placed_.empty()) {
    limits.max_response_bytes =
        std::max(limits.max_response_bytes, context.sharing.files->max_bytes());
  }
  MethodContext native_context = context;
  native_context.limits = &limits;
  std::unique_ptr<pb::Message> native_response;
  absl::StatusOr<TensorAnswer> answer =
      model_->answer(native_->message(), native_->borrowed(), native_context,
                     &native_response);
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
