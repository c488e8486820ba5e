#include "client/tools/load/worker.h"

#include <sys/prctl.h>

#include <algorithm>
#include <ctime>
#include <deque>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "grpcpp/client_context.h"
#include "posenc/wire/metadata.h"

namespace posenc::load {

namespace {

// If the dispatcher wakes up late because this machine is busy, it still sends
// due calls up to 0.1 s after the end, because the server did not cause the
// delay.
constexpr std::int64_t kLate = 100'000'000;

// If a call is sent this long after its due time although a slot was free, this
// machine was too slow. With a free core, the scheduler causes only shorter
// delays.
constexpr std::int64_t kTooLate = 10'000'000;

double Seconds(clockid_t clock) {
  timespec now = {};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) +
         static_cast<double>(now.tv_nsec) * 1e-9;
}

// Returns whether the answer ends with these elements. A tensor's elements come
// last in an answer.
bool EndsWith(absl::string_view answer, absl::Span<const char> elements) {
  return absl::EndsWith(answer, {elements.data(), elements.size()});
}

// Returns the name of a gRPC status code: "UNAVAILABLE".
std::string CodeName(int grpc_code) {
  const std::string name =
      absl::StatusCodeToString(static_cast<absl::StatusCode>(grpc_code));
  return name.empty() ? absl::StrCat("CODE_", grpc_code) : name;
}

// Sets the share of a core that this thread used during the object's lifetime.
class ThreadShare {
 public:
  explicit ThreadShare(double* share) : share_(share) {}
  ~ThreadShare() {
    const double wall = Seconds(CLOCK_MONOTONIC) - wall_;
    *share_ = wall > 0 ? (Seconds(CLOCK_THREAD_CPUTIME_ID) - used_) / wall : 0;
  }
  ThreadShare(const ThreadShare&) = delete;
  ThreadShare& operator=(const ThreadShare&) = delete;

 private:
  double* const share_;
  const double wall_ = Seconds(CLOCK_MONOTONIC);
  const double used_ = Seconds(CLOCK_THREAD_CPUTIME_ID);
};

}  // namespace

// A call in flight; its address is the tag in the completion queue.
struct Worker::Call {
  grpc::ClientContext context;
  grpc::ByteBuffer response;
  grpc::Status status;
  std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader;
  std::size_t case_index;
  const Request* request;
  int slot;
  std::int64_t due;
  std::int64_t preparing = 0;  // time for shared memory, not part of the
                               // latency
  bool verify;
};

bool Step::Claim(std::int64_t due) {
  return options.calls == 0 || due < measured ||
         calls.fetch_add(1, std::memory_order_relaxed) < options.calls;
}

Worker::Worker(Step* step, int index,
               const std::vector<std::shared_ptr<grpc::Channel>>& channels)
    : step_(step),
      index_(index),
      slots_(static_cast<std::size_t>(
          step->options.in_flight / step->workers +
          (index < step->options.in_flight % step->workers ? 1 : 0))),
      next_request_(step->workload->size()),
      random_(step->options.seed * 1000003 + static_cast<unsigned>(index)) {
  part_.cases.resize(step->workload->size());
  for (int slot = index; slot < step->options.in_flight;
       slot += step->workers) {
    free_slots_.push_back(slot);
  }
  std::vector<double> weights;
  for (const Case& one : *step->workload) weights.push_back(one.weight);
  choose_ =
      std::discrete_distribution<std::size_t>(weights.begin(), weights.end());
  const std::size_t workers = static_cast<std::size_t>(step->workers);
  for (std::size_t i = static_cast<std::size_t>(index); i < channels.size();
       i += workers) {
    stubs_.push_back(std::make_unique<grpc::GenericStub>(channels[i]));
  }
}

Worker::~Worker() {
  if (dispatcher_.joinable()) dispatcher_.join();
  if (poller_.joinable()) poller_.join();
}

void Worker::Start() {
  const bool closed = step_->options.rate <= 0;
  if (!closed) dispatcher_ = std::thread([this] { Dispatch(); });
  poller_ = std::thread([this, closed] {
    closed ? RunClosed() : Poll(false);
    done_.store(true, std::memory_order_release);
  });
}

void Worker::Send(std::int64_t due) {
  const std::size_t index = choose_(random_);
  const Case& chosen = (*step_->workload)[index];
  const std::size_t variant = next_request_[index]++ % chosen.requests.size();
  auto* const call = new Call;
  call->case_index = index;
  call->request = &chosen.requests[variant];
  call->due = due;
  call->verify =
      step_->options.verify > 0 &&
      std::generate_canonical<double, 32>(random_) < step_->options.verify;
  bool abandoned;
  {
    const std::lock_guard<std::mutex> lock(slots_mutex_);
    call->slot = free_slots_.back();
    free_slots_.pop_back();
    abandoned = abandoned_slots_.count(call->slot) > 0;
  }
  const SlotRequest* const shared =
      call->request->slots.empty()
          ? nullptr
          : &call->request->slots[static_cast<std::size_t>(call->slot)];
  if (shared != nullptr && abandoned) call->verify = false;
  if (shared != nullptr && call->verify) {
    const std::int64_t before = step_->clock->Now();
    // Clears the output, which may have the right result of an earlier call. If
    // the call works in place, the output is the input's memory, and the copy
    // below fills it again.
    std::fill(shared->output.begin(), shared->output.end(), '\0');
    std::copy(call->request->input.begin(), call->request->input.end(),
              shared->input.begin());
    call->preparing = step_->clock->Now() - before;
  }
  const grpc::ByteBuffer& message =
      shared != nullptr ? shared->message : call->request->message;
  call->context.AddMetadata(wire::kMessageBytes,
                            absl::StrCat(message.Length()));
  const absl::Duration late =
      absl::Nanoseconds(step_->clock->Now() - call->due);
  call->context.set_deadline(
      absl::ToChronoTime(absl::Now() + step_->options.timeout - late));
  step_->in_flight.fetch_add(1, std::memory_order_relaxed);
  if (step_->Counts(due)) step_->counted.fetch_add(1);
  call->reader = stubs_[next_stub_++ % stubs_.size()]->PrepareUnaryCall(
      &call->context, chosen.method, message, &queue_);
  call->reader->StartCall();
  call->reader->Finish(&call->response, &call->status, call);
}

void Worker::RunClosed() {
  while (!free_slots_.empty()) {
    const std::int64_t now = step_->clock->Now();
    if (now >= step_->end || step_->Stopped() || !step_->Claim(now)) break;
    Send(now);
  }
  if (AllFree()) queue_.Shutdown();
  Poll(true);
}

void Worker::Poll(bool closed) {
  const ThreadShare share(&polling_share_);
  void* tag;
  bool ok;
  while (queue_.Next(&tag, &ok)) {
    const std::unique_ptr<Call> call(static_cast<Call*>(tag));
    const std::int64_t now = step_->clock->Now();
    step_->in_flight.fetch_sub(1, std::memory_order_relaxed);
    Record(*call, now);
    if (step_->Counts(call->due)) step_->counted.fetch_sub(1);
    {
      const std::lock_guard<std::mutex> lock(slots_mutex_);
      free_slots_.push_back(call->slot);
      if (call->status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED ||
          call->status.error_code() == grpc::StatusCode::CANCELLED) {
        abandoned_slots_.insert(call->slot);
      }
    }
    if (!closed) {
      slot_freed_.notify_one();
    } else if (now < step_->end && !step_->Stopped() && step_->Claim(now)) {
      Send(now);
    } else if (AllFree()) {
      queue_.Shutdown();
    }
  }
}

void Worker::Dispatch() {
  std::optional<ThreadShare> share(&dispatching_share_);
  // By default a sleep in Linux may end up to 50 us late (timer slack). Such a
  // delay is longer than a small call takes, and would count as latency. 1 ns
  // is the minimum.
  prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
  const StepOptions& options = step_->options;
  const std::int64_t timeout = absl::ToInt64Nanoseconds(options.timeout);
  // Evenly spaced calls are distributed: each of n workers has every n-th call,
  // and starts one gap after the previous worker.
  Arrivals arrivals(options.rate / step_->workers,
                    options.poisson ? 0 : 1e9 / options.rate * index_,
                    options.poisson,
                    options.seed * 7919 + static_cast<unsigned>(index_));
  // Only calls that are due before `last` are sent. With a cool-down, `last` is
  // the deadline of the last counted calls. Calls are then sent until all
  // counted calls have ended.
  const std::int64_t last = step_->end + (options.cool_down ? timeout : 0);
  std::int64_t next = 0;
  const auto advance = [&] {
    next = step_->begin + arrivals.Next();
    return next < last && step_->Claim(next);
  };
  std::deque<std::int64_t> backlog;  // due and not sent yet, oldest first
  std::int64_t held_until = 0;       // calls due by this time found no slot
  bool more = advance();
  while (!step_->Stopped() && (more || !backlog.empty())) {
    if (backlog.empty()) step_->clock->SleepUntil(next);
    if (WaitForSlot()) held_until = step_->clock->Now();
    if (step_->Stopped()) break;
    const std::int64_t now = step_->clock->Now();
    for (; more && next <= now; more = advance()) backlog.push_back(next);
    while (!backlog.empty() && now >= backlog.front() + timeout) {
      Leave(backlog.front(), now, held_until, &part_.dropped);
      backlog.pop_front();
    }
    if (options.cool_down && now >= step_->end && step_->counted.load() == 0 &&
        (backlog.empty() || backlog.front() >= step_->end)) {
      break;
    }
    if (backlog.empty()) continue;
    const std::int64_t due = backlog.back();
    backlog.pop_back();
    if (!options.cool_down &&
        now - (due <= held_until ? 0 : kLate) >= step_->end) {
      Leave(due, now, held_until, &part_.unsent);
      continue;
    }
    Leave(due, now, held_until, nullptr);
    if (step_->Counts(due)) part_.send_delay.Record(now - due);
    Send(due);
  }
  share.reset();  // sets dispatching_share_ before the engine reads it
  std::unique_lock<std::mutex> lock(slots_mutex_);
  slot_freed_.wait(lock, [this] { return AllFree(); });
  queue_.Shutdown();
}

bool Worker::WaitForSlot() {
  std::unique_lock<std::mutex> lock(slots_mutex_);
  if (!free_slots_.empty()) return false;
  // This wait ends, because every call in flight ends at its deadline or
  // before.
  slot_freed_.wait(lock, [this] { return !free_slots_.empty(); });
  return true;
}

void Worker::Leave(std::int64_t due, std::int64_t now, std::int64_t held_until,
                   std::int64_t* reason) {
  if (!step_->Counts(due)) return;
  if (due <= held_until) {
    ++part_.limited;
  } else if (now - due > kTooLate) {
    ++part_.sent_late;
  }
  if (reason != nullptr) ++*reason;
}

void Worker::Record(const Call& call, std::int64_t now) {
  if (!step_->Counts(call.due)) return;
  std::int64_t last = step_->last_answer.load(std::memory_order_relaxed);
  // Stores the time of the latest answer of all workers: a maximum, without a
  // lock.
  while (last < now && !step_->last_answer.compare_exchange_weak(
                           last, now, std::memory_order_relaxed)) {
  }
  const std::int64_t latency = now - call.due - call.preparing;
  bool right = true;
  if (call.status.ok() && call.verify) {
    right =
        call.request->slots.empty()
            ? Equals(call.response, call.request->answer)
            : EndsWith(call.request->answer,
                       call.request->slots[static_cast<std::size_t>(call.slot)]
                           .output);
  }
  const std::lock_guard<std::mutex> lock(counts_mutex_);
  if (!call.status.ok()) {
    ++counts_.errors[CodeName(call.status.error_code())];
    counts_.failed.Record(latency);
    const grpc::StatusCode code = call.status.error_code();
    if (code == grpc::StatusCode::RESOURCE_EXHAUSTED ||
        code == grpc::StatusCode::UNAVAILABLE) {
      counts_.refused.Record(latency);
    }
    return;
  }
  ++counts_.ok;
  if (latency <= absl::ToInt64Nanoseconds(step_->options.timeout)) {
    ++counts_.good;
  }
  counts_.bytes_sent += call.request->bytes;
  counts_.bytes_received += static_cast<std::int64_t>(call.response.Length());
  // Bytes of results in shared memory are counted as received.
  if (!call.request->slots.empty()) {
    counts_.bytes_received +=
        static_cast<std::int64_t>(call.request->slots[0].output.size());
  }
  counts_.latency.Record(latency);
  part_.cases[call.case_index].Record(latency);
  if (!call.verify) return;
  ++counts_.verified;
  if (right) return;
  if (counts_.wrong++ == 0) {
    counts_.first_wrong = absl::StrCat(
        (*step_->workload)[call.case_index].name, ": an answer of ",
        call.response.Length(), " bytes differs from the first");
  }
}

void Worker::AddTo(StepResult* result) const {
  result->unsent += part_.unsent;
  result->dropped += part_.dropped;
  result->limited += part_.limited;
  result->sent_late += part_.sent_late;
  result->busiest_thread =
      std::max({result->busiest_thread, dispatching_share_, polling_share_});
  result->send_delay.Add(part_.send_delay);
  for (std::size_t i = 0; i < part_.cases.size(); ++i) {
    result->cases[i].Add(part_.cases[i]);
  }
}

void Worker::TakeInterval(Counts* counts) {
  Counts taken;
  {
    const std::lock_guard<std::mutex> lock(counts_mutex_);
    std::swap(taken, counts_);
  }
  counts->Add(taken);
}

}  // namespace posenc::load
