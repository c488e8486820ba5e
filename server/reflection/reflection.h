// Implements the reflection service, under its current name and its older name
// (v1alpha). Tools such as grpcurl and buf curl use it to read the descriptors
// of the server's contract, of gRPC's own services, and of the details of
// errors.
//
// gRPC's own reflection service is not used, because it exists only as v1alpha.
// Its descriptors do not have the JSON names of fields, so some tools would
// write rope_theta and other tools ropeTheta. gRPC's service has no descriptors
// of the health service and of the details of errors.

#pragma once

#include <atomic>
#include <string>
#include <unordered_map>
#include <vector>

#include "google/protobuf/descriptor.h"
#include "server/methods/methods.h"

namespace posenc::server {

// After the construction of this object, only its number of calls changes.
// Requests of peers add nothing to its tables, even if they contain invented
// names. The object must outlive its calls.
class Reflection final {
 public:
  // `more` is a further service next to the contract's and gRPC's services, or
  // null.
  explicit Reflection(const google::protobuf::ServiceDescriptor* more);

  std::vector<Method> Methods();

 private:
  // A file and all its imports, as serialized FileDescriptorProtos with JSON
  // names.
  using Files = std::vector<std::string>;

  // These functions add a file to pool_, after its imports.
  void Add(const google::protobuf::FileDescriptor& file);
  void Build(const google::protobuf::FileDescriptorProto& file);
  // Returns the serialized answer to a request.
  absl::StatusOr<std::string> Answer(const std::string& message) const;
  // Returns the file that has a service, method, message, field, enum or value
  // of this full name, or null if there is none.
  const google::protobuf::FileDescriptor* Holding(
      const std::string& symbol) const;

  std::atomic<int> calls_{0};
  std::vector<std::string> services_;  // full names
  // All files. Unlike the pool of the generated code, this pool does not
  // remember names that were not found.
  google::protobuf::DescriptorPool pool_;
  std::unordered_map<const google::protobuf::FileDescriptor*, Files> files_;
};

}  // namespace posenc::server
