// Finds what a message says about shared memory, wherever it is in it: tensors
// that lie there, and places for tensors of the response.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "google/protobuf/message.h"
#include "posenc/v1/tensor.pb.h"

namespace posenc::server {

// Points into the message.
struct SharedParts {
  // `path` is the tensor's, as "positions.ids" or "tables[0].tensor". `field`
  // is its number if it is a field of the message itself, else 0.
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
  // INVALID_ARGUMENT unless there is none: in a stream.
  absl::Status CheckNone() const;
};

// Looks at every field that is set. KnownFields::Walk() tells cheaply of most
// messages that they have no such part.
SharedParts FindSharedParts(google::protobuf::Message* message);

}  // namespace posenc::server
