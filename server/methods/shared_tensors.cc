#include "server/methods/shared_tensors.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "posenc/wire/frame.h"
#include "server/base/errors.h"
#include "server/convert/tensor.h"

namespace posenc::server {
namespace {

namespace pb = google::protobuf;

void Find(const std::string& path, pb::Message* message, SharedParts* parts);

// Adds `found` to `parts` if it is a tensor in shared memory, or a place in
// shared memory. If `found` is a message of another type, looks at its fields.
// `number` is the field number of `found` if it is a direct field of the root
// message, and 0 otherwise.
void Look(const std::string& path, int number, pb::Message* found,
          SharedParts* parts) {
  // The casts are safe, because all messages are of generated classes.
  if (found->GetDescriptor() == v1::SharedMemory::descriptor()) {
    parts->places.push_back({path, static_cast<v1::SharedMemory*>(found)});
  } else if (found->GetDescriptor() != v1::Tensor::descriptor()) {
    Find(path + ".", found, parts);
  } else if (auto* const tensor = static_cast<v1::Tensor*>(found);
             tensor->has_shared()) {
    parts->tensors.push_back({path, number, tensor});
  }
}

// Calls Look() for each message in the fields of `message`. `path` is the
// prefix of these fields' names.
void Find(const std::string& path, pb::Message* message, SharedParts* parts) {
  const pb::Reflection& reflection = *message->GetReflection();
  std::vector<const pb::FieldDescriptor*> fields;
  reflection.ListFields(*message, &fields);
  for (const pb::FieldDescriptor* const field : fields) {
    if (field->cpp_type() != pb::FieldDescriptor::CPPTYPE_MESSAGE) continue;
    const std::string at = absl::StrCat(path, field->name());
    const int number = path.empty() ? field->number() : 0;
    if (!field->is_repeated()) {
      Look(at, number, reflection.MutableMessage(message, field), parts);
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(*message, field); ++i) {
      Look(absl::StrCat(at, "[", i, "]"), number,
           reflection.MutableRepeatedMessage(message, field, i), parts);
    }
  }
}

// Checks that a shared tensor has neither values nor data.
absl::Status CheckOnlyForm(const v1::Tensor& tensor, std::size_t data_bytes) {
  if (tensor.values_size() == 0 && data_bytes == 0) return absl::OkStatus();
  return core::FieldInvalid("shared", "beside ",
                            tensor.values_size() > 0 ? "values" : "data",
                            "; give one of the two");
}

// Returns the bytes of the tensor in each field of the request.
BorrowedList BytesOf(const pb::Message& request, absl::Span<const int> fields) {
  BorrowedList all;
  for (const int number : fields) {
    const pb::FieldDescriptor* const field =
        request.GetDescriptor()->FindFieldByNumber(number);
    wire::BorrowedBytes& bytes = all.emplace_back();
    if (!request.GetReflection()->HasField(request, field)) continue;
    const std::string& data =
        static_cast<const v1::Tensor&>(
            request.GetReflection()->GetMessage(request, field))
            .data();
    bytes.size = data.size();
    if (!data.empty()) bytes.pieces.emplace_back(data.data(), data.size());
  }
  return all;
}

// Returns the type of the response to requests of this type.
const pb::Descriptor& ResponseTo(const pb::Descriptor& request) {
  const pb::ServiceDescriptor& contract = *request.file()->service(0);
  int i = 0;
  while (contract.method(i)->input_type() != &request) ++i;
  return *contract.method(i)->output_type();
}

}  // namespace

absl::Status SharedParts::CheckNone() const {
  if (none()) return absl::OkStatus();
  return core::FieldInvalid(
      tensors.empty() ? places[0].path
                      : absl::StrCat(tensors[0].path, ".shared"),
      "shared memory in a stream; streams send tensors, unary calls share "
      "them");
}

bool SharedParts::TakesLong() const {
  absl::uint128 bytes = 0;
  for (const Tensor& each : tensors) {
    bytes += TensorBytes(*each.tensor).value_or(0);
  }
  return bytes > kInlineBytes;
}

SharedParts FindSharedParts(pb::Message* message) {
  SharedParts parts;
  Find("", message, &parts);
  return parts;
}

absl::Status SharedTensors::CheckAllowed(const CallSharing& call) {
  if (call.files != nullptr) {
    return call.allowed ? absl::OkStatus() : call.files->NotAllowed();
  }
  return core::MakeError(absl::StatusCode::kUnimplemented,
                         core::ErrorReason::kSharedMemoryUnavailable, "",
                         "this server has no shared memory; send the bytes");
}

absl::StatusOr<SharedPlace> SharedTensors::Map(const v1::SharedMemory& place,
                                               absl::uint128 bytes) const {
  RETURN_IF_ERROR(CheckAllowed(call_));
  return call_.files->Map(place.name(), place.offset(), bytes);
}

absl::Status SharedTensors::ReadInputs(const SharedParts& parts,
                                       const core::ReserveFunction& reserve,
                                       pb::Message* request,
                                       absl::Span<const int> fields,
                                       BorrowedList* bytes) {
  if (bytes->empty()) *bytes = BytesOf(*request, fields);
  for (const SharedParts::Tensor& each : parts.tensors) {
    v1::Tensor& tensor = *each.tensor;
    const auto at = std::find(fields.begin(), fields.end(), each.field);
    wire::BorrowedBytes* const lent =
        at == fields.end() ? nullptr : &(*bytes)[at - fields.begin()];
    const auto read = [&]() -> absl::Status {
      RETURN_IF_ERROR(CheckOnlyForm(
          tensor, lent == nullptr ? tensor.data().size() : lent->size));
      ASSIGN_OR_RETURN(const absl::uint128 size, TensorBytes(tensor));
      absl::StatusOr<SharedPlace> place = Map(tensor.shared(), size);
      if (!place.ok()) return core::Prefixed("shared", place.status());
      const std::string field = absl::StrCat(each.path, ".shared");
      if (lent == nullptr) {
        tensor.clear_shared();
        return Copy(field, *std::move(place), reserve, tensor.mutable_data());
      }
      lent->size = place->bytes;
      lent->pieces.clear();
      if (place->bytes > 0) {
        lent->pieces.emplace_back(place->data(), place->bytes);
      }
      used_bytes_ += static_cast<std::int64_t>(place->bytes);
      inputs_.push_back({field, *std::move(place)});
      return absl::OkStatus();
    };
    absl::Status status = core::Prefixed(each.path, read());
    // Errors of CheckNotCut() already have the whole path, so this call comes
    // after Prefixed().
    if (status.ok() && lent == nullptr) status = CheckNotCut(inputs_.back());
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status SharedTensors::Copy(std::string field, SharedPlace place,
                                 const core::ReserveFunction& reserve,
                                 std::string* to) {
  RETURN_IF_ERROR(
      CheckSize("shared", "data to copy out of shared memory",
                absl::uint128(copied_bytes_) + place.bytes, max_copied_bytes_,
                "only a request's top-level tensors are used in place"));
  const auto bytes = static_cast<std::int64_t>(place.bytes);
  RETURN_IF_ERROR(reserve(bytes));
  copied_bytes_ += bytes;
  to->assign(place.data(), place.bytes);
  inputs_.push_back({std::move(field), std::move(place), true});
  return absl::OkStatus();
}

absl::Status SharedTensors::PlaceOutputs(const SharedParts& parts,
                                         const pb::Descriptor& request,
                                         TensorAnswer* answer) {
  for (const SharedParts::Place& each : parts.places) {
    const std::string name(absl::StripSuffix(each.path, "_output"));
    const pb::FieldDescriptor* const field =
        ResponseTo(request).FindFieldByName(name);
    const auto output = std::find_if(
        answer->outputs.begin(), answer->outputs.end(),
        [field](const OutputTensor& tensor) {
          return field != nullptr && tensor.field == field->number();
        });
    if (output == answer->outputs.end()) {
      return core::FieldInvalid(each.path, "the response has no ", name,
                                " that could be written there");
    }
    RETURN_IF_ERROR(PlaceOutput(
        each.path, *each.place,
        static_cast<std::size_t>(output - answer->outputs.begin()), answer));
  }
  return absl::OkStatus();
}

absl::Status SharedTensors::CheckOverlap(const std::string& field,
                                         const SharedPlace& place,
                                         std::size_t output,
                                         const TensorAnswer& answer,
                                         bool* holds_input) const {
  *holds_input = false;
  for (const Use& other : outputs_) {
    if (!place.Overlaps(other.place)) continue;
    return core::FieldInvalid(field, "overlaps ", other.field,
                              "; outputs need places of their own");
  }
  const core::ConstPieces* const own = answer.computation->InputInPlace(output);
  for (const Use& input : inputs_) {
    if (!place.Overlaps(input.place)) continue;
    const bool is_own = !input.copied && own != nullptr &&
                        own->From(0).data() == input.place.data() &&
                        own->size() == input.place.bytes &&
                        place.data() == input.place.data() &&
                        place.bytes == input.place.bytes;
    if (is_own && !*holds_input) {
      *holds_input = true;
      continue;
    }
    return core::FieldInvalid(
        field, "overlaps ", input.field,
        own == nullptr ? "; this output cannot be computed in place (a "
                         "changed pairing never can); name another place"
                       : "; an output may overwrite only one tensor, the one "
                         "that it is made of, and only as a whole");
  }
  return absl::OkStatus();
}

absl::Status SharedTensors::PlaceOutput(const std::string& field,
                                        const v1::SharedMemory& named,
                                        std::size_t output,
                                        TensorAnswer* answer) {
  OutputTensor& tensor = answer->outputs[output];
  absl::StatusOr<SharedPlace> place =
      Map(named, wire::DataBytes(core::DtypeSize(tensor.dtype), tensor.shape));
  if (!place.ok()) return core::Prefixed(field, place.status());
  bool holds_input = false;
  RETURN_IF_ERROR(CheckOverlap(field, *place, output, *answer, &holds_input));
  if (holds_input && call_.repeated) {
    return core::MakeError(
        absl::StatusCode::kAborted, core::ErrorReason::kNotRepeatable, field,
        "the call was sent before and may have been done then; write the "
        "tensor anew before it is sent again");
  }
  auto to = std::make_shared<OutputPlace>();
  to->data = place->bytes > 0 ? place->data() : nullptr;
  to->holds_input = holds_input;
  to->name = named.name();
  to->offset = named.offset();
  tensor.place = std::move(to);
  tensor.form = TensorForm::kData;
  if (!holds_input) used_bytes_ += static_cast<std::int64_t>(place->bytes);
  outputs_.push_back({field, *std::move(place)});
  return absl::OkStatus();
}

void SharedTensors::Attach(std::shared_ptr<const SharedTensors> shared,
                           TensorAnswer* answer) {
  answer->shared_bytes = shared->used_bytes_;
  answer->complete = [shared = std::move(shared)] {
    return shared->CheckNotCut();
  };
}

absl::Status SharedTensors::CheckNotCut(const Use& use) const {
  if (!call_.files->WasCut(*use.place.file)) return absl::OkStatus();
  return core::MakeError(
      absl::StatusCode::kFailedPrecondition,
      core::ErrorReason::kSharedMemoryCut, use.field,
      "the file was cut short, or its file system was full, while the call "
      "used it; what the call wrote is undefined");
}

absl::Status SharedTensors::CheckNotCut() const {
  // Most calls use one file, which is then checked only once.
  const SharedFile* last = nullptr;
  for (const std::vector<Use>* const uses : {&inputs_, &outputs_}) {
    for (const Use& use : *uses) {
      if (use.copied || use.place.file.get() == last) continue;
      RETURN_IF_ERROR(CheckNotCut(use));
      last = use.place.file.get();
    }
  }
  return absl::OkStatus();
}

}  // namespace posenc::server
