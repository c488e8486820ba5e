// Implements the part of class Inference that reads a request.

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "server/adapters/kserve/inference.h"
#include "server/base/errors.h"
#include "server/call/request.h"
#include "server/convert/unknown_fields.h"

namespace posenc::server {
namespace {

using inference::InferParameter;
using Request = inference::ModelInferRequest;
using Input = Request::InferInputTensor;
namespace pb = google::protobuf;

// Returns the parameters in the order of their names. A map's own order changes
// from message to message, and equal requests must get equal errors.
std::map<std::string, const InferParameter*> Sorted(
    const ParameterMap& parameters) {
  std::map<std::string, const InferParameter*> sorted;
  for (const auto& [name, value] : parameters) sorted.emplace(name, &value);
  return sorted;
}

// Returns true if the value is false, 0 or empty. Clients that do not use
// sequences send these values.
bool SaysNothing(const InferParameter& value) {
  return !value.bool_param() && value.int64_param() == 0 &&
         value.uint64_param() == 0 && value.double_param() == 0 &&
         value.string_param().empty();
}

bool IsShared(const Input& input) {
  return input.parameters().contains(kRegion);
}

// Returns whether the input has typed contents. Empty contents do not count,
// because KServe's client adds them to inputs in regions.
bool HasContents(const Input& input) {
  return input.has_contents() &&
         (!IsShared(input) || input.contents().ByteSizeLong() > 0);
}

// Limits for one request. They keep the memory for a parsed message small, and
// are far above the needs of every model.
constexpr std::size_t kMostTensors = 64;
constexpr std::size_t kMostParameters = 1024;
constexpr std::size_t kMostSmallBytes = 16 << 20;
// Limit for a message whose framing only the generated parser understands.
constexpr std::size_t kMostOddBytes = 1 << 20;

absl::Status CheckCounts(const wire::SplitEnvelope& split) {
  for (const int field :
       {Request::kParametersFieldNumber, Request::kInputsFieldNumber,
        Request::kOutputsFieldNumber, Request::kRawInputContentsFieldNumber}) {
    const std::size_t most = field == Request::kParametersFieldNumber
                                 ? kMostParameters
                                 : kMostTensors;
    if (split.records[field] <= most) continue;
    return core::FieldInvalid(
        Request::descriptor()->FindFieldByNumber(field)->name(),
        split.records[field], " of them; at most ", most);
  }
  return absl::OkStatus();
}

wire::BorrowedBytes Bytes(const void* data, std::size_t size) {
  wire::BorrowedBytes bytes;
  bytes.size = size;
  if (size > 0) bytes.pieces.emplace_back(static_cast<const char*>(data), size);
  return bytes;
}

// Returns `elements` as bytes, or an error if the input also has other
// contents.
template <typename T>
absl::StatusOr<wire::BorrowedBytes> Only(absl::string_view field,
                                         const pb::RepeatedField<T>& elements,
                                         const Input& input) {
  std::vector<const pb::FieldDescriptor*> given;
  input.contents().GetReflection()->ListFields(input.contents(), &given);
  for (const pb::FieldDescriptor* const other : given) {
    if (other->name() == field) continue;
    return core::FieldInvalid("", "has ", other->name(), "; elements of ",
                              input.datatype(), " belong in ", field);
  }
  return Bytes(elements.data(), elements.size() * sizeof(T));
}

// Returns the bytes of an input's typed contents, which stay in `input`.
// Returns INVALID_ARGUMENT, without a field, if the contents do not match the
// datatype, or if the datatype has no typed form.
absl::StatusOr<wire::BorrowedBytes> TypedBytes(const Input& input) {
  const inference::InferTensorContents& contents = input.contents();
  const Datatype* const datatype = FindDatatype(input.datatype());
  switch (datatype == nullptr ? v1::DTYPE_UNSPECIFIED : datatype->dtype) {
    case v1::DTYPE_FLOAT32:
      return Only("fp32_contents", contents.fp32_contents(), input);
    case v1::DTYPE_FLOAT64:
      return Only("fp64_contents", contents.fp64_contents(), input);
    case v1::DTYPE_INT32:
      return Only("int_contents", contents.int_contents(), input);
    case v1::DTYPE_INT64:
      return Only("int64_contents", contents.int64_contents(), input);
    default:
      return core::FieldInvalid("", input.datatype(),
                                " has no typed form; send raw_input_contents");
  }
}

}  // namespace

absl::Status Inference::Read(RequestMessage message) {
  RETURN_IF_ERROR(Parse(std::move(message)));
  ASSIGN_OR_RETURN(model_, FindModel(envelope_.request.model_name(),
                                     envelope_.request.model_version()));
  native_.reset(model_->request->New());
  RETURN_IF_ERROR(ReadInputs());
  RETURN_IF_ERROR(ReadParameters());
  RETURN_IF_ERROR(ClaimRopes());
  RETURN_IF_ERROR(ReadOutputs());
  // Parameters in JSON may have enum values that this server does not know.
  if (json_bytes_ > 0) RETURN_IF_ERROR(model_->known->Check(*native_));
  parts_ = FindSharedParts(native_.get());
  if (parts_.places.empty()) return absl::OkStatus();
  return core::FieldInvalid(
      absl::StrCat("parameters.", parts_.places[0].path),
      "names a place for an output; give it as parameters of the output");
}

absl::Status Inference::Parse(RequestMessage message) {
  envelope_.message = std::move(message);
  wire::SplitEnvelope split;
  envelope_.borrows = wire::SplitValues(envelope_.message.pieces(),
                                        Request::kRawInputContentsFieldNumber,
                                        kMostTensors, &split);
  if (envelope_.borrows) {
    RETURN_IF_ERROR(CheckCounts(split));
  } else {
    if (envelope_.message.bytes() > kMostOddBytes) return NotAMessage();
    split.rest = envelope_.message.Joined();
  }
  absl::Status status =
      CheckSize("", "request without raw_input_contents", split.rest.size(),
                kMostSmallBytes, "send tensors as raw_input_contents");
  Request& request = envelope_.request;
  if (status.ok()) {
    status = envelope_.message.ClaimMore(
        static_cast<std::int64_t>(2 * split.rest.size()));
  }
  if (status.ok()) {
    status = ParseSmall(KnownFields::Of<Request>(), split.rest,
                        &envelope_.message, &request);
  }
  if (!status.ok()) return status;
  if (envelope_.borrows) {
    if (request.parameters_size() !=
        static_cast<int>(split.records[Request::kParametersFieldNumber])) {
      return core::FieldInvalid("parameters", "one of them is given twice");
    }
    envelope_.raw = std::move(split.values);
    return absl::OkStatus();
  }
  envelope_.message.Clear();
  for (const std::string& raw : request.raw_input_contents()) {
    envelope_.raw.push_back(Bytes(raw.data(), raw.size()));
  }
  return absl::OkStatus();
}

// raw_input_contents has one entry for each input outside shared memory.
absl::Status Inference::ReadInputs() {
  const auto& inputs = envelope_.request.inputs();
  const auto sent = static_cast<std::size_t>(
      inputs.size() - std::count_if(inputs.begin(), inputs.end(), IsShared));
  const auto typed = std::find_if(inputs.begin(), inputs.end(), HasContents);
  const bool is_typed = typed != inputs.end();
  if (is_typed && !envelope_.raw.empty()) {
    return core::FieldInvalid("raw_input_contents",
                              "beside contents of the input ", typed->name(),
                              "; send all tensors in one of the two forms");
  }
  if (!is_typed && envelope_.raw.size() != sent) {
    return core::FieldInvalid(
        "raw_input_contents", envelope_.raw.size(), " of them for ", sent,
        " inputs; one for each input that is not in shared "
        "memory, in their order");
  }
  std::set<std::string> names;
  auto raw = envelope_.raw.begin();
  for (const Input& input : inputs) {
    const std::string field = absl::StrCat("inputs.", input.name());
    if (!names.insert(input.name()).second) {
      return core::FieldInvalid(field, "given twice");
    }
    if (is_typed && !IsShared(input) && !input.has_contents()) {
      return core::FieldRequired(
          "raw_input_contents",
          absl::StrCat("the input ", input.name(),
                       " has no contents, others do; send all tensors in one "
                       "of the two forms"));
    }
    RETURN_IF_ERROR(core::Prefixed(
        field,
        ReadInput(input, is_typed || IsShared(input) ? nullptr : &*raw++)));
  }
  return absl::OkStatus();
}

absl::Status Inference::ReadInput(const Input& input,
                                  const wire::BorrowedBytes* raw) {
  // KServe's client sends the tensor's size in binary_data_size. The server
  // does not need this size.
  ASSIGN_OR_RETURN(
      const Placed placed,
      ReadPlaced(input.parameters(),
                 [](absl::string_view name, const InferParameter& value) {
                   return name == "binary_data_size" && IsInteger(value);
                 }));
  const Datatype* const datatype = FindDatatype(input.datatype());
  if (datatype == nullptr) {
    const auto name = [](std::string* out, const Datatype& known) {
      absl::StrAppend(out, known.name);
    };
    return core::FieldInvalid("datatype", "'", input.datatype(),
                              "'; must be one of ",
                              absl::StrJoin(kDatatypes, ", ", name));
  }
  v1::Tensor tensor;
  tensor.set_dtype(datatype->dtype);
  *tensor.mutable_shape() = input.shape();
  wire::BorrowedBytes bytes;
  if (placed.given()) {
    if (HasContents(input)) {
      return core::FieldInvalid("contents",
                                "beside a region; give one of the two");
    }
    ASSIGN_OR_RETURN(const absl::uint128 size, TensorBytes(tensor));
    if (size != *placed.bytes) {
      return core::FieldInvalid(absl::StrCat("parameters.", kRegionBytes),
                                "is ", *placed.bytes, "; the tensor has ",
                                ToString(size), " bytes");
    }
    *tensor.mutable_shared() = placed.memory;
  } else if (raw != nullptr) {
    bytes = *raw;
  } else {
    absl::StatusOr<wire::BorrowedBytes> contents = TypedBytes(input);
    if (!contents.ok()) return core::Prefixed("contents", contents.status());
    bytes = *std::move(contents);
  }
  return SetTensor(input.name(), std::move(tensor), bytes);
}

absl::Status Inference::ReadParameters() {
  for (const auto& [name, value] : Sorted(envelope_.request.parameters())) {
    absl::Status status;
    if (!ReadReserved(name, *value, &status)) {
      status = SetParameter(name, *value);
    }
    if (!status.ok()) {
      return core::Prefixed(absl::StrCat("parameters.", name), status);
    }
  }
  return absl::OkStatus();
}

bool Inference::ReadReserved(const std::string& name,
                             const InferParameter& value,
                             absl::Status* status) {
  const bool asks_for_final = name == "triton_enable_empty_final_response";
  if (name == "timeout") {
    const auto microseconds = ReadCount(value, ", microseconds");
    *status = microseconds.status();
    if (microseconds.ok() && *microseconds > 0) {
      timeout_ =
          absl::Microseconds(static_cast<std::int64_t>(std::min<std::uint64_t>(
              *microseconds, std::numeric_limits<std::int64_t>::max())));
    }
  } else if (name == "priority") {
    if (!IsInteger(value)) {
      *status = WrongKind(value, "int64_param or uint64_param");
    }
  } else if (asks_for_final || name == "binary_data_output") {
    // binary_data_output asks for bytes, which this server always sends.
    if (!value.has_bool_param()) *status = WrongKind(value, "bool_param");
    if (asks_for_final) tells_final_ = value.bool_param();
  } else if (absl::StartsWith(name, "sequence_")) {
    if (!SaysNothing(value)) {
      *status =
          core::FieldInvalid("", "no sequences here; every request is whole");
    }
  } else {
    return false;
  }
  return true;
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
    for (const Output& other : outputs_) {
      if (other.model == &*known) {
        return core::FieldInvalid(field, "asked for twice");
      }
    }
    absl::StatusOr<Placed> placed =
        ReadPlaced(output.parameters(),
                   [](absl::string_view name, const InferParameter& value) {
                     return name == "binary_data" && value.has_bool_param();
                   });
    if (!placed.ok()) return core::Prefixed(field, placed.status());
    outputs_.push_back({&*known, *std::move(placed)});
  }
  return absl::OkStatus();
}

absl::StatusOr<Inference::Placed> Inference::ReadPlaced(
    const ParameterMap& parameters,
    bool (*ignores)(absl::string_view name,
                    const InferParameter& value)) const {
  Placed placed;
  for (const auto& [name, value] : Sorted(parameters)) {
    absl::Status status;
    if (name == kRegion && value->has_string_param()) {
      placed.region = value->string_param();
      status = SharedTensors::CheckAllowed(context_.sharing);
    } else if (name == kRegion) {
      status = WrongKind(*value, "string_param");
    } else if (name == kRegionOffset || name == kRegionBytes) {
      const absl::StatusOr<std::uint64_t> count = ReadCount(*value);
      status = count.status();
      (name == kRegionOffset ? placed.offset : placed.bytes) =
          count.value_or(0);
    } else if (!ignores(name, *value)) {
      status = core::FieldInvalid("", "no such parameter");
    }
    RETURN_IF_ERROR(core::Prefixed(absl::StrCat("parameters.", name), status));
  }
  if (!placed.given()) return placed;
  const std::string field = absl::StrCat("parameters.", kRegion);
  if (!placed.region) {
    return core::FieldRequired(field,
                               "not given, but bytes or an offset in it are");
  }
  if (!placed.bytes) {
    return core::FieldRequired(absl::StrCat("parameters.", kRegionBytes),
                               "not given");
  }
  absl::StatusOr<v1::SharedMemory> found = facts_->regions->Find(
      *placed.region, placed.offset.value_or(0), *placed.bytes);
  if (!found.ok()) return core::Prefixed(field, found.status());
  placed.memory = *std::move(found);
  return placed;
}

}  // namespace posenc::server
