// posenc-bench-generated UNIX_PATH READY_FILE: ApplyRope over core, served by
// the generated synchronous service in the obvious way: messages parsed into
// strings, the default malloc. float32, a spec without scaling, positions from
// a start; nothing else.

#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

#include "core/base/tensor.h"
#include "core/interpretation/source.h"
#include "core/rotation/apply.h"
#include "posenc/v1/service.grpc.pb.h"
#include "tests/bench/grpc_server.h"

namespace posenc {
namespace {

class Service final : public v1::PositionalEncodingService::Service {
 public:
  grpc::Status ApplyRope(grpc::ServerContext*,
                         const v1::ApplyRopeRequest* request,
                         v1::ApplyRopeResponse* response) override {
    const v1::RopeSpec& spec = request->rope().spec();
    const v1::Tensor& q = request->q();
    if (!request->rope().has_spec() || spec.scaling_case() != 0 ||
        request->positions().kind_case() != v1::Positions::kStart ||
        request->has_k() || q.dtype() != v1::DTYPE_FLOAT32) {
      return {grpc::StatusCode::UNIMPLEMENTED, "not the benchmark's call"};
    }
    core::RopeSpec rope;
    rope.pairing = static_cast<core::Pairing>(spec.pairing());
    if (spec.has_rope_theta()) rope.rope_theta = spec.rope_theta();
    core::ApplyRopeArgs args;
    args.rope = core::interpretation::LookupOf(rope);
    args.positions = core::StartPosition{request->positions().start()};
    args.layout = static_cast<core::Layout>(request->layout());

    const core::Shape shape(q.shape().begin(), q.shape().end());
    const std::string& data = q.data();
    v1::Tensor* const rotated = response->mutable_q();
    rotated->set_dtype(q.dtype());
    *rotated->mutable_shape() = q.shape();
    rotated->mutable_data()->resize(data.size());
    const core::ConstTensorView in{
        core::Dtype::kFloat32, shape,
        reinterpret_cast<const std::byte*>(data.data())};
    const core::TensorView out{
        core::Dtype::kFloat32, shape,
        reinterpret_cast<std::byte*>(rotated->mutable_data()->data())};
    std::size_t bytes = sizeof(float);
    for (const std::int64_t extent : shape) bytes *= extent;
    if (bytes != data.size()) {
      return {grpc::StatusCode::INVALID_ARGUMENT, "q.data: not its shape"};
    }
    const absl::Status status =
        core::ApplyRope(args, &in, &out, nullptr, nullptr);
    if (status.ok()) return grpc::Status::OK;
    return {grpc::StatusCode::INVALID_ARGUMENT, std::string(status.message())};
  }
};

}  // namespace
}  // namespace posenc

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr,
                 "usage: posenc-bench-generated UNIX_PATH READY_FILE\n");
    return 2;
  }
  posenc::Service service;
  return posenc::Serve(argv[1], argv[2], [&](grpc::ServerBuilder* builder) {
    builder->RegisterService(&service);
  });
}
