// Refuses what a newer client may send and this server does not know, and sees
// on the way whether a message names shared memory.
//
// Protobuf would skip an unknown field, and the numbers would silently lack
// what it asks for. See docs/adr/0005.
//
// Also refuses messages that would take many times their bytes once they are
// parsed: an empty element of a repeated message has two bytes on the wire and
// over a hundred in memory.

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

// The fields and enum values that messages of one type, and the messages inside
// them, may have.
class KnownFields {
 public:
  // Elements of repeated messages and texts, and unknown fields, in one
  // message: some 3 MiB.
  static constexpr int kMostElements = 16384;

  explicit KnownFields(const google::protobuf::Descriptor& type);

  // INVALID_ARGUMENT, of the field that goes beyond it, if `bytes`, which are
  // not parsed yet, have more than kMostElements. What is no message is left to
  // the parser.
  absl::Status CheckElements(absl::string_view bytes) const;

  // UNIMPLEMENTED, kFieldUnknown, if a field or an enum value anywhere in
  // `message`, which is of this type and was parsed from `bytes`, is not known
  // to this server.
  // shares: becomes false if `message` has no posenc.v1.SharedMemory anywhere,
  // and true if it may have one. May be null.
  absl::Status Check(absl::string_view bytes,
                     const google::protobuf::Message& message,
                     bool* shares = nullptr) const;

 private:
  struct Type;
  struct Field {
    const google::protobuf::FieldDescriptor* field = nullptr;
    const Type* message = nullptr;  // the type, if the field is a message
    // The wire type of its values one by one, and of a packed list of them.
    int wire_type = 0, packed_wire_type = 0;
    // If the field is an enum: bit n says that value n is known.
    std::uint64_t values = 0;
    bool is_element = false;  // of a repeated message or text
  };
  struct Type {
    std::vector<Field> fields;  // by number; `field` is null for a gap
    bool shared_memory = false;
  };

  // Adds a type and those that it contains. A type enters `types_` before its
  // fields do, because types may contain one another.
  const Type* Add(const google::protobuf::Descriptor& descriptor);
  // Whether everything is known, by a walk over the bytes. May say false for a
  // rare form of a good message; Name() then decides. Nearly every message ends
  // here, with a seventh of the instructions that Name() takes. Sets `shares`
  // if there is a SharedMemory.
  static bool AllKnown(google::protobuf::io::CodedInputStream* in,
                       const Type& type, bool* shares);
  // Counts elements until the message ends or is none, or until there are too
  // many: then it returns the field.
  static const google::protobuf::FieldDescriptor* Crowded(
      google::protobuf::io::CodedInputStream* in, const Type& type,
      int* elements);
  // The error that names the first unknown field, by a walk over the parsed
  // message; OK if there is none.
  static absl::Status Name(const google::protobuf::Message& message,
                           const Type& type);

  std::map<const google::protobuf::Descriptor*, std::unique_ptr<Type>> types_;
  const Type* root_;
};

}  // namespace posenc::server
