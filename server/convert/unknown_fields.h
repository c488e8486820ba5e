// Refuses what a newer client may send and this server does not know, and sees
// on the way whether a message names shared memory, and which encodings it has.
//
// Protobuf would skip an unknown field, and the numbers would silently lack
// what it asks for. See docs/adr/0005.
//
// Also refuses messages that would take many times their bytes once they are
// parsed: an empty element of a repeated message has two bytes on the wire and
// over a hundred in memory, a small number in a list one and eight.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/message.h"

namespace posenc::server {

// The bytes of a request's encodings, as they came, by the names of their
// fields.
using RopeBytes = std::map<absl::string_view, std::string>;

// The fields and enum values that messages of one type, and the messages inside
// them, may have.
class KnownFields {
 public:
  // Elements of repeated messages and texts, and unknown fields, in one
  // message: some 3 MiB.
  static constexpr int kMostElements = 16384;
  // Bytes that the numbers of one message's lists may take in memory beyond
  // those on the wire, where a small one has one byte instead of eight. Some
  // ten million position ids take so much.
  static constexpr std::size_t kMostGrowth = 64 << 20;

  explicit KnownFields(const google::protobuf::Descriptor& type);

  // What a walk over a message's bytes has seen.
  struct Seen {
    // Whether every field and enum value is known. May be false of a good
    // message in a rare form, of which Check() decides.
    bool known = true;
    bool shares = false;  // a posenc.v1.SharedMemory
    // The bytes of each posenc.v1.RopeSource as they came, in the message that
    // was walked over. None if they are so many that nobody should keep them.
    struct Rope {
      const google::protobuf::FieldDescriptor* field;
      absl::string_view bytes;
    };
    absl::InlinedVector<Rope, 2> ropes;
    int elements = 0;
    std::size_t growth = 0;
    // Bytes that elements and numbers take in memory, as they are parsed and
    // once more as arguments of core, beside those on the wire; 0 for small
    // messages.
    std::size_t grown = 0;
  };

  // Walks over `bytes`, which are not parsed yet. INVALID_ARGUMENT, of the
  // field that goes beyond it, if they have more than kMostElements, or grow by
  // more than kMostGrowth. What is no message is left to the parser.
  absl::StatusOr<Seen> Walk(absl::string_view bytes) const;

  // UNIMPLEMENTED, kFieldUnknown, if a field or an enum value anywhere in
  // `message`, which is of this type, is not known to this server. Takes seven
  // times as long as Walk(): for messages of which Walk() did not say that all
  // is known.
  absl::Status Check(const google::protobuf::Message& message) const {
    return Name(message, *root_);
  }

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
    // Bytes in memory of a number that has fewer on the wire; 0: it has not.
    std::size_t number_bytes = 0;
  };
  struct Type {
    std::vector<Field> fields;  // by number; `field` is null for a gap
    bool shared_memory = false, rope_source = false;
  };

  // Adds a type and those that it contains. A type enters `types_` before its
  // fields do, because types may contain one another.
  const Type* Add(const google::protobuf::Descriptor& descriptor);
  // Adds what is seen until the message ends, or is none, or has too much: then
  // it returns the field.
  static const google::protobuf::FieldDescriptor* Look(
      google::protobuf::io::CodedInputStream* in, const Type& type, Seen* seen);
  // The same of one value, which follows its tag. False if the message is none,
  // or `crowded` was found.
  static bool LookAt(google::protobuf::io::CodedInputStream* in,
                     std::uint32_t tag, const Field* field, Seen* seen,
                     const google::protobuf::FieldDescriptor** crowded);
  static bool TooMany(const Seen& seen) {
    return seen.elements > kMostElements || seen.growth > kMostGrowth;
  }
  // Counts and skips a packed list of so many bytes, which comes next. False if
  // there are fewer.
  static bool AddList(google::protobuf::io::CodedInputStream* in,
                      const Field& field, std::uint32_t bytes, Seen* seen);
  // The error that names the first unknown field, by a walk over the parsed
  // message; OK if there is none.
  static absl::Status Name(const google::protobuf::Message& message,
                           const Type& type);

  std::map<const google::protobuf::Descriptor*, std::unique_ptr<Type>> types_;
  const Type* root_;
};

}  // namespace posenc::server
