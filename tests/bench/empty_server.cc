// posenc-bench-empty UNIX_PATH READY_FILE [refuse]: a raw gRPC handler that
// answers every message with itself, one by one if the method is a stream, or
// refuses every call at its headers: the cost of gRPC alone.

#include <malloc.h>

#include <climits>
#include <cstdio>
#include <string>

#include "absl/synchronization/mutex.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/support/byte_buffer.h"
#include "tests/bench/grpc_server.h"

namespace posenc {
namespace {

class Echo final : public grpc::ServerGenericBidiReactor {
 public:
  explicit Echo(bool stream) : stream_(stream) { StartRead(&message_); }
  void OnReadDone(bool ok) override {
    if (!ok) {
      Finish(grpc::Status::OK);
    } else if (stream_) {
      StartWrite(&message_);
    } else {
      StartWriteAndFinish(&message_, {}, grpc::Status::OK);
    }
  }
  void OnWriteDone(bool ok) override {
    if (ok && stream_) StartRead(&message_);
    if (!ok && stream_) Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override { delete this; }

 private:
  const bool stream_;
  grpc::ByteBuffer message_;
};

class Refusal final : public grpc::ServerGenericBidiReactor {
 public:
  Refusal() {
    Finish(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "full"));
  }
  void OnDone() override { delete this; }
};

class EchoService final : public grpc::CallbackGenericService {
 public:
  explicit EchoService(bool refuse) : refuse_(refuse) {}

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    if (refuse_) return new Refusal;
    const std::string& method = context->method();
    const std::string kind = "Stream";
    return new Echo(
        method.size() >= kind.size() &&
        method.compare(method.size() - kind.size(), kind.size(), kind) == 0);
  }

 private:
  const bool refuse_;
};

}  // namespace
}  // namespace posenc

int main(int argc, char** argv) {
  const bool refuse = argc == 4 && std::string(argv[3]) == "refuse";
  if (argc != 3 && !refuse) {
    std::fprintf(stderr,
                 "usage: posenc-bench-empty UNIX_PATH READY_FILE [refuse]\n");
    return 2;
  }
  // Memory of a message stays here for the next one: given back to the kernel
  // and faulted in again, it would cost more than the message itself.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  mallopt(M_TOP_PAD, 64 << 20);
  mallopt(M_ARENA_MAX, 1);
  // Debian's abseil looks for deadlocks at every lock; posencd, too, stops it.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  posenc::EchoService service(refuse);
  return posenc::Serve(argv[1], argv[2], [&](grpc::ServerBuilder* builder) {
    builder->RegisterCallbackGenericService(&service);
  });
}
