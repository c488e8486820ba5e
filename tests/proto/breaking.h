// What of a contract that clients were generated from a newer one lacks.

#pragma once

#include <string>
#include <vector>

#include "google/protobuf/descriptor.pb.h"

namespace posenc {

// One line for each thing in the packages posenc.* of `old` that a client of it
// would miss or misread with `now`, on the wire or in JSON: messages, fields,
// enum values, oneofs, services and methods that are gone or are not what they
// were. What was added breaks nobody; options of languages are not compared,
// for they take effect when a client is generated anew.
std::vector<std::string> Breaks(const google::protobuf::FileDescriptorSet& old,
                                const google::protobuf::FileDescriptorSet& now);

}  // namespace posenc
