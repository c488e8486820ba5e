// Sockets on which the server accepts connections.

#pragma once

#include <sys/stat.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/base/descriptor.h"
#include "server/transport/address.h"

namespace posenc::server {

// A bound, listening, non-blocking socket. The destructor removes a unix
// socket's file, unless another file has replaced it.
class ListeningSocket {
 public:
  explicit ListeningSocket(Descriptor fd) : fd_(std::move(fd)) {}
  // Owns a unix socket that was just bound to `path`.
  ListeningSocket(Descriptor fd, std::string path);
  ListeningSocket(ListeningSocket&&) = default;
  ListeningSocket& operator=(ListeningSocket&&) = delete;
  ~ListeningSocket();

  int fd() const { return fd_.get(); }
  bool is_unix() const { return !path_.empty(); }

 private:
  Descriptor fd_;
  std::string path_;
  struct stat file_ = {};
};

// Binds every address of the host. "localhost" and other names may need two
// sockets. A wildcard needs one socket for IPv4 and one for IPv6. Sets `bound`
// to the address with the real port. Returns UNAVAILABLE after a failure.
absl::Status Bind(const Address& address, std::vector<ListeningSocket>* sockets,
                  std::string* bound);

}  // namespace posenc::server
