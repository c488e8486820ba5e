#include "tests/chaos/offer/offer.h"

#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

namespace posenc::offer {
namespace {

constexpr int kDeadlineExceeded = 4, kResourceExhausted = 8, kUnavailable = 14;

// How often the loop polls while calls are open.
constexpr std::int64_t kTick = 100'000;
constexpr std::int64_t kLongestSleep = 1'000'000;

// This many calls that are due together go to one connection, so that their
// headers go out in one write.
constexpr std::size_t kBatch = 8;

constexpr int kEvents = 64;

std::int64_t Now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * std::int64_t{1'000'000'000} + time.tv_nsec;
}

double CpuSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) +
           1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

Offer::Offer(const Options& options, const Request* request)
    : options_(options), request_(request), random_(options.seed) {}

absl::Status Offer::Connect() {
  poll_ = epoll_create1(EPOLL_CLOEXEC);
  for (int i = 0; i < options_.connections; ++i) {
    auto connection = Connection::Connect(
        options_.server, request_,
        [this](std::size_t call, int status) { Ended(call, status); });
    if (!connection.ok()) return connection.status();
    epoll_event event{};
    event.events = EPOLLIN | EPOLLOUT | static_cast<unsigned>(EPOLLET);
    event.data.u64 = static_cast<std::uint64_t>(i);
    epoll_ctl(poll_, EPOLL_CTL_ADD, (*connection)->fd(), &event);
    connections_.push_back(*std::move(connection));
  }
  return absl::OkStatus();
}

bool Offer::Exchange() {
  epoll_event events[kEvents];
  const int count = epoll_wait(poll_, events, kEvents, 0);
  for (int i = 0; i < count; ++i) {
    const std::size_t which = events[i].data.u64;
    if (events[i].events & EPOLLOUT) connections_[which]->Unblock();
    if ((events[i].events & ~unsigned{EPOLLOUT}) &&
        std::find(unread_.begin(), unread_.end(), which) == unread_.end()) {
      unread_.push_back(which);
    }
  }
  std::vector<std::size_t> again;
  for (const std::size_t which : unread_) {
    now_ = Now();
    if (connections_[which]->Read()) again.push_back(which);
  }
  unread_.swap(again);
  for (const auto& connection : connections_) connection->Write();
  return count == kEvents || !unread_.empty();
}

void Offer::Settle() {
  const std::int64_t until = Now() + 300'000'000;
  const timespec pause{0, kLongestSleep};
  while (Now() < until) {
    if (!Exchange()) nanosleep(&pause, nullptr);
  }
}

std::int64_t Offer::NextDue() const {
  return begin_ + static_cast<std::int64_t>(1e9 / options_.rate *
                                            static_cast<double>(offered_));
}

void Offer::Wait() const {
  const std::int64_t until =
      open_ > 0 ? now_ + kTick : std::min(NextDue(), now_ + kLongestSleep);
  if (until <= now_) return;
  const timespec time{until / 1'000'000'000, until % 1'000'000'000};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nullptr);
}

void Offer::GiveUp(Call* call) {
  if (call->state == State::kOpen) {
    --open_;
    connections_[call->connection]->Cancel(call->stream);
  }
  call->state = State::kEnded;
}

void Offer::Ended(std::size_t index, int status) {
  Call& call = calls_[index];
  call.state = State::kEnded;
  --open_;
  const bool refused = status == kResourceExhausted || status == kUnavailable;
  if (refused && call.attempts <= options_.retries) {
    const double wait = 10e6 * static_cast<double>(1 << (call.attempts - 1)) *
                        std::uniform_real_distribution<>(0.5, 1.5)(random_);
    const auto at = now_ + static_cast<std::int64_t>(wait);
    if (at < call.due + options_.deadline_nanos) {
      call.state = State::kWaiting;
      retries_.push({at, index});
      if (Counts(call)) ++outcomes_.retried;
      return;
    }
  }
  if (!Counts(call)) return;
  const std::int64_t latency = now_ - call.due;
  ++outcomes_.codes[status];
  if (status == 0 && latency <= options_.deadline_nanos) {
    ++outcomes_.good;
    outcomes_.good_latency.Record(latency);
  } else if (status == 0) {
    ++outcomes_.late;
  } else if (refused) {
    ++outcomes_.refused;
    outcomes_.refused_latency.Record(latency);
  } else if (status == kDeadlineExceeded) {
    ++outcomes_.expired;
  } else if (status == kConnectionLost) {
    ++outcomes_.lost;
  } else {
    ++outcomes_.other;
  }
}

void Offer::AddDue() {
  // Does not send all calls at once after a pause of this machine, because
  // answers must be read, too.
  for (int i = 0; i < 256; ++i) {
    const std::int64_t due = NextDue();
    if (due > now_ || due >= end_) return;
    ++offered_;
    calls_.push_back({due});
    if (Counts(calls_.back())) ++outcomes_.due;
    backlog_.push_back(calls_.size() - 1);
  }
}

bool Offer::Start(std::size_t index) {
  for (std::size_t i = 0; i < connections_.size(); ++i) {
    const std::size_t which = turn_ / kBatch % connections_.size();
    if (!connections_[which]->HasRoom()) {
      turn_ += kBatch;
      continue;
    }
    ++turn_;
    Call& call = calls_[index];
    call.connection = static_cast<std::uint32_t>(which);
    call.state = State::kOpen;
    ++open_;
    if (++call.attempts == 1 && Counts(call)) {
      outcomes_.send_delay.Record(now_ - call.due);
    }
    call.stream = connections_[which]->Start(
        index, (call.due + options_.deadline_nanos - now_) / 1000);
    if (options_.cancel_nanos > 0) to_cancel_.push_back(index);
    return true;
  }
  return false;
}

void Offer::Send() {
  turn_ = (turn_ / kBatch + 1) * kBatch;
  while (!retries_.empty() && retries_.top().at <= now_) {
    const std::size_t call = retries_.top().call;
    retries_.pop();
    if (calls_[call].state == State::kWaiting) backlog_.push_back(call);
  }
  // Starts the newest call first, because it has the most time left
  // (client/tools/load/worker.h).
  while (!backlog_.empty()) {
    const std::size_t call = backlog_.back();
    if (calls_[call].state == State::kWaiting && !Start(call)) return;
    backlog_.pop_back();
  }
}

void Offer::Expire() {
  for (; oldest_ < calls_.size(); ++oldest_) {
    Call& call = calls_[oldest_];
    if (call.state == State::kEnded) continue;
    if (call.due + options_.deadline_nanos > now_) return;
    if (Counts(call)) {
      ++(call.attempts > 0 ? outcomes_.expired : outcomes_.dropped);
    }
    GiveUp(&call);
  }
}

void Offer::CancelSome() {
  while (!to_cancel_.empty()) {
    Call& call = calls_[to_cancel_.front()];
    if (call.state == State::kOpen) {
      if (call.due + options_.cancel_nanos > now_) return;
      if (Counts(call)) ++outcomes_.cancelled;
      GiveUp(&call);
    }
    to_cancel_.pop_front();
  }
}

void Offer::Loop() {
  const std::int64_t patience = options_.deadline_nanos + 200'000'000;
  for (now_ = Now(); now_ < end_ + patience; now_ = Now()) {
    AddDue();
    Expire();
    CancelSome();
    Send();
    const bool more = Exchange();
    if (now_ >= end_ && oldest_ == calls_.size()) return;
    if (!more) Wait();
  }
}

absl::Status Offer::Run() {
  // Lets sleeps end on time: by default, Linux may end them 50 us late.
  prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
  const absl::Status connected = Connect();
  if (!connected.ok()) return connected;
  Settle();
  const double calls = options_.rate * (options_.warm_up + options_.seconds);
  calls_.reserve(static_cast<std::size_t>(std::min(calls, 1e7)) + 1);
  begin_ = Now();
  measured_ = begin_ + static_cast<std::int64_t>(options_.warm_up * 1e9);
  end_ = measured_ + static_cast<std::int64_t>(options_.seconds * 1e9);
  const double cpu = CpuSeconds();
  Loop();
  outcomes_.cpu_share =
      (CpuSeconds() - cpu) / (1e-9 * static_cast<double>(Now() - begin_));
  for (const auto& connection : connections_) {
    outcomes_.bytes_in += connection->bytes_in();
    outcomes_.bytes_out += connection->bytes_out();
  }
  close(poll_);
  return absl::OkStatus();
}

}  // namespace posenc::offer
