// Refuses fields of newer clients that this server does not know. The same walk
// over the message also finds out whether it may name shared memory.
//
// Protobuf would skip an unknown field, and the result would silently differ
// from the result that the client wants. See docs/adr/0005.
//
// Also refuses messages that would take many times their size in memory after
// parsing. For example, an empty element of a repeated message has two bytes on
// the wire and over a hundred in memory.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/message.h"

namespace posenc::server {

// Bytes of memory that an encoding takes for each byte of its message, while it
// is read, resolved and prepared. Explicit frequencies take 15 bytes.
inline constexpr std::size_t kRopeGrowth = 16;

// Bytes of memory for each byte of a configuration's JSON, which is parsed and
// copied. A list of empty objects takes 62 bytes.
inline constexpr std::size_t kTextGrowth = 64;

// The known fields and enum values of one message type and of the types inside
// it.
class KnownFields {
 public:
  // Limit for the number of elements of repeated messages and texts, and of
  // unknown fields, in one message. This many elements take about 3 MiB.
  static constexpr int kMostElements = 16384;
  // Limit for the growth of one message's lists of numbers, in bytes. A small
  // number has one byte on the wire, but eight in memory. About two million
  // lengths of sequences reach this limit.
  static constexpr std::size_t kMostGrowth = 16 << 20;

  explicit KnownFields(const google::protobuf::Descriptor& type);

  // Returns the known fields of a generated class.
  template <typename Message>
  static const KnownFields& Of() {
    static const auto* const known = new KnownFields(*Message::descriptor());
    return *known;
  }

  // The result of a walk over a message's bytes.
  struct Seen {
    // Whether every field and enum value is known. May also be false if a valid
    // message uses a rare form of the wire format. Check() then decides.
    bool known = true;
    bool shares = false;  // has a posenc.v1.SharedMemory
    int elements = 0;
    // Sizes of all posenc.v1.RopeSource, and of their config_json.
    std::size_t rope_bytes = 0, config_bytes = 0;
    std::size_t growth = 0;
    // The field that exceeds a limit; null if it is not known.
    const google::protobuf::FieldDescriptor* crowded = nullptr;
    // Bytes that the message takes in memory in addition to its size on the
    // wire. Configurations take kTextGrowth times their size, and the rest of
    // encodings kRopeGrowth times its size. A message that is not small also
    // takes the memory of its elements, and two times the growth of its lists
    // of numbers (for parsed fields and for core's arguments).
    std::size_t grown = 0;
  };

  // Walks over the unparsed `bytes`. Returns INVALID_ARGUMENT if they have more
  // elements than kMostElements, or grow by more than kMostGrowth. The error
  // names the field that exceeds the limit. Does not report malformed messages,
  // which the parser refuses later.
  absl::StatusOr<Seen> Walk(absl::string_view bytes) const;

  // Returns UNIMPLEMENTED, kFieldUnknown, if `message` has at any depth a field
  // or an enum value that this server does not know. `message` must have this
  // type. Call Check() only if Walk() has set known = false, because Check()
  // takes seven times as long as Walk().
  absl::Status Check(const google::protobuf::Message& message) const {
    return Name(message, *root_);
  }

 private:
  struct Type;
  struct Field {
    const google::protobuf::FieldDescriptor* field = nullptr;
    const Type* message = nullptr;  // the type, if the field is a message
    // The wire types of a single value and of a packed list.
    int wire_type = 0, packed_wire_type = 0;
    // If the field is an enum, bit n is set if value n is known.
    std::uint64_t values = 0;
    bool is_element = false;  // a repeated message or text
    bool is_config = false;   // RopeSource.config_json
    // Size in memory of a number that may be smaller on the wire; 0 for other
    // fields.
    std::size_t number_bytes = 0;
  };
  struct Type {
    std::vector<Field> fields;  // by number; `field` is null for a gap
    bool shared_memory = false, rope_source = false;
  };

  // Adds a type and the types inside it. A type is added to `types_` before the
  // types of its fields, because types may contain one another.
  const Type* Add(const google::protobuf::Descriptor& descriptor);
  // Walks over the fields of one message. Returns false if the message is
  // malformed or exceeds a limit.
  static bool Look(google::protobuf::io::CodedInputStream* in, const Type& type,
                   Seen* seen);
  // Walks over one value, after its tag. Returns false for the reasons of
  // Look().
  static bool LookAt(google::protobuf::io::CodedInputStream* in,
                     std::uint32_t tag, const Field* field, Seen* seen);
  static bool TooMany(const Seen& seen) {
    return seen.elements > kMostElements || seen.growth > kMostGrowth;
  }
  // Counts and skips a packed list of `bytes`. Returns false if it is
  // truncated.
  static bool AddList(google::protobuf::io::CodedInputStream* in,
                      const Field& field, std::uint32_t bytes, Seen* seen);
  // Walks over the parsed message. Returns the error that names the first
  // unknown field, or OK.
  static absl::Status Name(const google::protobuf::Message& message,
                           const Type& type);

  std::map<const google::protobuf::Descriptor*, std::unique_ptr<Type>> types_;
  const Type* root_;
};

}  // namespace posenc::server
