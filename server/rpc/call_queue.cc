#include "server/rpc/call_queue.h"

#include <algorithm>
#include <chrono>

#include "grpc/support/time.h"

namespace posenc::server {
namespace {

// Streams that wait for calls. gRPC keeps calls that find none until one does:
// every call that arrives is replaced at once, so that few are enough.
constexpr int kWaiting = 32;

// Threads wait for events in turn, and wake each other up for it: one thread
// needs two thirds of the processor's time of two (docs/adr/0007). More than
// kMost wait for each other at the queue's lock; gRPC's callback API has as
// many at most.
constexpr int kLeastThreads = 1, kMostThreads = 16;

// How long a thread rests that has refused a call, where another looks at the
// sockets meanwhile. At 40,000 calls a second on one processor with two
// threads, 0.15 to 0.3 ms gave 1.05 to 1.2 times the goodput of none; at 1 ms
// refusals took 20 to 30 ms. A single thread that rests lets calls pile up, and
// their memory leave the caches: at 30,000 and 45,000 calls a second refusals
// took 2.7 and 33 ms in the median, without rest 0.3 ms.
constexpr std::chrono::microseconds kRest{200};

}  // namespace

// Half as many as compute: they read and write sockets meanwhile. Beside a
// single one two, of which one rests: alone, at 5 and 10 times the calls for
// 256 KiB that one processor answers, a thread let 925 MiB of them pile up and
// Check take 1.9 s, two let 160 to 260 MiB and 0.6 s.
int CallQueue::ThreadsFor(int compute_threads) {
  if (compute_threads == 1) return 2;
  return std::clamp(compute_threads / 2, kLeastThreads, kMostThreads);
}

void CallQueue::AddTo(grpc::ServerBuilder* builder) {
  builder->RegisterAsyncGenericService(&calls_);
  queue_ = builder->AddCompletionQueue();
}

void CallQueue::Start(grpc::Server* server, int threads) {
  server_ = server->c_server();
  rests_ = threads > 1;
  for (int i = 0; i < kWaiting; ++i) AwaitCall();
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this] { Run(); });
  }
}

void CallQueue::Stop() {
  if (queue_ == nullptr) return;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    none_left_.wait(lock, [this] { return streams_ == 0; });
  }
  queue_->Shutdown();
  if (threads_.empty()) Run();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  queue_ = nullptr;
}

void CallQueue::AwaitCall() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++streams_;
  }
  (new PeerStream(this))->Await(server_, queue_->cq());
}

// Notified under the lock: Stop() may return, and the queue be destroyed, as
// soon as it is released.
void CallQueue::Delete(PeerStream* stream) {
  delete stream;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (--streams_ == 0) none_left_.notify_all();
}

// The next event; null once the queue is shut down and empty. A rest that is
// due is taken only if no event is there and one look at the sockets, which
// does not wait, brings none.
const PeerStream::Event* CallQueue::Next(bool* rest, bool* ok) {
  while (true) {
    const grpc_event event =
        grpc_completion_queue_next(queue_->cq(),
                                   *rest ? gpr_inf_past(GPR_CLOCK_MONOTONIC)
                                         : gpr_inf_future(GPR_CLOCK_MONOTONIC),
                                   nullptr);
    switch (event.type) {
      case GRPC_QUEUE_SHUTDOWN:
        return nullptr;
      case GRPC_OP_COMPLETE:
        *ok = event.success != 0;
        return static_cast<const PeerStream::Event*>(event.tag);
      case GRPC_QUEUE_TIMEOUT:
        *rest = false;
        std::this_thread::sleep_for(kRest);
        break;
    }
  }
}

// What a reaction itself brings about comes back to its thread at once, past
// the queue and its lock.
void CallQueue::Run() {
  bool ok = false, rest = false;
  const PeerStream::Event* event = Next(&rest, &ok);
  while (event != nullptr) {
    rest = rest || (rests_ && PeerStream::EndsRefusal(*event));
    grpc_completion_queue_thread_local_cache_init(queue_->cq());
    (event->stream->*event->happen)(ok);
    event = Cached(&ok);
    if (event == nullptr) event = Next(&rest, &ok);
  }
}

const PeerStream::Event* CallQueue::Cached(bool* ok) {
  void* tag = nullptr;
  int success = 0;
  if (grpc_completion_queue_thread_local_cache_flush(queue_->cq(), &tag,
                                                     &success) == 0) {
    return nullptr;
  }
  *ok = success != 0;
  return static_cast<const PeerStream::Event*>(tag);
}

}  // namespace posenc::server
