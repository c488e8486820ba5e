// Converts protobuf's fields of plain values to C++ values, and messages to
// bytes.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/message.h"

namespace posenc::server {

template <typename Repeated>
auto ToVector(const Repeated& values) {
  return std::vector<typename Repeated::value_type>(values.begin(),
                                                    values.end());
}

// Adds all values to a repeated field.
template <typename Values, typename Repeated>
void Append(const Values& values, Repeated* to) {
  to->Add(values.begin(), values.end());
}

template <typename T>
std::optional<T> Optional(bool has, T value) {
  return has ? std::optional<T>(value) : std::nullopt;
}

// Converts an enum of a request to core's enum. If the request has not set the
// enum (0), returns `unset`.
template <typename Core, typename Contract>
Core EnumOr(Core unset, Contract value) {
  return value == Contract(0) ? unset : static_cast<Core>(value);
}

// Returns the bytes of a message. Equal messages get equal bytes, although
// protobuf's maps have no fixed order.
inline std::string Serialize(const google::protobuf::Message& message) {
  std::string bytes;
  bytes.reserve(message.ByteSizeLong());
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  // Serializing fails only if the stream fails, and this stream cannot fail.
  static_cast<void>(message.SerializeToCodedStream(&coded));
  coded.Trim();
  return bytes;
}

}  // namespace posenc::server
