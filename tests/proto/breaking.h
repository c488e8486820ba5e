// Finds changes of a contract that break clients of the older version.

#pragma once

#include <string>
#include <vector>

#include "google/protobuf/descriptor.pb.h"

namespace posenc {

// Returns one line for each element in the packages posenc.* of `old` that its
// clients would miss or misread with `now`, on the wire or in JSON: removed or
// changed messages, fields, enum values, oneofs, services and methods.
// Additions break no client; options of languages are not compared, because
// they only affect newly generated clients. The messages of calls in which
// clients stream are not compared: they may change between releases.
std::vector<std::string> Breaks(const google::protobuf::FileDescriptorSet& old,
                                const google::protobuf::FileDescriptorSet& now);

}  // namespace posenc
