// posenc-bench-empty UNIX_PATH READY_FILE [refuse]: a raw gRPC handler that
// echoes every message, or refuses every call at its headers. It measures the
// cost of gRPC alone.

#include <malloc.h>

#include <climits>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/support/byte_buffer.h"
#include "tests/bench/grpc_server.h"

namespace posenc {
namespace {

class Echo final : public grpc::ServerGenericBidiReactor {
 public:
  Echo() { StartRead(&message_); }
  void OnReadDone(bool ok) override {
    if (ok) {
      StartWriteAndFinish(&message_, {}, grpc::Status::OK);
    } else {
      Finish(grpc::Status::OK);
    }
  }
  void OnDone() override { delete this; }

 private:
  grpc::ByteBuffer message_;
};

// Refuses every call at its headers, through a completion queue: callbacks cost
// nearly twice as much.
class Refusals {
 public:
  void AddTo(grpc::ServerBuilder* builder) {
    builder->RegisterAsyncGenericService(&calls_);
    queue_ = builder->AddCompletionQueue();
  }

  // Never returns: the process is killed.
  void Run() {
    for (int i = 0; i < 32; ++i) Await();
    void* tag = nullptr;
    bool ok = false;
    while (queue_->Next(&tag, &ok)) {
      auto* const call = static_cast<Call*>(tag);
      if (std::exchange(call->refused, true)) {
        delete call;
        continue;
      }
      Await();
      call->stream.Finish(
          grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "full"), call);
    }
  }

 private:
  struct Call {
    grpc::GenericServerContext context;
    grpc::GenericServerAsyncReaderWriter stream{&context};
    bool refused = false;
  };

  void Await() {
    auto* const call = new Call;
    calls_.RequestCall(&call->context, &call->stream, queue_.get(),
                       queue_.get(), call);
  }

  grpc::AsyncGenericService calls_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
};

class EchoService final : public grpc::CallbackGenericService {
 public:
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* /*context*/) override {
    return new Echo;
  }
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
  // Keeps a message's memory for the next one: returning it to the kernel and
  // faulting it in again would cost more than the message itself.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  mallopt(M_TOP_PAD, 64 << 20);
  mallopt(M_ARENA_MAX, 1);
  // Debian's abseil checks for deadlocks at every lock. posencd turns this off,
  // too.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  if (refuse) {
    posenc::Refusals refusals;
    return posenc::Serve(
        argv[1], argv[2],
        [&](grpc::ServerBuilder* builder) { refusals.AddTo(builder); },
        [&] { refusals.Run(); });
  }
  posenc::EchoService service;
  return posenc::Serve(argv[1], argv[2], [&](grpc::ServerBuilder* builder) {
    builder->RegisterCallbackGenericService(&service);
  });
}
