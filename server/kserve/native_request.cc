#include "server/kserve/native_request.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/error.h"
#include "server/kserve/json.h"
#include "server/kserve/scalar.h"

namespace posenc::server {
namespace {

namespace pb = google::protobuf;
using pb::FieldDescriptor;

constexpr std::size_t kMostSteps = 8;

bool IsMessage(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE &&
         !field.is_repeated();
}

template <typename Type>
bool Is(const FieldDescriptor& field) {
  return IsMessage(field) && field.message_type() == Type::descriptor();
}

// What a path lacks, said of inputs and of parameters.
absl::Status NoSuchField(bool tensor) {
  return core::FieldInvalid("", tensor ? "the model has no such input"
                                       : "the request has no such field");
}

}  // namespace

absl::StatusOr<NativeRequest::Place> NativeRequest::Walk(absl::string_view path,
                                                         bool tensor) {
  const std::vector<absl::string_view> steps =
      absl::StrSplit(path, absl::MaxSplits('.', kMostSteps));
  if (steps.size() > kMostSteps) return NoSuchField(tensor);
  Place at = {message_.get(), nullptr};
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const FieldDescriptor* const field =
        at.parent->GetDescriptor()->FindFieldByName(std::string(steps[i]));
    if (field == nullptr) return NoSuchField(tensor);
    const pb::Reflection& reflection = *at.parent->GetReflection();
    if (const pb::OneofDescriptor* const one = field->real_containing_oneof()) {
      const FieldDescriptor* const other =
          reflection.GetOneofFieldDescriptor(*at.parent, one);
      if (other != nullptr && other != field) {
        return core::FieldInvalid("", absl::StrCat("beside ", other->name(),
                                                   "; give one of the two"));
      }
    }
    at.field = field;
    if (i + 1 == steps.size()) break;
    if (!IsMessage(*field)) return NoSuchField(tensor);
    if (Is<v1::Tensor>(*field)) {
      return core::FieldInvalid("", "is part of a tensor, which is an input");
    }
    at.parent = reflection.MutableMessage(at.parent, field);
  }
  return at;
}

absl::Status NativeRequest::Take(const std::string& path) {
  // Above it, or the same.
  for (std::size_t end = path.find('.');; end = path.find('.', end + 1)) {
    const std::string above = path.substr(0, end);
    if (taken_.contains(above)) {
      return core::FieldInvalid(
          "", absl::StrCat("given twice, as ", above, " too"));
    }
    if (end == path.npos) break;
  }
  const auto below = taken_.lower_bound(path + ".");
  if (below != taken_.end() && absl::StartsWith(*below, path + ".")) {
    return core::FieldInvalid("",
                              absl::StrCat("given twice, as ", *below, " too"));
  }
  taken_.insert(path);
  return absl::OkStatus();
}

absl::Status NativeRequest::SetTensor(const std::string& name,
                                      v1::Tensor tensor,
                                      const wire::BorrowedBytes& data) {
  const auto set = [&]() -> absl::Status {
    absl::StatusOr<Place> place = Walk(name, true);
    if (!place.ok()) return place.status();
    std::string path = name;
    if (Is<v1::Positions>(*place->field)) {
      path += ".ids";
      place = Walk(path, true);
      if (!place.ok()) return place.status();
    }
    if (!Is<v1::Tensor>(*place->field)) {
      return core::FieldInvalid("", "is no tensor; give it as a parameter");
    }
    const absl::Status taken = Take(path);
    if (!taken.ok()) return taken;
    if (place->parent == message_.get()) {
      fields_.push_back(place->field->number());
      bytes_.push_back(data);
    } else if (!tensor.has_shared()) {
      const absl::Status room =
          received_->ClaimMore(static_cast<std::int64_t>(data.size));
      if (!room.ok()) return room;
      std::string* const bytes = tensor.mutable_data();
      bytes->reserve(data.size);
      for (const absl::Span<const char> piece : data.pieces) {
        bytes->append(piece.data(), piece.size());
      }
    }
    // The generated class, because the request's is one.
    *static_cast<v1::Tensor*>(place->parent->GetReflection()->MutableMessage(
        place->parent, place->field)) = std::move(tensor);
    return absl::OkStatus();
  };
  return core::Prefixed(absl::StrCat("inputs.", name), set());
}

absl::Status NativeRequest::SetParameter(
    const std::string& name, const inference::InferParameter& value) {
  const auto set = [&]() -> absl::Status {
    const absl::StatusOr<Place> place = Walk(name, false);
    if (!place.ok()) return place.status();
    const FieldDescriptor& field = *place->field;
    if (Is<v1::Tensor>(field)) {
      return core::FieldInvalid("", "is a tensor; give it as an input");
    }
    const absl::Status taken = Take(name);
    if (!taken.ok()) return taken;
    if (!field.is_repeated() && !IsMessage(field)) {
      return SetScalar(value, field, place->parent);
    }
    if (!value.has_string_param()) {
      return core::FieldInvalid(
          "", absl::StrCat("is ", KindOf(value),
                           "; must be string_param with its JSON"));
    }
    has_json_ = true;
    return ReadJson(value.string_param(), field, place->parent);
  };
  return core::Prefixed(absl::StrCat("parameters.", name), set());
}

absl::Status NativeRequest::CheckKnown(const KnownFields& known) const {
  if (!has_json_) return absl::OkStatus();
  return known.Check(message_->SerializeAsString(), *message_);
}

absl::Status NativeRequest::ReadShared(const SharedPartsFinder& finder,
                                       SharedTensors* shared) {
  const SharedParts parts = finder.Find(message_.get());
  if (!parts.places.empty()) {
    return core::FieldInvalid(
        absl::StrCat("parameters.", parts.places[0].path),
        "names a place for an output; give it as parameters of the output");
  }
  if (parts.tensors.empty()) return absl::OkStatus();
  shared_ = true;
  return shared->ReadInputs(parts, message_.get(), fields_, &bytes_);
}

}  // namespace posenc::server
