#include "server/listen/connections.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <iterator>
#include <utility>

#include "server/base/descriptor.h"

namespace posenc::server {
namespace {

// While all places are taken, the table is not swept more often than this: a
// sweep of 4096 connections takes about 2 ms.
constexpr auto kSweepPause = std::chrono::milliseconds(20);

}  // namespace

Connections::Connections(std::int64_t cap, std::int64_t cap_per_host)
    : cap_(cap), cap_per_host_(cap_per_host) {}

void Connections::SetCaps(std::int64_t cap, std::int64_t cap_per_host) {
  cap_.store(cap);
  cap_per_host_.store(cap_per_host);
}

bool Connections::Full() const {
  return static_cast<std::int64_t>(table_.size()) >= cap_.load();
}

bool Connections::HostFull(const std::optional<Peer>& peer) const {
  if (!peer.has_value()) return false;
  const auto count = by_host_.find(peer->Host());
  return count != by_host_.end() && count->second >= cap_per_host_.load();
}

bool Connections::MakeRoom(const std::optional<Peer>& peer, SteadyTime now,
                           const std::function<bool(const Connection&)>& end) {
  if (!Full() && !HostFull(peer)) return true;
  if (now - swept_ >= kSweepPause) Sweep(now);
  for (auto at = table_.begin(); at != table_.end();) {
    const bool host_full = HostFull(peer);
    if (!host_full && !Full()) return true;
    const Connection& old = at->second;
    // If the newcomer's host has its share, only its own connections make room.
    const bool helps = !host_full || (old.peer.has_value() &&
                                      old.peer->Host() == peer->Host());
    at = helps && !old.HasCalled() && end(old) ? Erase(at) : std::next(at);
  }
  return !Full() && !HostFull(peer);
}

Connection* Connections::Add(Connection connection) {
  // The number was free, so gRPC has closed whatever had it.
  Forget(connection.fd);
  if (connection.peer.has_value()) {
    ++by_host_[connection.peer->Host()];
    connection.mark = callers_.Add(*connection.peer);
  }
  const int fd = connection.fd;
  const auto at = table_.emplace(next_++, std::move(connection)).first;
  by_fd_[fd] = at;
  open_.store(static_cast<std::int64_t>(table_.size()));
  return &at->second;
}

Connection* Connections::Find(int fd) {
  const auto found = by_fd_.find(fd);
  return found == by_fd_.end() ? nullptr : &found->second->second;
}

void Connections::Forget(int fd) {
  const auto found = by_fd_.find(fd);
  if (found != by_fd_.end()) Erase(found->second);
}

Connections::Table::iterator Connections::Erase(Table::iterator at) {
  const Connection& connection = at->second;
  by_fd_.erase(connection.fd);
  if (connection.peer.has_value()) {
    const auto count = by_host_.find(connection.peer->Host());
    if (--count->second == 0) by_host_.erase(count);
    callers_.Remove(*connection.peer, connection.mark);
  }
  const auto next = table_.erase(at);
  open_.store(static_cast<std::int64_t>(table_.size()));
  return next;
}

void Connections::Sweep(SteadyTime now) {
  swept_ = now;
  Visit([](Connection& connection) {
    return connection.handed_over && !IsOpen(connection);
  });
}

void Connections::Visit(const std::function<bool(Connection&)>& visit) {
  for (auto at = table_.begin(); at != table_.end();) {
    at = visit(at->second) ? Erase(at) : std::next(at);
  }
}

namespace {

bool IsSocket(int fd, ino_t inode) {
  struct stat now;
  return fstat(fd, &now) == 0 && S_ISSOCK(now.st_mode) && now.st_ino == inode;
}

}  // namespace

bool IsOpen(const Connection& connection) {
  return IsSocket(connection.fd, connection.inode);
}

std::int64_t BlockedBytes(int fd) {
  pollfd socket = {.fd = fd, .events = POLLOUT, .revents = 0};
  if (poll(&socket, 1, 0) != 0) return 0;  // takes more, or is gone
  int bytes = 0;
  return ioctl(fd, SIOCOUTQ, &bytes) == 0 ? bytes : 0;
}

bool CutHandedOver(const Connection& connection) {
  // The duplicate keeps the socket from being closed, and its number from being
  // used again, between looking and cutting.
  const Descriptor duplicate(fcntl(connection.fd, F_DUPFD_CLOEXEC, 0));
  if (!duplicate.valid()) return errno == EBADF;
  if (IsSocket(duplicate.get(), connection.inode)) {
    shutdown(duplicate.get(), SHUT_RDWR);
  }
  return true;
}

}  // namespace posenc::server
