#include "server/kserve/envelope.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "core/error.h"
#include "server/budget/errors.h"
#include "server/convert/unknown_fields.h"
#include "server/kserve/datatypes.h"
#include "server/rpc/request.h"

namespace posenc::server {
namespace {

namespace pb = google::protobuf;
using Request = inference::ModelInferRequest;
using Input = Request::InferInputTensor;

// Limits far above any model's needs, and so low that growth by parsing is
// harmless.
constexpr std::size_t kMostTensors = 64;
constexpr std::size_t kMostParameters = 1024;
constexpr std::size_t kMostSmallBytes = 16 << 20;
// Limit for a message that only the generated parser understands.
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
        absl::StrCat(split.records[field], " of them; at most ", most));
  }
  return absl::OkStatus();
}

wire::BorrowedBytes Bytes(const void* data, std::size_t size) {
  wire::BorrowedBytes bytes;
  bytes.size = size;
  if (size > 0) bytes.pieces.emplace_back(static_cast<const char*>(data), size);
  return bytes;
}

// Returns the bytes of `elements`, unless the input has other contents.
template <typename T>
absl::StatusOr<wire::BorrowedBytes> Only(absl::string_view field,
                                         const pb::RepeatedField<T>& elements,
                                         const Input& input) {
  std::vector<const pb::FieldDescriptor*> given;
  input.contents().GetReflection()->ListFields(input.contents(), &given);
  for (const pb::FieldDescriptor* const other : given) {
    if (other->name() == field) continue;
    return core::FieldInvalid(
        "", absl::StrCat("has ", other->name(), "; elements of ",
                         input.datatype(), " belong in ", field));
  }
  return Bytes(elements.data(), elements.size() * sizeof(T));
}

}  // namespace

absl::Status Parse(RequestMessage message, InferEnvelope* envelope) {
  static const KnownFields kKnown(*Request::descriptor());
  envelope->message = std::move(message);
  wire::SplitEnvelope split;
  envelope->borrows = wire::SplitValues(envelope->message.pieces(),
                                        Request::kRawInputContentsFieldNumber,
                                        kMostTensors, &split);
  if (envelope->borrows) {
    const absl::Status counts = CheckCounts(split);
    if (!counts.ok()) return counts;
  } else {
    if (envelope->message.bytes() > kMostOddBytes) return NotAMessage();
    split.rest = envelope->message.Joined();
  }
  absl::Status status =
      CheckSize("", "request without raw_input_contents", split.rest.size(),
                kMostSmallBytes, "send tensors as raw_input_contents");
  Request& request = envelope->request;
  if (status.ok()) {
    status = envelope->message.ClaimMore(
        static_cast<std::int64_t>(2 * split.rest.size()));
  }
  if (status.ok()) {
    status = ParseSmall(kKnown, split.rest, &envelope->message, &request);
  }
  if (!status.ok()) return status;
  if (envelope->borrows) {
    if (request.parameters_size() !=
        static_cast<int>(split.records[Request::kParametersFieldNumber])) {
      return core::FieldInvalid("parameters", "one of them is given twice");
    }
    envelope->raw = std::move(split.values);
    return absl::OkStatus();
  }
  envelope->message.Clear();
  for (const std::string& raw : request.raw_input_contents()) {
    envelope->raw.push_back(Bytes(raw.data(), raw.size()));
  }
  return absl::OkStatus();
}

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
      return core::FieldInvalid(
          "", absl::StrCat(input.datatype(),
                           " has no typed form; send raw_input_contents"));
  }
}

}  // namespace posenc::server
