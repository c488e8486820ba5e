// Finds what a message says about shared memory, wherever it is in it: tensors
// that lie there, and places for tensors of the response.
//
// Only fields that can hold either are looked at, so that a request without any
// costs a few tests.

#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
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
    int field;
    const v1::SharedMemory* place;
  };
  std::vector<Tensor> tensors;
  std::vector<Place> places;

  bool none() const { return tensors.empty() && places.empty(); }
  // INVALID_ARGUMENT unless there is none: in a stream.
  absl::Status CheckNone() const;
};

// Knows where messages of a type can have such parts. Safe for many threads.
class SharedPartsFinder {
 public:
  explicit SharedPartsFinder(const google::protobuf::Descriptor& type)
      : root_(TypeOf(type)) {}

  SharedParts Find(google::protobuf::Message* message) const;

 private:
  struct Type;
  struct Field {
    const google::protobuf::FieldDescriptor* field;
    const Type* within;  // null: it is a Tensor or a SharedMemory itself
  };
  struct Type {
    std::vector<Field> fields;
  };
  // Where a message is in others.
  struct Step;

  const Type* TypeOf(const google::protobuf::Descriptor& descriptor);
  static void Find(const Type& type, google::protobuf::Message* message,
                   const Step* above, SharedParts* parts);

  std::map<const google::protobuf::Descriptor*, std::unique_ptr<Type>> types_;
  const Type* const root_;
};

}  // namespace posenc::server
