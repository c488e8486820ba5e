#include "server/call/loop.h"

#include <algorithm>

#include "grpc/support/time.h"

namespace posenc::server {
namespace {

// Upper bound on the events between two calls of TickIfDue(): some milliseconds
// of work.
constexpr std::size_t kEventsPerTick = 256;

}  // namespace

int Loop::CountFor(int compute_threads) {
  return std::clamp(compute_threads / 2, 1, 16);
}

void Loop::AddTo(grpc::ServerBuilder* builder) {
  queue_ = builder->AddCompletionQueue();
}

void Loop::Start() {
  thread_ = std::thread([this] { Run(); });
}

void Loop::Stop() {
  if (thread_.joinable()) thread_.join();
  if (queue_ == nullptr) return;
  queue_->Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_->Next(&tag, &ok)) static_cast<Event*>(tag)->Happen(ok);
  queue_ = nullptr;
}

// Returns a ready event. If there is none, ticks, notes the idle time and waits
// for an event. The tick comes after all ready events, because one of them may
// end an operation. Otherwise the tick would find the operation slow although
// the loop itself was late.
grpc::CompletionQueue::NextStatus Loop::Next(void** tag, bool* ok) {
  const grpc::CompletionQueue::NextStatus status =
      queue_->AsyncNext(tag, ok, gpr_inf_past(GPR_CLOCK_MONOTONIC));
  if (status != grpc::CompletionQueue::TIMEOUT) return status;
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

void Loop::Run() {
  std::size_t events = 0;
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
    // A loop that always has ready events ticks, too.
    if (++events % kEventsPerTick == 0) TickIfDue();
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
