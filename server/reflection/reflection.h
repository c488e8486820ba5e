// The reflection service, under its name and under the older one. Tools such as
// grpcurl and buf curl learn a server's contract from it.
//
// gRPC's own service exists only as v1alpha. Its descriptors have no JSON
// names, so that tools would spell fields in two ways, and it knows neither
// health nor the details of errors.

#pragma once

#include <vector>

#include "google/protobuf/descriptor.h"
#include "server/methods/methods.h"
#include "server/reflection/reflected_files.h"

namespace posenc::server {

// Safe for many threads. Outlives its calls.
class Reflection final {
 public:
  // more: services beside the contract's and gRPC's own.
  explicit Reflection(
      const std::vector<const google::protobuf::ServiceDescriptor*>& more)
      : files_(more) {}

  std::vector<Method> Methods();

 private:
  const ReflectedFiles files_;
};

}  // namespace posenc::server
