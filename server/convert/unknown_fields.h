// Requests of newer clients.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/message.h"

namespace posenc::server {

// What a kind of message, with all that it contains, may hold.
class KnownFields {
 public:
  explicit KnownFields(const google::protobuf::Descriptor& type);

  // UNIMPLEMENTED, kFieldUnknown, for a field or enum value anywhere in
  // `message`, of this type and parsed from `bytes`, that this server does not
  // know. Protobuf would skip it, and the numbers would lack what it asks for.
  absl::Status Check(absl::string_view bytes,
                     const google::protobuf::Message& message) const;

 private:
  struct Type;
  struct Field {
    const google::protobuf::FieldDescriptor* field = nullptr;
    const Type* message = nullptr;  // its type, where it is one
    // How its values are written: one by one, or packed.
    int wire_type = 0, packed_wire_type = 0;
    // Bit n: value n of its enum is known.
    std::uint64_t values = 0;
  };
  struct Type {
    std::vector<Field> fields;  // by number; null: there is none
  };

  // Types may contain one another: found in `types_` before their fields are.
  const Type* Add(const google::protobuf::Descriptor& descriptor);
  // True only where Name() would find nothing: nearly always, for a seventh of
  // the instructions.
  static bool AllKnown(google::protobuf::io::CodedInputStream* in,
                       const Type& type);
  static absl::Status Name(const google::protobuf::Message& message,
                           const Type& type);

  std::map<const google::protobuf::Descriptor*, std::unique_ptr<Type>> types_;
  const Type* root_;
};

}  // namespace posenc::server
