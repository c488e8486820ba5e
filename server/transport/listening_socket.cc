#include "server/transport/listening_socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "server/transport/peer.h"

namespace posenc::server {
namespace {

// Number of attempts for port 0. The port that the kernel has chosen for one
// address of the host may be in use on another address.
constexpr int kAttempts = 16;

absl::Status CannotBind(const Address& address, absl::string_view why) {
  return absl::UnavailableError(absl::StrCat(
      address.flag, ": cannot listen on ", address.text, ": ", why));
}

// Returns the port of "host:port".
const char* PortOf(const Address& address) {
  return address.text.c_str() + address.text.rfind(':') + 1;
}

// Opens a socket that listens at `name`. If this fails, the descriptor is not
// valid, and errno is set.
Descriptor OpenTcp(const addrinfo& name) {
  Descriptor fd(
      socket(name.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return fd;
  // Allows a port whose old connections are in TIME_WAIT. A port on which
  // another socket listens is still an error, because only SO_REUSEPORT would
  // allow it.
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (name.ai_family == AF_INET6) {
    setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
  }
  if (bind(fd.get(), name.ai_addr, name.ai_addrlen) != 0 ||
      listen(fd.get(), SOMAXCONN) != 0) {
    const int error = errno;
    fd.Close();
    errno = error;
  }
  return fd;
}

int PortOf(const Descriptor& fd) {
  sockaddr_storage name = {};
  socklen_t size = sizeof(name);
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&name), &size);
  return Peer::Of(name)->port;
}

// Binds all addresses to one port. Returns 0 or the value of errno. In
// containers, some addresses or a whole address family may not exist. This is
// an error only if no address can be bound.
int BindAll(const addrinfo* first, std::vector<Descriptor>* fds) {
  int port = 0, absent = 0;
  for (const addrinfo* next = first; next != nullptr; next = next->ai_next) {
    // The cast is safe for IPv6, too, because sin6_port has the same offset.
    auto* const name = reinterpret_cast<sockaddr_in*>(next->ai_addr);
    if (port != 0) name->sin_port = htons(static_cast<std::uint16_t>(port));
    Descriptor fd = OpenTcp(*next);
    if (fd.valid()) {
      port = PortOf(fd);
      fds->push_back(std::move(fd));
    } else if (errno == EADDRNOTAVAIL || errno == EAFNOSUPPORT) {
      absent = errno;
    } else {
      return errno;
    }
  }
  return fds->empty() ? absent : 0;
}

absl::Status BindTcp(const Address& address,
                     std::vector<ListeningSocket>* sockets,
                     std::string* bound) {
  addrinfo hints = {};
  hints.ai_flags = AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  const bool any = address.host == "0.0.0.0" || address.host == "::";
  const char* const host = any ? nullptr : address.host.c_str();
  std::vector<Descriptor> fds;
  int error = EADDRINUSE;
  const int attempts = std::strcmp(PortOf(address), "0") == 0 ? kAttempts : 1;
  for (int i = 0; i < attempts && error == EADDRINUSE; ++i) {
    fds.clear();
    addrinfo* found = nullptr;
    error = getaddrinfo(host, PortOf(address), &hints, &found);
    if (error != 0) return CannotBind(address, gai_strerror(error));
    error = BindAll(found, &fds);
    freeaddrinfo(found);
  }
  if (error != 0) return CannotBind(address, std::strerror(error));
  *bound = absl::StrCat(address.text.substr(0, address.text.rfind(':') + 1),
                        PortOf(fds.front()));
  for (Descriptor& fd : fds) sockets->emplace_back(std::move(fd));
  return absl::OkStatus();
}

// Lets the group of the socket's file write to it, because clients need this
// permission to connect. Does nothing if the directory does not pass its group
// on to its files (set-group-ID bit). A Kubernetes volume with an fsGroup has
// this bit, and callers may be other users of the group. Ignores a failure.
void ShareWithGroup(const std::string& path) {
  const std::string directory = path.substr(0, path.rfind('/') + 1);
  struct stat found = {}, socket = {};
  if (stat(directory.empty() ? "." : directory.c_str(), &found) != 0 ||
      (found.st_mode & S_ISGID) == 0 || lstat(path.c_str(), &socket) != 0 ||
      !S_ISSOCK(socket.st_mode)) {
    return;
  }
  [[maybe_unused]] const int result =
      fchmodat(AT_FDCWD, path.c_str(), (socket.st_mode & 0777) | S_IWGRP,
               AT_SYMLINK_NOFOLLOW);
}

// Returns UNAVAILABLE if the path has a file that is not a socket, or a socket
// on which a process listens. BindUnix() removes an unused socket.
absl::Status CheckUnixPath(const Address& address) {
  struct stat info;
  if (lstat(address.path.c_str(), &info) != 0) {
    return errno == ENOENT ? absl::OkStatus()
                           : CannotBind(address, std::strerror(errno));
  }
  if (!S_ISSOCK(info.st_mode)) {
    return CannotBind(address, "the file exists and is not a socket");
  }
  sockaddr_un peer = {};
  peer.sun_family = AF_UNIX;
  std::copy(address.path.begin(), address.path.end(), peer.sun_path);
  const Descriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return CannotBind(address, std::strerror(errno));
  const bool in_use =
      connect(fd.get(), reinterpret_cast<sockaddr*>(&peer), sizeof(peer)) == 0;
  // If the connection is refused, a killed process has left the socket behind.
  return in_use ? CannotBind(address, "a running process listens there")
                : absl::OkStatus();
}

absl::Status BindUnix(const Address& address,
                      std::vector<ListeningSocket>* sockets) {
  RETURN_IF_ERROR(CheckUnixPath(address));
  unlink(address.path.c_str());
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  std::copy(address.path.begin(), address.path.end(), name.sun_path);
  Descriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid() || bind(fd.get(), reinterpret_cast<const sockaddr*>(&name),
                          sizeof(name)) != 0) {
    const std::string why = std::strerror(errno);
    const std::string directory =
        address.path.substr(0, address.path.rfind('/') + 1);
    return CannotBind(address, absl::StrCat(directory, ": ", why));
  }
  ListeningSocket bound(std::move(fd), address.path);
  ShareWithGroup(address.path);
  if (listen(bound.fd(), SOMAXCONN) != 0) {
    return CannotBind(address, std::strerror(errno));
  }
  sockets->push_back(std::move(bound));
  return absl::OkStatus();
}

}  // namespace

ListeningSocket::ListeningSocket(Descriptor fd, std::string path)
    : fd_(std::move(fd)), path_(std::move(path)) {
  lstat(path_.c_str(), &file_);
}

ListeningSocket::~ListeningSocket() {
  struct stat now;
  if (fd_.valid() && is_unix() && lstat(path_.c_str(), &now) == 0 &&
      now.st_ino == file_.st_ino && now.st_dev == file_.st_dev) {
    unlink(path_.c_str());
  }
}

absl::Status Bind(const Address& address, std::vector<ListeningSocket>* sockets,
                  std::string* bound) {
  if (address.path.empty()) return BindTcp(address, sockets, bound);
  *bound = address.text;
  return BindUnix(address, sockets);
}

}  // namespace posenc::server
