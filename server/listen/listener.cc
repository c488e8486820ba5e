#include "server/listen/listener.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

#include "server/listen/greeting.h"

namespace posenc::server {
namespace {

// Connections accepted from one socket before others have their turn.
constexpr int kAcceptBatch = 64;
constexpr int kEventBatch = 64;

// How often limits in time are looked at: an eighth of the shortest, within
// these bounds.
constexpr int kShortestTickMs = 2;
constexpr int kTickMs = 250;
constexpr auto kSweepInterval = std::chrono::seconds(1);

// TLS begins with a record of this type, a handshake (RFC 8446, section 5.1).
constexpr char kTlsHandshake = 22;

// RFC 9113, section 6.8: no stream was processed, no error. A call that crosses
// it on its way is then tried again by the client's library.
constexpr std::array<unsigned char, 17> kGoAway = {0, 0, 8, 7, 0, 0, 0, 0, 0,
                                                   0, 0, 0, 0, 0, 0, 0, 0};

void Send(int fd, const void* frame, std::size_t size) {
  // Next to nothing was sent before, so there is room; a peer that is gone is
  // found out elsewhere.
  send(fd, frame, size, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// Lets a client that idles go without a reset, which unread bytes would cause.
void SayGoodbye(int fd) {
  char bytes[kMostOpeningBytes];
  recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
  Send(fd, kGoAway.data(), kGoAway.size());
}

Descriptor Spare() {
  return Descriptor(open("/dev/null", O_RDONLY | O_CLOEXEC));
}

std::chrono::nanoseconds Steady(absl::Duration duration) {
  return absl::ToChronoNanoseconds(duration);
}

// What the kernel takes of a unix socket's answers at once; TCP's buffers grow
// by themselves. While a write waits for room, gRPC 1.51 has a second thread
// read all sockets, which costs more than the waiting. The kernel doubles it,
// and allows what net.core.wmem_max says.
constexpr int kUnixSendBytes = 512 << 10;

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
      connections_(limits.max_connections, limits.max_connections_per_peer),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      spare_(Spare()) {}

Listener::~Listener() { Stop(); }

absl::Status Listener::Start(Acceptor plaintext, Acceptor tls) {
  plaintext_ = std::move(plaintext);
  tls_ = std::move(tls);
  auto greeting = AskForSettings(plaintext_.get());
  if (!greeting.ok()) return greeting.status();
  greeting_ = *std::move(greeting);
  epoll_event event = {.events = EPOLLIN, .data = {.fd = wake_.get()}};
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event);
  for (const ListeningSocket& socket : sockets_) {
    event = {.events = EPOLLIN, .data = {.fd = socket.fd()}};
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket.fd(), &event);
  }
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

void Listener::Stop() {
  if (!thread_.joinable()) return;
  stop_.store(true);
  eventfd_write(wake_.get(), 1);
  thread_.join();
}

void Listener::CutConnections() {
  spare_.Close();  // cutting takes a descriptor
  connections_.Visit(CutHandedOver);
}

ConnectionCounts Listener::counts() const {
  ConnectionCounts counts;
  counts.open = connections_.open();
  counts.accepted = accepted_.load();
  std::copy(ended_.begin(), ended_.end(), counts.ended.begin());
  return counts;
}

void Listener::Run() {
  epoll_event events[kEventBatch];
  while (!stop_.load()) {
    const int count = epoll_wait(epoll_.get(), events, kEventBatch, TickMs());
    now_ = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i)
      OnEvent(events[i].data.fd, events[i].events);
    if (now_ - ticked_ >= std::chrono::milliseconds(TickMs())) EnforceLimits();
  }
  CloseSockets();
}

void Listener::OnEvent(int fd, std::uint32_t events) {
  if (fd == wake_.get()) return;
  for (const ListeningSocket& socket : sockets_) {
    if (socket.fd() == fd) return AcceptFrom(socket);
  }
  // An event may be of a connection that was ended in this batch, and its
  // number may be another's by now: whoever has it is looked at once more.
  Connection* const connection = connections_.Find(fd);
  if (connection == nullptr || connection->handed_over) return;
  if ((events & (EPOLLERR | EPOLLHUP)) != 0) return Close(fd);
  Look(connection);
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

void Listener::Admit(Descriptor fd, const ListeningSocket& socket,
                     const std::optional<Peer>& peer) {
  ++accepted_;
  if (!connections_.MakeRoom(peer, now_, [this](const Connection& old) {
        return End(old, Ending::kForRoom);
      })) {
    Count(Ending::kAtCap);
    return;
  }
  struct stat file;
  if (fstat(fd.get(), &file) != 0) return;
  if (socket.is_unix()) {
    setsockopt(fd.get(), SOL_SOCKET, SO_SNDBUF, &kUnixSendBytes,
               sizeof(kUnixSendBytes));
  } else {
    const int on = 1;
    setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    // A peer who takes nothing while the server writes answers no ping either;
    // but gRPC 1.51 ends neither the connection nor its calls until a write
    // that has begun is done. So the kernel ends it.
    const int timeout = static_cast<int>(std::min<std::int64_t>(
        absl::ToInt64Milliseconds(limits_.keepalive_timeout),
        std::numeric_limits<int>::max()));
    setsockopt(fd.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout,
               sizeof(timeout));
  }
  // Edge-triggered: bytes that are only looked at would be an event for ever.
  epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET,
                       .data = {.fd = fd.get()}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd.get(), &event) != 0) return;
  Connection connection;
  connection.fd = fd.Release();
  connection.inode = file.st_ino;
  connection.peer = peer;
  connection.accepted = now_;
  connection.tls = tls_ != nullptr && !socket.is_unix();
  connections_.Add(std::move(connection));
}

// Finds out how far the peer has got.
void Listener::Look(Connection* connection) {
  char bytes[kMostOpeningBytes];
  const ssize_t size =
      recv(connection->fd, bytes, sizeof(bytes), MSG_PEEK | MSG_DONTWAIT);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size <= 0) return Close(connection->fd);
  if (connection->tls) {
    connection->opening =
        bytes[0] == kTlsHandshake ? Opening::kCall : Opening::kForeign;
  } else {
    const Opening before =
        std::exchange(connection->opening,
                      ReadOpening({bytes, static_cast<std::size_t>(size)}));
    if (before != Opening::kPartOfCall) connection->part_of_call_since = now_;
  }
  switch (connection->opening) {
    case Opening::kForeign:
      Count(Ending::kForeign);
      return Close(connection->fd);
    case Opening::kPreface:
      return;
    case Opening::kNoCall:
    case Opening::kPartOfCall:
      return Greet(connection);
    case Opening::kCall:
      return HandOver(connection);
  }
}

void Listener::Greet(Connection* connection) {
  if (std::exchange(connection->greeted, true)) return;
  Send(connection->fd, greeting_.data(), greeting_.size());
}

void Listener::HandOver(Connection* connection) {
  // gRPC has epolls of its own, and closes the descriptor when it likes.
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection->fd, nullptr);
  connection->handed_over = true;
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters
      parameters;
  parameters.listener_fd = sockets_.front().fd();
  parameters.fd = connection->fd;
  (connection->tls ? tls_ : plaintext_)->HandleNewConnection(&parameters);
}

// Of a connection that is not handed over.
void Listener::Close(int fd) {
  close(fd);
  connections_.Forget(fd);
}

void Listener::EnforceLimits() {
  ticked_ = now_;
  if (paused_ && !spare_.valid()) spare_ = Spare();
  if (paused_ && spare_.valid()) SetPaused(false);
  if (now_ - swept_ >= kSweepInterval) {
    swept_ = now_;
    connections_.Sweep(now_);
    CutFrozen();
  }
  connections_.Visit([this](Connection& connection) {
    const std::optional<Ending> over = OverLimit(connection);
    return over.has_value() && End(connection, *over);
  });
}

// A peer who reads may be looked at when as much waits as before, but not every
// second of the timeout.
void Listener::CutFrozen() {
  connections_.Visit([this](Connection& connection) {
    if (connection.peer.has_value() || !connection.handed_over) return false;
    const std::int64_t blocked = BlockedBytes(connection.fd);
    if (blocked == 0 || blocked != connection.blocked) {
      connection.blocked = blocked;
      connection.blocked_since = now_;
      return false;
    }
    return now_ - connection.blocked_since >=
               Steady(limits_.keepalive_timeout) &&
           End(connection, Ending::kNotReading);
  });
}

std::optional<Ending> Listener::OverLimit(const Connection& connection) const {
  const auto past = [this](SteadyTime since, absl::Duration limit) {
    return now_ - since >= Steady(limit);
  };
  if (connection.CallsTooMuch()) return Ending::kTooManyCalls;
  if (connection.HasCalled()) return std::nullopt;
  if (past(connection.accepted, limits_.first_call_timeout)) {
    return Ending::kFirstCallTimeout;
  }
  if (connection.handed_over) return std::nullopt;
  if (connection.opening == Opening::kPreface &&
      past(connection.accepted, limits_.handshake_timeout)) {
    return Ending::kHandshakeTimeout;
  }
  if (connection.opening == Opening::kPartOfCall &&
      past(connection.part_of_call_since, limits_.headers_timeout)) {
    return Ending::kHeadersTimeout;
  }
  return std::nullopt;
}

// False if that takes a descriptor and there is none.
bool Listener::End(const Connection& connection, Ending ending) {
  if (connection.handed_over && !IsOpen(connection)) return true;
  Count(ending);  // before the peer sees it
  if (!connection.handed_over) {
    if (connection.opening == Opening::kNoCall) SayGoodbye(connection.fd);
    close(connection.fd);
    return true;
  }
  if (CutHandedOver(connection)) return true;
  --ended_[static_cast<int>(ending)];
  return false;
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

int Listener::TickMs() const {
  const absl::Duration shortest =
      std::min({limits_.handshake_timeout, limits_.headers_timeout,
                limits_.first_call_timeout});
  return static_cast<int>(std::clamp<std::int64_t>(
      absl::ToInt64Milliseconds(shortest / 8), kShortestTickMs, kTickMs));
}

void Listener::CloseSockets() {
  connections_.Visit([this](Connection& connection) {
    if (connection.handed_over) return false;
    if (connection.greeted) {
      HandOver(&connection);
      return false;
    }
    close(connection.fd);
    return true;
  });
  sockets_.clear();
}

}  // namespace posenc::server
