#include "server/convert/unknown_fields.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "google/protobuf/unknown_field_set.h"
#include "google/protobuf/wire_format_lite.h"
#include "posenc/v1/rope.pb.h"
#include "posenc/v1/tensor.pb.h"
#include "server/base/version.h"

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

// Returns the size in memory of a number of this type, or 0 if a varint of this
// type is never smaller than the number.
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

// Approximate size in memory of an empty message or text.
constexpr std::size_t kElementBytes = 192;

}  // namespace

KnownFields::KnownFields(const Descriptor& type) : root_(Add(type)) {}

const KnownFields::Type* KnownFields::Add(const Descriptor& descriptor) {
  std::unique_ptr<Type>& type = types_[&descriptor];
  if (type != nullptr) return type.get();
  type = std::make_unique<Type>();
  Type* const added = type.get();
  added->shared_memory = &descriptor == v1::SharedMemory::descriptor();
  added->rope_source = &descriptor == v1::RopeSource::descriptor();
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
    known->is_config =
        added->rope_source &&
        field->number() == v1::RopeSource::kConfigJsonFieldNumber;
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

bool KnownFields::AddList(CodedInputStream* in, const Field& field,
                          std::uint32_t bytes, Seen* seen) {
  const void* data = nullptr;
  int left = 0;
  in->GetDirectBufferPointerInline(&data, &left);
  // Counts the numbers of a truncated list, too, because the parser stores the
  // numbers before the end.
  const std::size_t size =
      std::min<std::size_t>(bytes, static_cast<std::size_t>(left));
  const auto* const first = static_cast<const std::uint8_t*>(data);
  // Counts the varints by their last bytes, because only these are below 128.
  const auto numbers = static_cast<std::size_t>(std::count_if(
      first, first + size, [](std::uint8_t byte) { return byte < 0x80; }));
  const std::size_t in_memory = numbers * field.number_bytes;
  if (in_memory > size) seen->growth += in_memory - size;
  return in->Skip(static_cast<int>(size)) && size == bytes;
}

bool KnownFields::Look(CodedInputStream* in, const Type& type, Seen* seen) {
  if (type.shared_memory) seen->shares = true;
  const FieldDescriptor* last = nullptr;
  while (const std::uint32_t tag = in->ReadTag()) {
    const int wire_type = WireFormatLite::GetTagWireType(tag);
    if (wire_type == WireFormatLite::WIRETYPE_END_GROUP) return true;
    const auto number =
        static_cast<std::size_t>(WireFormatLite::GetTagFieldNumber(tag));
    const Field* field =
        number < type.fields.size() && type.fields[number].field != nullptr
            ? &type.fields[number]
            : nullptr;
    if (field != nullptr) last = field->field;
    // The parser keeps a value with a wrong wire type as an unknown field.
    if (field != nullptr && wire_type != field->wire_type &&
        wire_type != field->packed_wire_type) {
      field = nullptr;
    }
    if (field == nullptr) seen->known = false;
    if (field == nullptr || field->is_element) ++seen->elements;
    if (!TooMany(*seen) && LookAt(in, tag, field, seen)) continue;
    if (TooMany(*seen) && seen->crowded == nullptr) seen->crowded = last;
    return false;
  }
  return true;
}

bool KnownFields::LookAt(CodedInputStream* in, std::uint32_t tag,
                         const Field* field, Seen* seen) {
  const int wire_type = WireFormatLite::GetTagWireType(tag);
  // The contract has no groups, so all fields of a group are unknown.
  if (wire_type == WireFormatLite::WIRETYPE_START_GROUP) {
    if (!in->IncrementRecursionDepth()) return false;
    Look(in, Type(), seen);
    in->DecrementRecursionDepth();
    return !TooMany(*seen);
  }
  if (field == nullptr) return WireFormatLite::SkipField(in, tag);
  if (wire_type == WireFormatLite::WIRETYPE_VARINT) {
    std::uint64_t value = 0;
    if (!in->ReadVarint64(&value)) return false;
    if (field->values != 0 &&
        (value >= 64 || (field->values >> value & 1) == 0)) {
      seen->known = false;
    }
    seen->growth += field->number_bytes;  // for lists that are not packed
    return !TooMany(*seen);
  }
  if (wire_type != WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
    return WireFormatLite::SkipField(in, tag);
  }
  // Packed lists of enums are rare, so only Check() reads them.
  if (field->values != 0) seen->known = false;
  std::uint32_t length = 0;
  if (!in->ReadVarint32(&length)) return false;
  if (field->number_bytes > 0) {
    return AddList(in, *field, length, seen) && !TooMany(*seen);
  }
  if (field->message == nullptr) {
    if (!in->Skip(static_cast<int>(length))) return false;
    if (field->is_config) seen->config_bytes += length;
    return true;
  }
  if (field->message->rope_source) {
    const void* data = nullptr;
    int left = 0;
    in->GetDirectBufferPointerInline(&data, &left);
    seen->rope_bytes += std::min(length, static_cast<std::uint32_t>(left));
  }
  const auto [limit, budget] =
      in->IncrementRecursionDepthAndPushLimit(static_cast<int>(length));
  if (budget < 0) return false;
  return Look(in, *field->message, seen) &&
         in->DecrementRecursionDepthAndPopLimit(limit);
}

absl::StatusOr<KnownFields::Seen> KnownFields::Walk(
    absl::string_view bytes) const {
  CodedInputStream in(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                      static_cast<int>(bytes.size()));
  Seen seen;
  Look(&in, *root_, &seen);
  // If the walk has ended early, it has not seen all fields.
  if (!in.ConsumedEntireMessage()) seen.known = false;
  seen.grown = kRopeGrowth * seen.rope_bytes +
               (kTextGrowth - kRopeGrowth) * seen.config_bytes;
  // On the wire, an element has at least two bytes and a number at least one.
  // So a message of at most 32 KiB cannot exceed the limits.
  if (bytes.size() <= 2 * std::size_t{kMostElements}) return seen;
  seen.grown += 2 * seen.growth + seen.elements * kElementBytes;
  if (!TooMany(seen)) return seen;
  const std::string name(seen.crowded == nullptr ? "" : seen.crowded->name());
  if (seen.elements > kMostElements) {
    return core::FieldInvalid(
        name, "the message has over ", kMostElements,
        " elements of repeated fields, and unknown fields; "
        "send fewer");
  }
  return core::FieldInvalid(
      name, "the numbers in the message's lists would take more than ",
      kMostGrowth, " bytes beyond the message; send fewer");
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
