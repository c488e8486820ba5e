#include "server/call/loop.h"

#include <algorithm>

#include "grpc/support/time.h"

namespace posenc::server {
namespace {

// Upper bound on the events that are handled before the loop ticks and polls:
// about a millisecond of work.
constexpr int kMostReady = 64;

// While events are ready, the loop spends this many times as much time on
// events as on polls. Otherwise a server past its capacity would read calls
// that it never serves.
constexpr int kServedPerPolled = 4;

}  // namespace

int Loop::CountFor(int compute_threads) {
  return std::clamp(compute_threads / 2, 1, 16);
}

void Loop::AddTo(grpc::ServerBuilder* builder) {
  queue_ = builder->AddCompletionQueue();
  polled_ = builder->AddCompletionQueue();
}

void Loop::Start() {
  thread_ = std::thread([this] { Run(); });
}

void Loop::Stop() {
  if (thread_.joinable()) thread_.join();
  if (queue_ == nullptr) return;
  queue_->Shutdown();
  polled_->Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_->Next(&tag, &ok)) static_cast<Event*>(tag)->Happen(ok);
  while (polled_->Next(&tag, &ok)) continue;  // it has no events
  queue_ = nullptr;
}

// Returns a ready event. If there is none, ticks, waits for an event and notes
// the idle time. The tick comes after all ready events, because one of them may
// end an operation. Otherwise the tick would treat the operation as slow
// although the loop itself was late.
grpc::CompletionQueue::NextStatus Loop::Next(void** tag, bool* ok) {
  const grpc::CompletionQueue::NextStatus status =
      queue_->AsyncNext(tag, ok, gpr_inf_past(GPR_CLOCK_MONOTONIC));
  if (status != grpc::CompletionQueue::TIMEOUT) return status;
  ready_ = 0;
  TickIfDue();
  gpr_timespec wake = gpr_inf_future(GPR_CLOCK_MONOTONIC);
  if (!ticked_.empty()) {
    wake = gpr_time_add(
        gpr_now(GPR_CLOCK_MONOTONIC),
        gpr_time_from_nanos(absl::ToInt64Nanoseconds(next_tick_ - SteadyNow()),
                            GPR_TIMESPAN));
  }
  const grpc::CompletionQueue::NextStatus waited =
      queue_->AsyncNext(tag, ok, wake);
  idle_at_ = SteadyNow();
  return waited;
}

// gRPC reads sockets only while a thread asks for an event and no event is
// ready. With a stream of small messages, `queue_` may have a ready event at
// all times, and gRPC would then read no socket. So the loop asks for an event
// of `polled_`, which never has an event. gRPC 1.51 then reads one socket to
// its end, which may contain a thousand calls. If several sockets were read
// first, the deadlines of many of these calls would pass before they are
// handled, and such a call costs gRPC twice as much as a refusal.
void Loop::Poll() {
  const absl::Time began = SteadyNow();
  if (began < next_poll_) return;
  void* tag = nullptr;
  bool ok = false;
  polled_->AsyncNext(&tag, &ok, gpr_inf_past(GPR_CLOCK_MONOTONIC));
  const absl::Time ended = SteadyNow();
  next_poll_ = ended + kServedPerPolled * (ended - began);
}

void Loop::Run() {
  do {
    void* tag = nullptr;
    bool ok = false;
    switch (Next(&tag, &ok)) {
      case grpc::CompletionQueue::SHUTDOWN:
        return;
      case grpc::CompletionQueue::GOT_EVENT:
        static_cast<Event*>(tag)->Happen(ok);
        break;
      case grpc::CompletionQueue::TIMEOUT:
        break;
    }
    if (++ready_ < kMostReady) continue;
    ready_ = 0;
    TickIfDue();
    Poll();
  } while (coroutines_ > 0);
}

void Loop::Add(Ticked* ticked) {
  if (ticked_.empty()) next_tick_ = SteadyNow() + kTick;
  ticked->at_ = ticked_.size();
  ticked_.push_back(ticked);
}

void Loop::Remove(Ticked* ticked) {
  ticked_.back()->at_ = ticked->at_;
  ticked_[ticked->at_] = ticked_.back();
  ticked_.pop_back();
}

void Loop::TickIfDue() {
  if (ticked_.empty()) return;
  const absl::Time now = SteadyNow();
  if (now < next_tick_) return;
  next_tick_ = now + kTick;
  for (Ticked* const ticked : ticked_) ticked->Tick(now);
}

void Loop::Post(Event* event) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  posted_.push_back(event);
  if (posted_.size() > 1) return;
  // Sets a time in the past, because gRPC would round the present time up to
  // the next millisecond of its timer.
  alarm_.Set(queue_.get(), gpr_inf_past(GPR_CLOCK_MONOTONIC), &inbox_);
}

void Loop::Inbox::Happen(bool /*ok*/) {
  std::vector<Event*> posted;
  {
    const std::lock_guard<std::mutex> lock(loop_->mutex_);
    posted.swap(loop_->posted_);
  }
  for (Event* const event : posted) event->Happen(true);
}

}  // namespace posenc::server
