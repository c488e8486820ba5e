// The explorer: a page in the browser that shows an encoding and each reader's
// interpretation of a configuration (docs/explorer.md).
//
// The explorer serves HTTP on 127.0.0.1 with libmicrohttpd. Each connection has
// a thread, which waits until the call of a request has ended. Only this
// machine's browser gets answers. The headers Host (against DNS rebinding),
// Origin and Sec-Fetch-Site show which requests come from pages of other
// origins; these requests are refused.

#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "posenc/client.h"

struct MHD_Daemon;

namespace posenc::explorer {

// Size of the largest body of a call. It is enough for a config.json, or for
// the keys of a GGUF file without its vocabulary.
inline constexpr std::size_t kMaxBodyBytes = 1 << 20;

class Explorer final {
 public:
  // Starts to serve, and makes calls with `client`. If `port` is 0, any free
  // port is used. Returns UNAVAILABLE if the port cannot be bound.
  static absl::StatusOr<std::unique_ptr<Explorer>> Start(int port,
                                                         Client client);

  // Waits until the calls in progress have ended.
  ~Explorer();
  Explorer(const Explorer&) = delete;
  Explorer& operator=(const Explorer&) = delete;

  // Returns the bound address, for example "127.0.0.1:40123".
  const std::string& address() const { return address_; }

 private:
  struct Callbacks;

  explicit Explorer(Client client) : client_(std::move(client)) {}

  const Client client_;
  std::string address_;
  MHD_Daemon* daemon_ = nullptr;
};

}  // namespace posenc::explorer
