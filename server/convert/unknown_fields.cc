#include "server/convert/unknown_fields.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/error.h"
#include "google/protobuf/unknown_field_set.h"
#include "google/protobuf/wire_format_lite.h"
#include "posenc/v1/tensor.pb.h"
#include "server/version.h"

namespace posenc::server {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

absl::Status Unknown(absl::string_view what, int number) {
  return core::MakeError(
      absl::StatusCode::kUnimplemented, core::ErrorReason::kFieldUnknown, "",
      absl::StrCat(what, " is not known to this server (version ", kVersion,
                   "); leave it out, or use a newer server"),
      {{"fieldNumber", absl::StrCat(number)}});
}

absl::Status CheckEnum(const FieldDescriptor& field, int value) {
  if (field.enum_type()->FindValueByNumber(value) != nullptr) {
    return absl::OkStatus();
  }
  return Unknown(absl::StrCat("value ", value), field.number());
}

// Bytes in memory of a number that is a varint on the wire; 0: it cannot grow.
std::size_t NumberBytes(FieldDescriptor::CppType type) {
  switch (type) {
    case FieldDescriptor::CPPTYPE_INT64:
    case FieldDescriptor::CPPTYPE_UINT64:
      return sizeof(std::int64_t);
    case FieldDescriptor::CPPTYPE_INT32:
    case FieldDescriptor::CPPTYPE_UINT32:
    case FieldDescriptor::CPPTYPE_ENUM:
      return sizeof(std::int32_t);
    default:
      return 0;
  }
}

// About what an empty message or text takes in memory.
constexpr std::size_t kElementBytes = 192;

}  // namespace

KnownFields::KnownFields(const Descriptor& type) : root_(Add(type)) {}

const KnownFields::Type* KnownFields::Add(const Descriptor& descriptor) {
  std::unique_ptr<Type>& type = types_[&descriptor];
  if (type != nullptr) return type.get();
  type = std::make_unique<Type>();
  Type* const added = type.get();
  added->shared_memory = &descriptor == v1::SharedMemory::descriptor();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor* const field = descriptor.field(i);
    const auto number = static_cast<std::size_t>(field->number());
    if (added->fields.size() <= number) added->fields.resize(number + 1);
    Field* const known = &added->fields[number];
    known->field = field;
    const auto wire = static_cast<WireFormatLite::FieldType>(field->type());
    known->wire_type = WireFormatLite::WireTypeForFieldType(wire);
    known->packed_wire_type = field->is_packable()
                                  ? WireFormatLite::WIRETYPE_LENGTH_DELIMITED
                                  : known->wire_type;
    known->is_element =
        field->is_repeated() &&
        known->wire_type == WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
    if (field->is_repeated() &&
        known->wire_type == WireFormatLite::WIRETYPE_VARINT) {
      known->number_bytes = NumberBytes(field->cpp_type());
    }
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      const Type* const message = Add(*field->message_type());
      known->message = message;
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
      const google::protobuf::EnumDescriptor& values = *field->enum_type();
      for (int v = 0; v < values.value_count(); ++v) {
        const int value = values.value(v)->number();
        if (value >= 0 && value < 64) {
          known->values |= std::uint64_t{1} << value;
        }
      }
    }
  }
  return added;
}

bool KnownFields::AllKnown(CodedInputStream* in, const Type& type,
                           bool* shares) {
  if (type.shared_memory) *shares = true;
  while (const std::uint32_t tag = in->ReadTag()) {
    const auto number =
        static_cast<std::size_t>(WireFormatLite::GetTagFieldNumber(tag));
    if (number >= type.fields.size()) return false;
    const Field& field = type.fields[number];
    const int wire_type = WireFormatLite::GetTagWireType(tag);
    if (field.field == nullptr) return false;
    if (wire_type != field.wire_type && wire_type != field.packed_wire_type) {
      return false;
    }
    std::uint32_t length = 0;
    std::uint64_t value = 0;
    switch (wire_type) {
      case WireFormatLite::WIRETYPE_VARINT:
        if (!in->ReadVarint64(&value)) return false;
        if (field.values != 0 &&
            (value >= 64 || (field.values >> value & 1) == 0)) {
          return false;
        }
        break;
      case WireFormatLite::WIRETYPE_FIXED32:
        if (!in->Skip(4)) return false;
        break;
      case WireFormatLite::WIRETYPE_FIXED64:
        if (!in->Skip(8)) return false;
        break;
      case WireFormatLite::WIRETYPE_LENGTH_DELIMITED: {
        // A packed list of enums is so rare that it is left to Name().
        if (field.values != 0 || !in->ReadVarint32(&length)) return false;
        if (field.message == nullptr) {
          if (!in->Skip(static_cast<int>(length))) return false;
          break;
        }
        const auto limit = in->PushLimit(static_cast<int>(length));
        if (!AllKnown(in, *field.message, shares)) return false;
        in->PopLimit(limit);
        break;
      }
      default:
        return false;
    }
  }
  return in->ConsumedEntireMessage();
}

bool KnownFields::AddList(CodedInputStream* in, const Field& field,
                          std::uint32_t bytes, Counts* counts) {
  const void* data = nullptr;
  int left = 0;
  in->GetDirectBufferPointerInline(&data, &left);
  // The parser makes numbers of what there is before it sees the end.
  const std::size_t size =
      std::min<std::size_t>(bytes, static_cast<std::size_t>(left));
  const auto* const first = static_cast<const std::uint8_t*>(data);
  // The last byte of each number is below 128.
  const auto numbers = static_cast<std::size_t>(std::count_if(
      first, first + size, [](std::uint8_t byte) { return byte < 0x80; }));
  const std::size_t in_memory = numbers * field.number_bytes;
  if (in_memory > size) counts->growth += in_memory - size;
  return in->Skip(static_cast<int>(size)) && size == bytes;
}

const FieldDescriptor* KnownFields::Crowded(CodedInputStream* in,
                                            const Type& type, Counts* counts) {
  const FieldDescriptor* last = nullptr;
  while (const std::uint32_t tag = in->ReadTag()) {
    const auto number =
        static_cast<std::size_t>(WireFormatLite::GetTagFieldNumber(tag));
    const Field* const field =
        number < type.fields.size() && type.fields[number].field != nullptr
            ? &type.fields[number]
            : nullptr;
    const int wire_type = WireFormatLite::GetTagWireType(tag);
    if (wire_type == WireFormatLite::WIRETYPE_END_GROUP) return nullptr;
    // The parser keeps a value of another wire type as an unknown field.
    const bool kept_apart =
        field == nullptr ||
        (wire_type != field->wire_type && wire_type != field->packed_wire_type);
    if (field != nullptr) last = field->field;
    if (kept_apart || field->is_element) {
      ++counts->elements;
    } else if (wire_type == WireFormatLite::WIRETYPE_VARINT) {
      counts->growth += field->number_bytes;  // of a list, one by one
    }
    if (counts->TooMany()) return last;
    // No message here has groups; all that is in one is unknown.
    if (wire_type == WireFormatLite::WIRETYPE_START_GROUP) {
      if (!in->IncrementRecursionDepth()) return nullptr;
      Crowded(in, Type(), counts);
      if (counts->TooMany()) return last;
      in->DecrementRecursionDepth();
      continue;
    }
    std::uint32_t length = 0;
    if (!kept_apart && field->number_bytes > 0 &&
        wire_type == WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
      if (!in->ReadVarint32(&length)) return nullptr;
      const bool whole = AddList(in, *field, length, counts);
      if (counts->TooMany()) return last;
      if (!whole) return nullptr;
      continue;
    }
    if (kept_apart || field->message == nullptr) {
      if (!WireFormatLite::SkipField(in, tag)) return nullptr;
      continue;
    }
    if (!in->ReadVarint32(&length)) return nullptr;
    const auto [limit, budget] =
        in->IncrementRecursionDepthAndPushLimit(static_cast<int>(length));
    if (budget < 0) return nullptr;
    if (const auto* const crowded = Crowded(in, *field->message, counts)) {
      return crowded;
    }
    if (!in->DecrementRecursionDepthAndPopLimit(limit)) return nullptr;
  }
  return nullptr;
}

absl::Status KnownFields::CheckElements(absl::string_view bytes,
                                        std::size_t* grown) const {
  if (grown != nullptr) *grown = 0;
  // Each has two bytes at least, and a number one, which becomes eight.
  if (bytes.size() <= 2 * std::size_t{kMostElements}) return absl::OkStatus();
  CodedInputStream in(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                      static_cast<int>(bytes.size()));
  Counts counts;
  const FieldDescriptor* const crowded = Crowded(&in, *root_, &counts);
  if (grown != nullptr) {
    *grown = 2 * counts.growth + counts.elements * kElementBytes;
  }
  if (!counts.TooMany()) return absl::OkStatus();
  const absl::string_view name = crowded == nullptr ? "" : crowded->name();
  if (counts.elements > kMostElements) {
    return core::FieldInvalid(
        name, absl::StrCat("the message has over ", kMostElements,
                           " elements of repeated fields, and unknown fields; "
                           "send fewer"));
  }
  return core::FieldInvalid(
      name,
      absl::StrCat("the numbers in the message's lists would take over ",
                   kMostGrowth, " bytes more than the message; send fewer"));
}

absl::Status KnownFields::Check(absl::string_view bytes, const Message& message,
                                bool* shares) const {
  CodedInputStream in(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                      static_cast<int>(bytes.size()));
  bool seen = false;
  const bool known = AllKnown(&in, *root_, &seen);
  if (shares != nullptr) *shares = seen || !known;
  if (known) return absl::OkStatus();
  return Name(message, *root_);
}

absl::Status KnownFields::Name(const Message& message, const Type& type) {
  const Reflection& reflection = *message.GetReflection();
  const google::protobuf::UnknownFieldSet& unknown =
      reflection.GetUnknownFields(message);
  if (!unknown.empty()) {
    const int number = unknown.field(0).number();
    return Unknown(absl::StrCat("field ", number), number);
  }
  for (const Field& known : type.fields) {
    const FieldDescriptor* const field = known.field;
    if (field == nullptr || (known.message == nullptr && known.values == 0)) {
      continue;
    }
    absl::Status status;
    if (field->is_repeated()) {
      const int count = reflection.FieldSize(message, field);
      for (int i = 0; i < count && status.ok(); ++i) {
        status = known.message != nullptr
                     ? Name(reflection.GetRepeatedMessage(message, field, i),
                            *known.message)
                     : CheckEnum(*field, reflection.GetRepeatedEnumValue(
                                             message, field, i));
        if (!status.ok()) {
          status = core::Prefixed(absl::StrCat("[", i, "]"), status);
        }
      }
    } else if (known.message == nullptr) {
      status = CheckEnum(*field, reflection.GetEnumValue(message, field));
    } else if (reflection.HasField(message, field)) {
      status = Name(reflection.GetMessage(message, field), *known.message);
    }
    if (!status.ok()) return core::Prefixed(field->name(), status);
  }
  return absl::OkStatus();
}

}  // namespace posenc::server
