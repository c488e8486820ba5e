#include "server/admin/listen_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "core/error.h"
#include "server/listen/address.h"

namespace posenc::server {
namespace {

constexpr int kBacklog = 64;

// Addresses are parsed as those of --listen, whose errors name that flag.
absl::Status OfAdmin(const absl::Status& status) {
  absl::string_view fact = status.message();
  absl::ConsumePrefix(&fact, "--listen: ");
  if (absl::IsInvalidArgument(status)) {
    return core::FieldInvalid("--admin", fact);
  }
  return absl::UnavailableError(absl::StrCat("--admin: ", fact));
}

// Closes the socket, and tells what errno says.
absl::Status Failed(const Address& address, int fd) {
  const int error = errno;
  if (fd >= 0) close(fd);
  return OfAdmin(CannotBind(address.text, std::strerror(error)));
}

int NewSocket(int family) {
  return socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

absl::StatusOr<ListenSocket> ListenOnPath(const Address& address) {
  const absl::Status free = CheckUnixPath(address);
  if (!free.ok()) return OfAdmin(free);
  unlink(address.path.c_str());  // left behind by a process that was killed
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  std::copy(address.path.begin(), address.path.end(), name.sun_path);
  const int fd = NewSocket(AF_UNIX);
  if (fd < 0 ||
      bind(fd, reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0 ||
      listen(fd, kBacklog) != 0) {
    return Failed(address, fd);
  }
  return ListenSocket{fd, address.text, "", address.path};
}

// The port that the socket got.
int BoundPort(int fd) {
  sockaddr_storage name = {};
  socklen_t size = sizeof(name);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size) != 0) return 0;
  // At the same place for both families.
  static_assert(offsetof(sockaddr_in, sin_port) ==
                offsetof(sockaddr_in6, sin6_port));
  return ntohs(reinterpret_cast<const sockaddr_in*>(&name)->sin_port);
}

absl::StatusOr<ListenSocket> ListenOnPort(const Address& address) {
  const std::size_t colon = address.text.rfind(':');
  addrinfo hints = {};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int error =
      getaddrinfo(address.host.c_str(), address.text.substr(colon + 1).c_str(),
                  &hints, &list);
  if (error != 0) {
    return OfAdmin(CannotBind(address.text, gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> found(list,
                                                             freeaddrinfo);
  const int fd = NewSocket(found->ai_family);
  // Connections of the server before this one may still be in TIME_WAIT.
  const int yes = 1;
  if (fd < 0 ||
      setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) != 0 ||
      bind(fd, found->ai_addr, found->ai_addrlen) != 0 ||
      listen(fd, kBacklog) != 0) {
    return Failed(address, fd);
  }
  return ListenSocket{
      fd, absl::StrCat(address.text.substr(0, colon + 1), BoundPort(fd)),
      address.host, ""};
}

}  // namespace

absl::StatusOr<ListenSocket> ListenForAdmin(const std::string& text) {
  const absl::StatusOr<Address> address = ParseAddress(text);
  if (!address.ok()) return OfAdmin(address.status());
  return address->path.empty() ? ListenOnPort(*address)
                               : ListenOnPath(*address);
}

}  // namespace posenc::server
