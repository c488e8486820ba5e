// The reflection service, under its name and under the older one: tools such as
// grpcurl and buf curl learn from it what a server speaks.
//
// gRPC's own has no JSON names in its descriptors, so that tools would spell
// fields in two ways, knows neither health nor the details of errors, and is
// v1alpha alone.

#pragma once

#include <memory>

#include "grpcpp/server_builder.h"
#include "server/reflection/reflected_files.h"

namespace posenc::server {

class Reflection {
 public:
  Reflection();
  ~Reflection();

  // To be registered; they live as long as this.
  grpc::Service* v1() const { return v1_.get(); }
  grpc::Service* v1alpha() const { return v1alpha_.get(); }

 private:
  const ReflectedFiles files_;
  const std::unique_ptr<grpc::Service> v1_, v1alpha_;
};

}  // namespace posenc::server
