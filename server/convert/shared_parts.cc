#include "server/convert/shared_parts.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/error.h"

namespace posenc::server {

namespace pb = google::protobuf;
using pb::FieldDescriptor;

absl::Status SharedParts::CheckNone() const {
  if (none()) return absl::OkStatus();
  return core::FieldInvalid(
      tensors.empty() ? places[0].path
                      : absl::StrCat(tensors[0].path, ".shared"),
      "shared memory in a stream; streams send tensors, unary calls share "
      "them");
}

struct SharedPartsFinder::Step {
  const Step* above;
  const FieldDescriptor* field;
  int index;  // negative: the field is not repeated

  std::string Path() const {
    return absl::StrCat(above == nullptr ? "" : above->Path() + ".",
                        field->name(),
                        index < 0 ? "" : absl::StrCat("[", index, "]"));
  }
  // The number of a field of the message itself.
  int Number() const { return above == nullptr ? field->number() : 0; }
};

// No type of the contract that has tensors holds itself; one that did would be
// looked into as far as it was known when it was met again.
const SharedPartsFinder::Type* SharedPartsFinder::TypeOf(
    const pb::Descriptor& descriptor) {
  std::unique_ptr<Type>& known = types_[&descriptor];
  if (known != nullptr) return known.get();
  known = std::make_unique<Type>();
  Type* const type = known.get();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor& field = *descriptor.field(i);
    if (field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    const pb::Descriptor* const message = field.message_type();
    if (message == v1::Tensor::descriptor() ||
        message == v1::SharedMemory::descriptor()) {
      type->fields.push_back({&field, nullptr});
      continue;
    }
    const Type* const within = TypeOf(*message);
    if (!within->fields.empty()) type->fields.push_back({&field, within});
  }
  return type;
}

void SharedPartsFinder::Find(const Type& type, pb::Message* message,
                             const Step* above, SharedParts* parts) {
  const pb::Reflection& reflection = *message->GetReflection();
  for (const Field& each : type.fields) {
    const FieldDescriptor& field = *each.field;
    const auto look = [&](pb::Message* found, int index) {
      const Step step = {above, &field, index};
      if (each.within != nullptr) {
        return Find(*each.within, found, &step, parts);
      }
      // Of the generated classes, as the message is.
      if (field.message_type() == v1::SharedMemory::descriptor()) {
        parts->places.push_back({step.Path(), step.Number(),
                                 static_cast<v1::SharedMemory*>(found)});
      } else if (auto* const tensor = static_cast<v1::Tensor*>(found);
                 tensor->has_shared()) {
        parts->tensors.push_back({step.Path(), step.Number(), tensor});
      }
    };
    if (!field.is_repeated()) {
      if (!reflection.HasField(*message, &field)) continue;
      look(reflection.MutableMessage(message, &field), -1);
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(*message, &field); ++i) {
      look(reflection.MutableRepeatedMessage(message, &field, i), i);
    }
  }
}

SharedParts SharedPartsFinder::Find(pb::Message* message) const {
  SharedParts parts;
  Find(*root_, message, nullptr, &parts);
  return parts;
}

}  // namespace posenc::server
