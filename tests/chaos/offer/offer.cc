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
    epoll_ctl(poll_, EPOLL_CTL_ADD, (*connection)->fd(), &event);
    connections_.push_back(*std::move(connection));
  }
  return absl::OkStatus();
}

void Offer::Exchange() {
  for (const auto& connection : connections_) {
    if (!connection->alive()) continue;
    connection->Read();
    connection->Write();
  }
}

void Offer::Settle() {
  const std::int64_t until = Now() + 300'000'000;
  while (Now() < until) {
    Exchange();
    Wait(std::min(until, Now() + 2'000'000));
  }
}

void Offer::Wait(std::int64_t until) {
  const std::int64_t nanos = until - Now();
  // Sleeping and waking costs about as much.
  if (nanos < 20'000) return;
  const timespec time{nanos / 1'000'000'000, nanos % 1'000'000'000};
  epoll_event events[64];
  epoll_pwait2(poll_, events, 64, &time, nullptr);
}

void Offer::GiveUp(Call* call) {
  if (call->state == State::kOpen && connections_[call->connection]->alive()) {
    connections_[call->connection]->Cancel(call->stream);
  }
  call->state = State::kEnded;
}

void Offer::Ended(std::size_t index, int status) {
  Call& call = calls_[index];
  call.state = State::kEnded;
  const std::int64_t now = Now();
  const bool refused = status == kResourceExhausted || status == kUnavailable;
  if (refused && call.attempts <= options_.retries) {
    const double wait = 10e6 * static_cast<double>(1 << (call.attempts - 1)) *
                        std::uniform_real_distribution<>(0.5, 1.5)(random_);
    const auto at = now + static_cast<std::int64_t>(wait);
    if (at < call.due + options_.deadline_nanos) {
      call.state = State::kWaiting;
      retries_.push({at, index});
      if (Counts(call)) ++outcomes_.retried;
      return;
    }
  }
  if (!Counts(call)) return;
  const std::int64_t latency = now - call.due;
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

void Offer::AddDue(std::int64_t now) {
  const double gap = 1e9 / options_.rate;
  // Not all at once if this machine stood still: answers must be read too.
  for (int i = 0; i < 256; ++i) {
    const std::int64_t due =
        begin_ + static_cast<std::int64_t>(gap * static_cast<double>(offered_));
    if (due > now || due >= end_) return;
    ++offered_;
    calls_.push_back({due});
    if (Counts(calls_.back())) ++outcomes_.due;
    backlog_.push_back(calls_.size() - 1);
  }
}

bool Offer::Start(std::size_t index, std::int64_t now) {
  for (std::size_t i = 0; i < connections_.size(); ++i) {
    const std::size_t which = turn_++ % connections_.size();
    if (!connections_[which]->HasRoom()) continue;
    Call& call = calls_[index];
    call.connection = static_cast<std::uint32_t>(which);
    call.state = State::kOpen;
    if (++call.attempts == 1 && Counts(call)) {
      outcomes_.send_delay.Record(now - call.due);
    }
    call.stream = connections_[which]->Start(
        index, (call.due + options_.deadline_nanos - now) / 1000);
    if (options_.cancel_nanos > 0) to_cancel_.push_back(index);
    return true;
  }
  return false;
}

void Offer::Send(std::int64_t now) {
  while (!retries_.empty() && retries_.top().at <= now) {
    const std::size_t call = retries_.top().call;
    retries_.pop();
    if (calls_[call].state == State::kWaiting) backlog_.push_back(call);
  }
  // The newest first: it has the most time left (client/load/worker.h).
  while (!backlog_.empty()) {
    const std::size_t call = backlog_.back();
    if (calls_[call].state == State::kWaiting && !Start(call, now)) return;
    backlog_.pop_back();
  }
}

void Offer::Expire(std::int64_t now) {
  for (; oldest_ < calls_.size(); ++oldest_) {
    Call& call = calls_[oldest_];
    if (call.state == State::kEnded) continue;
    if (call.due + options_.deadline_nanos > now) return;
    if (Counts(call)) {
      ++(call.attempts > 0 ? outcomes_.expired : outcomes_.dropped);
    }
    GiveUp(&call);
  }
}

void Offer::CancelSome(std::int64_t now) {
  while (!to_cancel_.empty()) {
    Call& call = calls_[to_cancel_.front()];
    if (call.state == State::kOpen) {
      if (call.due + options_.cancel_nanos > now) return;
      if (Counts(call)) ++outcomes_.cancelled;
      GiveUp(&call);
    }
    to_cancel_.pop_front();
  }
}

void Offer::Loop() {
  const std::int64_t patience = options_.deadline_nanos + 200'000'000;
  for (std::int64_t now = Now(); now < end_ + patience; now = Now()) {
    AddDue(now);
    Expire(now);
    CancelSome(now);
    Send(now);
    Exchange();
    if (now >= end_ && oldest_ == calls_.size()) return;
    const std::int64_t next =
        begin_ + static_cast<std::int64_t>(1e9 / options_.rate *
                                           static_cast<double>(offered_));
    Wait(std::min(next < end_ ? next : now + 1'000'000, now + 1'000'000));
  }
}

absl::Status Offer::Run() {
  // By default Linux lets sleeps end 50 us late.
  prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
  const absl::Status connected = Connect();
  if (!connected.ok()) return connected;
  Settle();
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
