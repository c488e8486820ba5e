#include "server/rpc/call_queue.h"

#include <algorithm>
#include <chrono>

#include "grpc/support/time.h"

namespace posenc::server {
namespace {

// Streams that wait for calls. gRPC keeps calls that find none until one does:
// every call that arrives is replaced at once, so that few are enough.
constexpr int kWaiting = 32;

// Fewer threads than this get too little of a processor that a compute thread
// has, too: past 40,000 calls a second, one thread refused them so late that
// none was answered in time; two kept 0.8 of the goodput. More than kMost wait
// for each other at the queue's lock; gRPC's callback API has as many at most.
constexpr int kLeastThreads = 2, kMostThreads = 16;

// How long a thread rests that has refused a call. At 40,000 calls a second on
// one processor, 0.15 to 0.3 ms gave 1.05 to 1.2 times the goodput of none; at
// 1 ms refusals took 20 to 30 ms.
constexpr std::chrono::microseconds kRest{200};

}  // namespace

// Half as many as compute: they read and write sockets meanwhile.
int CallQueue::ThreadsFor(int compute_threads) {
  return std::clamp(compute_threads / 2, kLeastThreads, kMostThreads);
}

void CallQueue::AddTo(grpc::ServerBuilder* builder) {
  builder->RegisterAsyncGenericService(&calls_);
  queue_ = builder->AddCompletionQueue();
}

void CallQueue::Start(int threads) {
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
  auto* const stream = new PeerStream(this);
  calls_.RequestCall(&stream->context_, &stream->stream_, queue_.get(),
                     queue_.get(), &stream->arrived_);
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
  void* tag = nullptr;
  if (*rest) {
    switch (queue_->AsyncNext(&tag, ok, gpr_inf_past(GPR_CLOCK_MONOTONIC))) {
      case grpc::CompletionQueue::SHUTDOWN:
        return nullptr;
      case grpc::CompletionQueue::GOT_EVENT:
        return static_cast<const PeerStream::Event*>(tag);
      case grpc::CompletionQueue::TIMEOUT:
        *rest = false;
        std::this_thread::sleep_for(kRest);
        break;
    }
  }
  return queue_->Next(&tag, ok) ? static_cast<const PeerStream::Event*>(tag)
                                : nullptr;
}

void CallQueue::Run() {
  bool ok = false, rest = false;
  while (const PeerStream::Event* const event = Next(&rest, &ok)) {
    rest = rest || event->stream->EndsRefusal(*event);
    (event->stream->*event->happen)(ok);
  }
}

}  // namespace posenc::server
