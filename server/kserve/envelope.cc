#include "server/kserve/envelope.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/error.h"
#include "server/budget/errors.h"
#include "server/convert/unknown_fields.h"
#include "server/kserve/datatypes.h"

namespace posenc::server {
namespace {

namespace pb = google::protobuf;
using Request = inference::ModelInferRequest;

// Far more than any model takes, and few enough that what they grow to when
// they are parsed does not matter.
constexpr std::size_t kMostTensors = 64;
constexpr std::size_t kMostParameters = 1024;
constexpr std::size_t kMostSmallBytes = 16 << 20;
// Of a message that only the generated parser understands.
constexpr std::size_t kMostOddBytes = 1 << 20;

absl::Status NotAMessage() {
  return core::FieldInvalid(
      "", "the message is not a valid protobuf message of this call");
}

absl::Status CheckCounts(const wire::SplitEnvelope& split) {
  const std::pair<int, std::size_t> limits[] = {
      {Request::kParametersFieldNumber, kMostParameters},
      {Request::kInputsFieldNumber, kMostTensors},
      {Request::kOutputsFieldNumber, kMostTensors},
      {Request::kRawInputContentsFieldNumber, kMostTensors}};
  for (const auto& [field, most] : limits) {
    const std::size_t count = split.records[field];
    if (count > most) {
      return core::FieldInvalid(
          Request::descriptor()->FindFieldByNumber(field)->name(),
          absl::StrCat(count, " of them; at most ", most));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSmallBytes(std::size_t bytes) {
  return CheckSize("", "what is beside raw_input_contents", bytes,
                   kMostSmallBytes, "send tensors as raw_input_contents");
}

template <typename T>
wire::BorrowedBytes Bytes(const pb::RepeatedField<T>& elements) {
  wire::BorrowedBytes bytes;
  bytes.size = elements.size() * sizeof(T);
  if (bytes.size > 0) {
    bytes.pieces.emplace_back(reinterpret_cast<const char*>(elements.data()),
                              bytes.size);
  }
  return bytes;
}

}  // namespace

absl::Status Parse(RequestMessage message, InferEnvelope* envelope) {
  static const KnownFields kKnown(*Request::descriptor());
  envelope->message = std::move(message);
  const auto pieces = envelope->message.pieces();
  wire::SplitEnvelope split;
  envelope->borrows = wire::SplitValues(
      pieces, Request::kRawInputContentsFieldNumber, kMostTensors, &split);
  if (envelope->borrows) {
    const absl::Status counts = CheckCounts(split);
    if (!counts.ok()) return counts;
  } else {
    split.rest.clear();
    for (const auto piece : pieces) {
      split.rest.append(piece.data(), piece.size());
      if (split.rest.size() > kMostOddBytes) return NotAMessage();
    }
  }
  const absl::Status small = CheckSmallBytes(split.rest.size());
  if (!small.ok()) return small;
  std::size_t grown = 0;
  const absl::Status elements = kKnown.CheckElements(split.rest, &grown);
  if (!elements.ok()) return elements;
  const absl::Status room = envelope->message.ClaimMore(
      static_cast<std::int64_t>(2 * split.rest.size() + grown));
  if (!room.ok()) return room;
  Request& request = envelope->request;
  if (!request.ParseFromString(split.rest)) return NotAMessage();
  const absl::Status known = kKnown.Check(split.rest, request);
  if (!known.ok()) return known;
  envelope->message.GiveBack(static_cast<std::int64_t>(split.rest.size()));
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
    wire::BorrowedBytes& bytes = envelope->raw.emplace_back();
    bytes.size = raw.size();
    if (!raw.empty()) bytes.pieces.emplace_back(raw.data(), raw.size());
  }
  return absl::OkStatus();
}

absl::StatusOr<wire::BorrowedBytes> TypedBytes(
    const Request::InferInputTensor& input) {
  const inference::InferTensorContents& contents = input.contents();
  wire::BorrowedBytes bytes;
  const char* field = nullptr;
  switch (DtypeOf(input.datatype())) {
    case v1::DTYPE_FLOAT32:
      field = "fp32_contents";
      bytes = Bytes(contents.fp32_contents());
      break;
    case v1::DTYPE_FLOAT64:
      field = "fp64_contents";
      bytes = Bytes(contents.fp64_contents());
      break;
    case v1::DTYPE_INT32:
      field = "int_contents";
      bytes = Bytes(contents.int_contents());
      break;
    case v1::DTYPE_INT64:
      field = "int64_contents";
      bytes = Bytes(contents.int64_contents());
      break;
    default:
      return core::FieldInvalid(
          "", absl::StrCat(input.datatype(),
                           " has no typed form; send raw_input_contents"));
  }
  std::vector<const pb::FieldDescriptor*> given;
  contents.GetReflection()->ListFields(contents, &given);
  for (const pb::FieldDescriptor* const other : given) {
    if (other->name() == field) continue;
    return core::FieldInvalid(
        "", absl::StrCat("has ", other->name(), "; elements of ",
                         input.datatype(), " belong in ", field));
  }
  return bytes;
}

}  // namespace posenc::server
