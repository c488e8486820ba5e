// Finds the parts of a message that are about shared memory, at any depth:
// tensors in shared memory, and places for tensors of the response.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "google/protobuf/message.h"
#include "posenc/v1/tensor.pb.h"

namespace posenc::server {

// Points into the message.
struct SharedParts {
  // `path` is the tensor's, such as "positions.ids" or "tables[0].tensor".
  // `field` is its number if it is a field of the message itself, else 0.
  struct Tensor {
    std::string path;
    int field;
    v1::Tensor* tensor;
  };
  struct Place {
    std::string path;
    const v1::SharedMemory* place;
  };
  std::vector<Tensor> tensors;
  std::vector<Place> places;

  bool none() const { return tensors.empty() && places.empty(); }
  // Returns INVALID_ARGUMENT if there are any: streams may have none.
  absl::Status CheckNone() const;
};

// Visits every field that is set. KnownFields::Walk() is a cheap way to learn
// that a message has no such part.
SharedParts FindSharedParts(google::protobuf::Message* message);

}  // namespace posenc::server
