#include "server/admin/admin_server.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <iterator>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/admin/listen_socket.h"
#include "server/budget/machine.h"

namespace posenc::server {
namespace {

// How long accepting rests if no descriptor is left, and all if there is no
// memory.
constexpr absl::Duration kPause = absl::Milliseconds(100);
// Accepted at one go; those that wait longer come next.
constexpr int kMaxAccepts = 16;

// Calls at a time, whatever the machine: a browser keeps six connections.
constexpr int kFewestCalls = 6;
constexpr int kMostCalls = 32;

}  // namespace

int AdminServer::MostCalls() {
  return std::clamp(2 * UsableCpus(), kFewestCalls, kMostCalls);
}

absl::StatusOr<std::unique_ptr<AdminServer>> AdminServer::Start(
    const AdminOptions& options, AdminPages pages) {
  absl::StatusOr<ListenSocket> socket = ListenForAdmin(options.address);
  if (!socket.ok()) return socket.status();
  std::vector<std::string> names = options.hosts;
  const std::shared_ptr<grpc::Channel> explorer = pages.explorer;
  names.push_back(socket->host);
  // Its constructor is private.
  std::unique_ptr<AdminServer> server(
      new AdminServer(std::move(pages), std::move(names), options.timeout));
  server->listener_ = socket->fd;
  server->address_ = socket->address;
  server->unix_path_ = socket->unix_path;
  server->wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (server->wake_ < 0) {
    return absl::UnavailableError("--admin: no file descriptor is left");
  }
  server->TakeSpare();
  if (explorer != nullptr) {
    server->workers_ = std::make_unique<CallWorkers>(
        explorer, MostCalls(), [raw = server.get()] { raw->Wake(); });
  }
  server->thread_ = std::thread([raw = server.get()] { raw->Run(); });
  return server;
}

AdminServer::~AdminServer() {
  stop_.store(true);
  if (thread_.joinable()) {
    Wake();
    thread_.join();
  }
  workers_ = nullptr;  // they write to wake_
  for (const int fd : {listener_, wake_, spare_}) {
    if (fd >= 0) close(fd);
  }
  if (!unix_path_.empty()) unlink(unix_path_.c_str());
}

void AdminServer::Wake() {
  const std::uint64_t one = 1;
  // An eventfd takes eight bytes at any time.
  (void)!write(wake_, &one, sizeof(one));
}

Reaction AdminServer::React(absl::string_view head) {
  Reaction reaction = http_.React(head);
  if (!reaction.call) return reaction;
  const auto calls = std::count_if(
      connections_.begin(), connections_.end(),
      [](const auto& each) { return each.calling() || each.reading_body(); });
  if (calls < MostCalls()) return reaction;
  // A peer that sends its body slowly gives way to this one.
  const auto slow = std::find_if(
      connections_.begin(), connections_.end(),
      [](const AdminConnection& each) { return each.reading_body(); });
  if (slow != connections_.end()) {
    slow->GiveUp();
    return reaction;
  }
  Reaction refused;
  refused.response = JsonResponse(JsonError(
      429, grpc::StatusCode::RESOURCE_EXHAUSTED,
      absl::StrCat("the explorer makes ", MostCalls(),
                   " calls at a time; try again when one has ended")));
  return refused;
}

std::shared_ptr<WaitingCall> AdminServer::Start(JsonCall call,
                                                std::string body) {
  return workers_->Start(std::move(call), std::move(body));
}

void AdminServer::StopCalls() {
  if (workers_ != nullptr) workers_->Stop();
}

void AdminServer::TakeSpare() {
  if (spare_ < 0) spare_ = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

void AdminServer::Run() {
  pthread_setname_np(pthread_self(), "admin");
  while (!stop_.load()) {
    try {
      Poll();
      AdvanceAll();
      Accept(absl::Now());
    } catch (const std::bad_alloc&) {
      absl::SleepFor(kPause);
    }
  }
  connections_.clear();
}

void AdminServer::Poll() {
  std::vector<pollfd> fds;
  fds.push_back({wake_, POLLIN, 0});
  absl::Time until = absl::InfiniteFuture();
  if (absl::Now() >= accept_again_) {
    fds.push_back({listener_, POLLIN, 0});
  } else {
    until = accept_again_;
  }
  for (const AdminConnection& connection : connections_) {
    fds.push_back({connection.fd(), connection.events(), 0});
    until = std::min(until, connection.deadline());
  }
  int timeout_ms = -1;
  if (until != absl::InfiniteFuture()) {
    const std::int64_t left = absl::ToInt64Milliseconds(until - absl::Now());
    timeout_ms = static_cast<int>(std::clamp<std::int64_t>(left + 1, 0, 10000));
  }
  poll(fds.data(), fds.size(), timeout_ms);
  std::uint64_t woken = 0;
  (void)!read(wake_, &woken, sizeof(woken));
}

// Asks all of them, at most kMaxConnections, instead of remembering which were
// ready: a read that would block costs less than a microsecond.
void AdminServer::AdvanceAll() {
  const absl::Time now = absl::Now();
  for (auto it = connections_.begin(); it != connections_.end();) {
    bool alive = false;
    try {
      alive = it->Advance(this, now);
    } catch (...) {
      // No memory for the request or its response: this peer goes.
    }
    if (alive && now >= it->deadline()) {
      it->Reset();
      alive = false;
    }
    it = alive ? std::next(it) : connections_.erase(it);
  }
  TakeSpare();
}

bool AdminServer::CloseOne() {
  if (connections_.empty()) return false;
  const auto silent = std::find_if(
      connections_.begin(), connections_.end(),
      [](const AdminConnection& each) { return !each.has_request(); });
  const auto gone =
      silent == connections_.end() ? connections_.begin() : silent;
  gone->Reset();
  connections_.erase(gone);
  return true;
}

void AdminServer::Accept(absl::Time now) {
  for (int i = 0; i < kMaxAccepts && now >= accept_again_; ++i) {
    // accept4() says that no descriptor is left even if nobody waits, and then
    // no connection must be closed.
    pollfd waiting = {listener_, POLLIN, 0};
    if (poll(&waiting, 1, 0) <= 0) return;
    if (connections_.size() >= kMaxConnections) CloseOne();
    const int fd =
        accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      try {
        connections_.emplace_back(fd, now, timeout_);
      } catch (const std::bad_alloc&) {
        close(fd);
      }
      continue;
    }
    if (errno == ECONNABORTED || errno == EINTR) continue;
    if (errno != EMFILE && errno != ENFILE) return;
    if (spare_ >= 0) {
      close(std::exchange(spare_, -1));
    } else if (!CloseOne()) {
      accept_again_ = now + kPause;
    }
  }
}

}  // namespace posenc::server
