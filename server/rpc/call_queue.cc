#include "server/rpc/call_queue.h"

#include <algorithm>
#include <chrono>

#include "absl/base/config.h"
#include "absl/time/time.h"
#include "grpc/support/time.h"
#include "server/rpc/socket_waits.h"

namespace posenc::server {
namespace {

// Streams that wait for calls. gRPC keeps calls that find none until one does:
// every call that arrives is replaced at once, so that few are enough.
constexpr int kWaiting = 32;

// Streams whose memory is kept for the next ones: as many as calls of a busy
// server come and go in an instant. None under sanitizers, which see a late use
// of memory that went back to the allocator, and not of memory that waits here.
#if defined(ABSL_HAVE_ADDRESS_SANITIZER) || defined(ABSL_HAVE_THREAD_SANITIZER)
constexpr std::size_t kMostSpare = 0;
#else
constexpr std::size_t kMostSpare = 256;
#endif

// Threads wait for events in turn, and wake each other up for it: one thread
// needs two thirds of the processor's time of two (docs/adr/0007). More than
// kMost wait for each other at the queue's lock; gRPC's callback API has as
// many at most.
constexpr int kLeastThreads = 1, kMostThreads = 16;

// A thread that has refused calls, and has found the sockets empty, rests for
// so long: what comes meanwhile is read and answered together. On one processor
// that could answer 13,000 of 45,000 calls a second, 0.08, 0.2 and 0.5 ms gave
// 9,100, 10,500 and 8,900 good ones in one run.
constexpr std::chrono::microseconds kRest{200};

// gRPC 1.51 handles one connection in a look, and may bring no event of it: so
// many looks in a row that bring none say that the sockets are empty, if there
// are not many more connections with something to read.
constexpr int kEmptyLooks = 16;

// While a thread always finds something, it does not wait but looks, so often
// at least, whether the sockets are empty.
constexpr std::chrono::milliseconds kCaughtUpFor{1};

// A call that is read later than this after the sockets were empty may have
// waited in one.
constexpr std::chrono::milliseconds kBehind{5};

// So long after a call was refused, or closed by its peer, gRPC is asked of
// each call whether its peer is gone. If nothing of the kind happens, the
// answer would always be no, for 3,500 instructions.
constexpr std::chrono::milliseconds kAskFor{100};

// More of one refusal was not spent on it, but on another process.
constexpr std::chrono::microseconds kLongestRefusal{100};

// Hundredths: what refusing takes, of what our reactions to it take. The rest
// is reading and parsing. Measured as the processor time of the thread while it
// had nothing but refusals to do, on one processor: 135 when gRPC still made an
// error object of each, 140 to 150 since, which is too near to it to matter.
constexpr int kWholeRefusal = 135;

}  // namespace

// Half as many as compute: they read and write sockets meanwhile.
int CallQueue::ThreadsFor(int compute_threads) {
  return std::clamp(compute_threads / 2, kLeastThreads, kMostThreads);
}

void CallQueue::AddTo(grpc::ServerBuilder* builder) {
  builder->RegisterAsyncGenericService(&calls_);
  queue_ = builder->AddCompletionQueue();
}

void CallQueue::Start(grpc::Server* server, int threads) {
  server_ = server->c_server();
  for (int i = 0; i < kWaiting; ++i) AwaitCall();
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this, threads] {
      if (threads == 1) only_thread_.store(std::this_thread::get_id());
      Run();
    });
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
  for (void* const memory : spare_) ::operator delete(memory);
  spare_.clear();
  queue_ = nullptr;
}

bool CallQueue::MayOperate() const {
  const std::thread::id only = only_thread_.load(std::memory_order_relaxed);
  return only == std::thread::id() || only == std::this_thread::get_id();
}

void CallQueue::AwaitCall() {
  void* memory = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++streams_;
    if (!spare_.empty()) {
      memory = spare_.back();
      spare_.pop_back();
    }
  }
  if (memory == nullptr) memory = ::operator new(sizeof(PeerStream));
  (new (memory) PeerStream(this))->Await(server_, queue_->cq());
}

// Notified under the lock: Stop() may return, and the queue be destroyed, as
// soon as it is released.
void CallQueue::Delete(PeerStream* stream) {
  stream->~PeerStream();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (spare_.size() == kMostSpare) {
    ::operator delete(stream);
  } else {
    spare_.push_back(stream);
  }
  if (--streams_ == 0) none_left_.notify_all();
}

// What a thread knows of the sockets.
struct CallQueue::Looks {
  using Clock = SocketWaits::Clock;

  // The only thread takes all calls of a connection, and knows when.
  bool only = false;
  SocketWaits waits{Clock::now()};

  // When a call was last refused, or closed by its peer.
  Clock::time_point trouble{};
  // Calls were refused since the last rest.
  bool refused = false;
  // Looks in a row that brought nothing.
  int empty = 0;
};

// The next event; null once the queue is shut down and empty. A rest that is
// due is taken only if no event is there and looks at the sockets, which do not
// wait, bring none.
const PeerStream::Event* CallQueue::Next(Looks* looks, bool* ok) {
  while (true) {
    Looks::Clock::time_point start;
    bool waits = false;
    if (!looks->refused) {
      start = Looks::Clock::now();
      waits = start - looks->waits.caught_up() < kCaughtUpFor;
    }
    const grpc_event event =
        grpc_completion_queue_next(queue_->cq(),
                                   waits ? gpr_inf_future(GPR_CLOCK_MONOTONIC)
                                         : gpr_inf_past(GPR_CLOCK_MONOTONIC),
                                   nullptr);
    switch (event.type) {
      case GRPC_QUEUE_SHUTDOWN:
        return nullptr;
      case GRPC_OP_COMPLETE:
        if (waits) {
          const Looks::Clock::time_point end = Looks::Clock::now();
          if (end - start > kCaughtUpFor) looks->waits.CatchUp(end);
        }
        looks->empty = 0;
        *ok = event.success != 0;
        return static_cast<const PeerStream::Event*>(event.tag);
      case GRPC_QUEUE_TIMEOUT:
        if (++looks->empty < kEmptyLooks) break;
        looks->empty = 0;
        if (looks->refused) std::this_thread::sleep_for(kRest);
        looks->refused = false;
        looks->waits.CatchUp(Looks::Clock::now());
        break;
    }
  }
}

// Reacts, and returns what that brought about at once, past the queue and its
// lock: an event or null.
const PeerStream::Event* CallQueue::React(const PeerStream::Event& event,
                                          Looks* looks, bool* ok) {
  grpc_completion_queue_thread_local_cache_init(queue_->cq());
  PeerStream* const stream = event.stream;
  const bool arrives = PeerStream::Arrives(event);
  bool refused = PeerStream::EndsRefusal(event);
  if (!arrives && !refused) {
    (stream->*event.happen)(*ok);
    return Cached(ok);
  }
  const Looks::Clock::time_point start = Looks::Clock::now();
  const PeerStream::Event* next = nullptr;
  if (!arrives) {
    (stream->*event.happen)(*ok);
    next = Cached(ok);
  } else if (!stream->Take(*ok)) {
    next = Cached(ok);
  } else if (!looks->only || start - looks->waits.caught_up() < kBehind) {
    AwaitCall();
    refused = stream->Begin(absl::ZeroDuration());
    next = Cached(ok);
  } else {
    // Asked first: a call that gRPC has ready for AwaitCall() would take the
    // place of its answer.
    const Looks::Clock::duration waited =
        looks->waits.Take(stream->headers().peer_id(), start);
    if (call_cancelled_.load()) {
      call_cancelled_.store(false);
      looks->trouble = start;
    }
    if (start - looks->trouble < kAskFor) {
      stream->Ask();
      next = Cached(ok);
    }
    AwaitCall();
    refused = next != nullptr && stream->SaysGone(next);
    if (refused) {
      stream->Forget();
    } else {
      refused = stream->Begin(absl::FromChrono(waited));
      if (next == nullptr) next = Cached(ok);
    }
  }
  if (refused) {
    looks->refused = true;
    looks->trouble = Looks::Clock::now();
    service_->Refused(std::min<Looks::Clock::duration>(
        (looks->trouble - start) * kWholeRefusal / 100, kLongestRefusal));
  }
  return next;
}

void CallQueue::Run() {
  bool ok = false;
  Looks looks;
  looks.only = only_thread_.load() == std::this_thread::get_id();
  const PeerStream::Event* event = Next(&looks, &ok);
  while (event != nullptr) {
    event = React(*event, &looks, &ok);
    if (event == nullptr) event = Next(&looks, &ok);
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
