#include "server/listen/listener.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

namespace posenc::server {
namespace {

// Connections accepted from one socket before others have their turn.
constexpr int kAcceptBatch = 64;
constexpr int kEventBatch = 64;

constexpr auto kTick = std::chrono::seconds(1);

// What the kernel takes of a unix socket's answers at once; TCP's buffers grow
// by themselves. While a write waits for room, gRPC 1.51 has a second thread
// read all sockets, which costs more than the waiting. The kernel doubles it,
// and allows what net.core.wmem_max says.
constexpr int kUnixSendBytes = 512 << 10;

Descriptor Spare() {
  return Descriptor(open("/dev/null", O_RDONLY | O_CLOEXEC));
}

// What the peer of a unix socket has not read yet, as the kernel counts it, if
// so much waits that the socket takes no more; else 0. While it stays the same,
// the peer reads nothing: the socket takes more only once three quarters are
// read.
std::int64_t BlockedBytes(int fd) {
  pollfd socket = {.fd = fd, .events = POLLOUT, .revents = 0};
  if (poll(&socket, 1, 0) != 0) return 0;  // takes more, or is gone
  int bytes = 0;
  return ioctl(fd, SIOCOUTQ, &bytes) == 0 ? bytes : 0;
}

// gRPC sees the peer leave, and the listener the hang-up.
void ShutDown(const Descriptor& fd) { shutdown(fd.get(), SHUT_RDWR); }

// A peer who takes nothing while the server writes answers no ping either; but
// gRPC 1.51 ends neither the connection nor its calls until a write that has
// begun is done. So the kernel ends it.
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
    const absl::Status status =
        server::Bind(address, &listener->sockets_, &bound);
    if (!status.ok()) return status;
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
  epoll_event event = {.events = EPOLLIN, .data = {.fd = wake_.get()}};
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event);
  for (const ListeningSocket& socket : sockets_) {
    event = {.events = EPOLLIN, .data = {.fd = socket.fd()}};
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket.fd(), &event);
  }
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

void Listener::EndConnectionOf(absl::string_view peer) {
  const std::optional<Peer> parsed = Peer::Parse(peer);
  if (!parsed.has_value()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  to_end_.push_back(*parsed);
  eventfd_write(wake_.get(), 1);
}

ConnectionCounts Listener::counts() const {
  ConnectionCounts counts;
  counts.open = open_.load();
  counts.accepted = accepted_.load();
  std::copy(ended_.begin(), ended_.end(), counts.ended.begin());
  return counts;
}

void Listener::Run() {
  const int tick_ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(kTick).count();
  epoll_event events[kEventBatch];
  while (!stop_.load()) {
    const int count = epoll_wait(epoll_.get(), events, kEventBatch, tick_ms);
    now_ = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i) OnEvent(events[i].data.fd);
    if (now_ - ticked_ >= kTick) Tick();
  }
}

void Listener::OnEvent(int fd) {
  if (fd == wake_.get()) {
    eventfd_t ignored;
    eventfd_read(fd, &ignored);
    return EndNamed();
  }
  for (const ListeningSocket& socket : sockets_) {
    if (socket.fd() == fd) return AcceptFrom(socket);
  }
  // Nothing else is asked of a connection's duplicate: it is hung up.
  Forget(fd);
}

void Listener::AcceptFrom(const ListeningSocket& socket) {
  for (int i = 0; i < kAcceptBatch; ++i) {
    if (!AcceptOne(socket)) return;
  }
}

// False if there is nobody to accept now.
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
      RefuseOne(socket);
      return !paused_;
    case ENOBUFS:
    case ENOMEM:
      SetPaused(true);
      return false;
    default:
      return true;  // errors of that one connection, which is gone
  }
}

// Left alone, the newcomer would stay in the kernel's queue and wake this
// thread again and again.
void Listener::RefuseOne(const ListeningSocket& socket) {
  spare_.Close();
  Descriptor newcomer(
      accept4(socket.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (newcomer.valid()) Count(Ending::kNoDescriptor);
  newcomer.Close();
  spare_ = Spare();
  if (!spare_.valid()) SetPaused(true);
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
  ++accepted_;
  if (AtCap(peer)) return Count(Ending::kAtCap);
  Descriptor duplicate(fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!duplicate.valid()) return Count(Ending::kNoDescriptor);
  if (socket.is_unix()) {
    setsockopt(fd.get(), SOL_SOCKET, SO_SNDBUF, &kUnixSendBytes,
               sizeof(kUnixSendBytes));
  } else {
    SetTcpOptions(fd.get(), limits_.keepalive_timeout);
  }
  // No events but EPOLLHUP and EPOLLERR, which always are.
  epoll_event event = {.events = 0, .data = {.fd = duplicate.get()}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, duplicate.get(), &event) != 0) {
    return;
  }
  if (peer.has_value()) ++by_host_[peer->Host()];
  const int key = duplicate.get();
  Connection& connection = connections_[key];
  connection.fd = std::move(duplicate);
  connection.peer = peer;
  open_.store(static_cast<std::int64_t>(connections_.size()));

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
  // gRPC may still have the socket open, and with it this event.
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  connections_.erase(found);
  open_.store(static_cast<std::int64_t>(connections_.size()));
}

void Listener::Tick() {
  ticked_ = now_;
  if (paused_ && !spare_.valid()) spare_ = Spare();
  if (paused_ && spare_.valid()) SetPaused(false);
  EndBlocked();
}

// TCP_USER_TIMEOUT does this over TCP.
void Listener::EndBlocked() {
  for (auto& [fd, connection] : connections_) {
    if (connection.peer.has_value()) continue;
    const std::int64_t blocked = BlockedBytes(fd);
    if (blocked == 0 || blocked != connection.blocked) {
      connection.blocked = blocked;
      connection.blocked_since = now_;
    } else if (now_ - connection.blocked_since >=
               absl::ToChronoNanoseconds(limits_.keepalive_timeout)) {
      connection.blocked = 0;
      Count(Ending::kNotReading);
      ShutDown(connection.fd);
    }
  }
}

void Listener::EndNamed() {
  std::vector<Peer> peers;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    peers.swap(to_end_);
  }
  if (peers.empty()) return;
  for (const auto& [fd, connection] : connections_) {
    if (connection.peer.has_value() &&
        std::find(peers.begin(), peers.end(), *connection.peer) !=
            peers.end()) {
      Count(Ending::kTooManyCalls);
      ShutDown(connection.fd);
    }
  }
}

void Listener::SetPaused(bool paused) {
  if (paused_ == paused) return;
  paused_ = paused;
  for (const ListeningSocket& socket : sockets_) {
    epoll_event event = {.events = paused ? 0u : EPOLLIN,
                         .data = {.fd = socket.fd()}};
    epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, socket.fd(), &event);
  }
}

}  // namespace posenc::server
