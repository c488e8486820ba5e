// Sockets on which the server accepts connections.

#pragma once

#include <sys/stat.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/base/descriptor.h"
#include "server/listen/address.h"

namespace posenc::server {

// Bound and listening, non-blocking. A unix socket's file is removed with it,
// unless another has taken its place.
class ListeningSocket {
 public:
  explicit ListeningSocket(Descriptor fd) : fd_(std::move(fd)) {}
  // Of the unix socket that was just bound to `path`.
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

// Binds every address that the host has: "localhost" is two sockets, and so may
// be a name; wildcards are one of IPv4 and one of IPv6. Sets `bound` to the
// address with the real port. UNAVAILABLE tells why not.
absl::Status Bind(const Address& address, std::vector<ListeningSocket>* sockets,
                  std::string* bound);

}  // namespace posenc::server
