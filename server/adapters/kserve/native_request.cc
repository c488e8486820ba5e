// Builds a request of the contract from KServe's inputs and parameters. Their
// names are paths in that request.
//
//   input "q"                        the Tensor field q
//   input "positions"                the Tensor `ids` of the Positions field
//   parameter "rope.spec.rope_theta" any other field, from the root
//   parameter "rope"                 a message or list, as ProtoJSON
//
// Paths come from untrusted clients. Walk() resolves them with descriptors, in
// at most 8 steps, and refuses paths into a list.

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "server/adapters/kserve/inference.h"
#include "server/adapters/kserve/parameters.h"

namespace posenc::server {
namespace {

namespace pb = google::protobuf;
using pb::FieldDescriptor;

constexpr std::size_t kMostSteps = 8;
// Limit for the JSON of all parameters of a request. Protobuf's parser
// needs a quarter of a microsecond for each byte.
constexpr std::size_t kMostJsonBytes = 256 << 10;
// Bytes of memory that the parser and its result take for each byte of JSON.
constexpr std::int64_t kJsonGrowth = 32;
constexpr char kNoInput[] = "the model has no such input";

bool IsMessage(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE &&
         !field.is_repeated();
}

template <typename Type>
bool Is(const FieldDescriptor& field) {
  return IsMessage(field) && field.message_type() == Type::descriptor();
}

// Returns the memory that the encodings in a message take while they are read.
std::size_t GrowthOfRopes(const pb::Message& message) {
  if (message.GetDescriptor() == v1::RopeSource::descriptor()) {
    // The cast is safe, because the message is of a generated class.
    const auto& rope = static_cast<const v1::RopeSource&>(message);
    return kRopeGrowth * rope.ByteSizeLong() +
           (kTextGrowth - kRopeGrowth) * rope.config_json().size();
  }
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  std::size_t growth = 0;
  for (const FieldDescriptor* const field : fields) {
    if (!IsMessage(*field)) continue;
    growth +=
        GrowthOfRopes(message.GetReflection()->GetMessage(message, field));
  }
  return growth;
}

}  // namespace

absl::StatusOr<Inference::Place> Inference::Walk(absl::string_view path,
                                                 absl::string_view none) {
  const std::vector<absl::string_view> steps =
      absl::StrSplit(path, absl::MaxSplits('.', kMostSteps));
  if (steps.size() > kMostSteps) return core::FieldInvalid("", none);
  Place at = {native_.get(), nullptr};
  for (const absl::string_view step : steps) {
    if (at.field != nullptr) {
      if (!IsMessage(*at.field)) return core::FieldInvalid("", none);
      if (Is<v1::Tensor>(*at.field)) {
        return core::FieldInvalid("", "is part of a tensor, which is an input");
      }
      at.parent =
          at.parent->GetReflection()->MutableMessage(at.parent, at.field);
    }
    at.field = at.parent->GetDescriptor()->FindFieldByName(std::string(step));
    if (at.field == nullptr) return core::FieldInvalid("", none);
    const pb::OneofDescriptor* const one = at.field->real_containing_oneof();
    if (one == nullptr) continue;
    const FieldDescriptor* const other =
        at.parent->GetReflection()->GetOneofFieldDescriptor(*at.parent, one);
    if (other == nullptr || other == at.field) continue;
    return core::FieldInvalid("", "beside ", other->name(),
                              "; give one of the two");
  }
  return at;
}

// A linear search is enough, because a request has few paths.
absl::Status Inference::Take(const std::string& path) {
  for (const std::string& other : taken_) {
    if (absl::StartsWith(path + ".", other + ".") ||
        absl::StartsWith(other, path + ".")) {
      return core::FieldInvalid("", "given twice, as ", other, " too");
    }
  }
  taken_.insert(path);
  return absl::OkStatus();
}

absl::Status Inference::SetTensor(const std::string& path, v1::Tensor tensor,
                                  const wire::BorrowedBytes& data) {
  ASSIGN_OR_RETURN(Place place, Walk(path, kNoInput));
  if (Is<v1::Positions>(*place.field)) {
    return SetTensor(path + ".ids", std::move(tensor), data);
  }
  if (!Is<v1::Tensor>(*place.field)) {
    return core::FieldInvalid("", "is no tensor; give it as a parameter");
  }
  RETURN_IF_ERROR(Take(path));
  if (place.parent == native_.get()) {
    fields_.push_back(place.field->number());
    bytes_.push_back(data);
  } else if (!tensor.has_shared()) {
    RETURN_IF_ERROR(
        envelope_.message.ClaimMore(static_cast<std::int64_t>(data.size)));
    std::string* const bytes = tensor.mutable_data();
    bytes->reserve(data.size);
    for (const absl::Span<const char> piece : data.pieces) {
      bytes->append(piece.data(), piece.size());
    }
  }
  // The cast is safe, because the field belongs to a generated class.
  *static_cast<v1::Tensor*>(place.parent->GetReflection()->MutableMessage(
      place.parent, place.field)) = std::move(tensor);
  return absl::OkStatus();
}

absl::Status Inference::SetParameter(const std::string& path,
                                     const inference::InferParameter& value) {
  ASSIGN_OR_RETURN(const Place place,
                   Walk(path, "the request has no such field"));
  const FieldDescriptor& field = *place.field;
  if (Is<v1::Tensor>(field)) {
    return core::FieldInvalid("", "is a tensor; give it as an input");
  }
  RETURN_IF_ERROR(Take(path));
  if (field.is_repeated() || IsMessage(field)) {
    json_bytes_ += value.string_param().size();
    if (json_bytes_ > kMostJsonBytes) {
      return core::FieldInvalid("", "makes ", json_bytes_,
                                " bytes of JSON; at most ", kMostJsonBytes,
                                ", send lists as inputs");
    }
    RETURN_IF_ERROR(envelope_.message.ClaimMore(
        kJsonGrowth * static_cast<std::int64_t>(value.string_param().size())));
  }
  return SetField(value, field, place.parent);
}

absl::Status Inference::ClaimRopes() {
  return envelope_.message.ClaimMore(
      static_cast<std::int64_t>(GrowthOfRopes(*native_)));
}

}  // namespace posenc::server
