#include "server/convert/shared_parts.h"

#include "absl/strings/str_cat.h"
#include "core/error.h"

namespace posenc::server {
namespace {

namespace pb = google::protobuf;

void Find(const std::string& path, pb::Message* message, SharedParts* parts);

// `number`: field number of `found` in the root message; 0 below it.
void Look(const std::string& path, int number, pb::Message* found,
          SharedParts* parts) {
  // The casts are safe: all messages are of generated classes.
  if (found->GetDescriptor() == v1::SharedMemory::descriptor()) {
    parts->places.push_back({path, static_cast<v1::SharedMemory*>(found)});
  } else if (found->GetDescriptor() != v1::Tensor::descriptor()) {
    Find(path + ".", found, parts);
  } else if (auto* const tensor = static_cast<v1::Tensor*>(found);
             tensor->has_shared()) {
    parts->tensors.push_back({path, number, tensor});
  }
}

// `path` is the prefix of the field names in this message.
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

}  // namespace

absl::Status SharedParts::CheckNone() const {
  if (none()) return absl::OkStatus();
  return core::FieldInvalid(
      tensors.empty() ? places[0].path
                      : absl::StrCat(tensors[0].path, ".shared"),
      "shared memory in a stream; streams send tensors, unary calls share "
      "them");
}

SharedParts FindSharedParts(pb::Message* message) {
  SharedParts parts;
  Find("", message, &parts);
  return parts;
}

}  // namespace posenc::server
