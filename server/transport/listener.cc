#include "server/transport/listener.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "core/base/status_macros.h"

namespace posenc::server {
namespace {

// Limit for the connections that are accepted from one socket before other
// sockets are served, and for the events that are read at a time.
constexpr int kBatch = 64;

// Interval between checks for blocked connections, and the pause in accepting
// after the kernel has run out of memory or descriptors.
constexpr std::chrono::milliseconds kTick{1000}, kPause{10};

// Size of a unix socket's send buffer. TCP's buffers grow by themselves. While
// a write waits for space, gRPC 1.51 reads all sockets on a second thread,
// which costs more than the wait. The kernel limits this size to
// net.core.wmem_max, and then doubles it.
constexpr int kUnixSendBytes = 512 << 10;

// A TCP peer that takes fewer bytes than this in keepalive_timeout counts as
// blocked. This limit is larger than one write of gRPC. A blocked peer does
// harm, because gRPC keeps the memory of whole responses while it has bytes to
// write, even if the calls of these responses have ended.
constexpr std::int64_t kLeastTaken = 2 << 20;

Descriptor Spare() {
  return Descriptor(open("/dev/null", O_RDONLY | O_CLOEXEC));
}

// Returns whether the socket is not full, or its peer has taken bytes since
// `*mark` was set. Over TCP, at least kLeastTaken bytes count, and over a unix
// socket at least one byte. (A full unix socket becomes writable only after its
// peer has read three quarters of it.)
bool Takes(int fd, bool tcp, std::int64_t* mark) {
  pollfd socket = {.fd = fd, .events = POLLOUT, .revents = 0};
  if (poll(&socket, 1, 0) != 0) return true;  // not full, or closed
  if (!tcp) {
    int unread = 0;
    ioctl(fd, SIOCOUTQ, &unread);
    return std::exchange(*mark, unread) != unread;
  }
  tcp_info info = {};
  socklen_t size = sizeof(info);
  getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size);
  const auto taken = static_cast<std::int64_t>(info.tcpi_bytes_acked);
  if (taken - *mark < kLeastTaken) return false;
  *mark = taken;
  return true;
}

// Ends a connection. gRPC then sees the end of the peer's bytes, and the
// listener sees a hang-up.
void ShutDown(const Descriptor& fd) { shutdown(fd.get(), SHUT_RDWR); }

// Makes the kernel end a connection whose peer takes no bytes. gRPC 1.51 does
// not end such a connection or its calls while a write is pending, even if the
// peer does not answer pings.
void SetTcpOptions(int fd, absl::Duration timeout) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  const int milliseconds = static_cast<int>(std::min<std::int64_t>(
      absl::ToInt64Milliseconds(timeout), std::numeric_limits<int>::max()));
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds,
             sizeof(milliseconds));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Listener>> Listener::Bind(
    const std::vector<Address>& addresses, const ConnectionLimits& limits) {
  std::unique_ptr<Listener> listener(new Listener(limits));
  for (const Address& address : addresses) {
    std::string bound;
    RETURN_IF_ERROR(server::Bind(address, &listener->sockets_, &bound));
    listener->addresses_.push_back(std::move(bound));
  }
  if (!listener->epoll_.valid() || !listener->wake_.valid()) {
    return absl::UnavailableError("--listen: no file descriptors left");
  }
  return listener;
}

Listener::Listener(const ConnectionLimits& limits)
    : limits_(limits),
      cap_(limits.max_connections),
      cap_per_host_(limits.max_connections_per_peer),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      spare_(Spare()) {}

Listener::~Listener() { Stop(); }

void Listener::Start(Acceptor plaintext, Acceptor tls) {
  plaintext_ = std::move(plaintext);
  tls_ = std::move(tls);
  Watch(wake_.get(), EPOLLIN);
  for (const ListeningSocket& socket : sockets_) Watch(socket.fd(), EPOLLIN);
  thread_ = std::thread([this] { Run(); });
}

void Listener::Stop() {
  if (!thread_.joinable()) return;
  stop_.store(true);
  eventfd_write(wake_.get(), 1);
  thread_.join();
  sockets_.clear();
}

void Listener::EndConnections() {
  for (const auto& [fd, connection] : connections_) ShutDown(connection.fd);
}

void Listener::EndConnectionOf(absl::string_view text) {
  const std::optional<Peer> peer = Peer::Parse(text);
  if (!peer.has_value()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [fd, connection] : connections_) {
    if (connection.peer != peer || std::exchange(connection.ended, true)) {
      continue;
    }
    Count(Ending::kTooManyCalls);
    ShutDown(connection.fd);
  }
}

ConnectionCounts Listener::counts() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  ConnectionCounts counts;
  counts.open = static_cast<std::int64_t>(connections_.size());
  std::copy(ended_.begin(), ended_.end(), counts.ended.begin());
  return counts;
}

void Listener::Run() {
  epoll_event events[kBatch];
  while (!stop_.load()) {
    const int count = epoll_wait(epoll_.get(), events, kBatch,
                                 static_cast<int>(kTick.count()));
    for (int i = 0; i < count; ++i) OnEvent(events[i].data.fd);
    EndBlocked();
  }
}

bool Listener::Watch(int fd, std::uint32_t events) {
  epoll_event event = {.events = events, .data = {.fd = fd}};
  return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void Listener::OnEvent(int fd) {
  for (const ListeningSocket& socket : sockets_) {
    if (socket.fd() != fd) continue;
    for (int i = 0; i < kBatch && AcceptOne(socket); ++i) continue;
    return;
  }
  // A connection's duplicate has only one event: the hang-up.
  Forget(fd);
}

// Returns false if no connection can be accepted now.
bool Listener::AcceptOne(const ListeningSocket& socket) {
  sockaddr_storage name = {};
  socklen_t size = sizeof(name);
  Descriptor fd(accept4(socket.fd(), reinterpret_cast<sockaddr*>(&name), &size,
                        SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (fd.valid()) {
    Admit(std::move(fd), socket,
          socket.is_unix() ? std::nullopt : Peer::Of(name));
    return true;
  }
  switch (errno) {
    case EAGAIN:
      return false;
    case EMFILE:
    case ENFILE:
      if (RefuseOne(socket)) return true;
      [[fallthrough]];
    case ENOBUFS:
    case ENOMEM:
      // Pauses, because the connection stays in the kernel's queue, and would
      // wake this thread again at once.
      std::this_thread::sleep_for(kPause);
      return false;
    default:
      return true;  // this connection is already gone
  }
}

// Accepts and closes a connection. Returns false if no descriptor is left.
bool Listener::RefuseOne(const ListeningSocket& socket) {
  spare_.Close();
  const bool accepted =
      Descriptor(accept4(socket.fd(), nullptr, nullptr, SOCK_CLOEXEC)).valid();
  if (accepted) Count(Ending::kNoDescriptor);
  spare_ = Spare();
  return accepted;
}

bool Listener::AtCap(const std::optional<Peer>& peer) const {
  if (static_cast<std::int64_t>(connections_.size()) >= cap_.load()) {
    return true;
  }
  if (!peer.has_value()) return false;
  const auto count = by_host_.find(peer->Host());
  return count != by_host_.end() && count->second >= cap_per_host_.load();
}

void Listener::Admit(Descriptor fd, const ListeningSocket& socket,
                     const std::optional<Peer>& peer) {
  if (AtCap(peer)) return Count(Ending::kAtCap);
  Descriptor duplicate(fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!duplicate.valid()) return Count(Ending::kNoDescriptor);
  if (socket.is_unix()) {
    setsockopt(fd.get(), SOL_SOCKET, SO_SNDBUF, &kUnixSendBytes,
               sizeof(kUnixSendBytes));
  } else {
    SetTcpOptions(fd.get(), limits_.keepalive_timeout);
  }
  // epoll reports EPOLLHUP and EPOLLERR without a request for events.
  if (!Watch(duplicate.get(), 0)) return;
  if (peer.has_value()) ++by_host_[peer->Host()];
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const int key = duplicate.get();
    connections_.emplace(key, Connection{std::move(duplicate), peer});
  }

  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters
      parameters;
  parameters.listener_fd = socket.fd();
  parameters.fd = fd.Release();
  const bool speaks_tls = tls_ != nullptr && !socket.is_unix();
  (speaks_tls ? tls_ : plaintext_)->HandleNewConnection(&parameters);
}

void Listener::Forget(int fd) {
  const auto found = connections_.find(fd);
  if (found == connections_.end()) return;
  if (found->second.peer.has_value()) {
    const auto count = by_host_.find(found->second.peer->Host());
    if (--count->second == 0) by_host_.erase(count);
  }
  // Removes the event, which would otherwise stay while gRPC has the socket
  // open.
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  const std::lock_guard<std::mutex> lock(mutex_);
  connections_.erase(found);
}

// Ends connections whose peers do not read. TCP peers are checked only while
// memory is short, because the kernel ends TCP connections whose peers read
// nothing (TCP_USER_TIMEOUT). Peers that read a few bytes do no harm while
// there is enough memory.
void Listener::EndBlocked() {
  const auto now = std::chrono::steady_clock::now();
  if (now - checked_ < kTick) return;
  checked_ = now;
  const bool needed = memory_is_short_ && memory_is_short_();
  for (auto& [fd, connection] : connections_) {
    const bool tcp = connection.peer.has_value();
    if ((tcp && !needed) || Takes(fd, tcp, &connection.mark)) {
      connection.moved = now;
    } else if (now - connection.moved >=
               absl::ToChronoNanoseconds(limits_.keepalive_timeout)) {
      connection.moved = now;
      Count(Ending::kNotReading);
      ShutDown(connection.fd);
    }
  }
}

}  // namespace posenc::server
