// Rotates q with only generated code. rotate ADDRESS
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "grpcpp/grpcpp.h"
#include "posenc/v1/service.grpc.pb.h"

int main(int argc, char** argv) {
  // The server's default limit; gRPC's is 4 MiB.
  constexpr int kLimit = 512 << 20;
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kLimit);
  const auto stub = posenc::v1::PositionalEncodingService::NewStub(
      grpc::CreateCustomChannel(argc > 1 ? argv[1] : "localhost:50051",
                                grpc::InsecureChannelCredentials(), arguments));

  const std::vector<float> q(1 * 1024 * 32 * 128, 1.0f);  // 16 MiB
  posenc::v1::ApplyRopeRequest request;
  request.mutable_rope()->set_preset("llama-3.1-8b");
  request.mutable_positions()->set_start(0);
  request.set_layout(posenc::v1::LAYOUT_BSHD);
  request.mutable_q()->set_dtype(posenc::v1::DTYPE_FLOAT32);
  for (const int extent : {1, 1024, 32, 128}) {
    request.mutable_q()->add_shape(extent);
  }
  // Little-endian, row-major.
  request.mutable_q()->set_data(q.data(), q.size() * sizeof(float));

  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::seconds(30));
  context.AddMetadata("posenc-message-bytes",
                      std::to_string(request.ByteSizeLong()));
  posenc::v1::ApplyRopeResponse answer;
  const grpc::Status status = stub->ApplyRope(&context, request, &answer);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.error_message().c_str());
    return 1;
  }
  std::vector<float> rotated(q.size());
  std::memcpy(rotated.data(), answer.q().data().data(),
              answer.q().data().size());
  std::printf("%zu bytes, rotated; at position 0 %g, at position 1 %.6f\n",
              answer.q().data().size(), rotated[0], rotated[32 * 128]);
  return 0;
}
