// The explorer: a page in the browser that shows what an encoding means and
// what each reader makes of a configuration (docs/explorer.md).
//
// HTTP on 127.0.0.1 by libmicrohttpd, with a thread for each connection: a
// thread waits for the call that its request makes. The page and its calls
// answer this machine's browser alone. A web page of another origin is refused:
// by the header Host, which tells a name that was rebound to this address, by
// Origin and by Sec-Fetch-Site.

#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/explorer/page.h"
#include "posenc/client.h"

struct MHD_Daemon;

namespace posenc::explorer {

// The longest body of a call: a config.json, or the keys of a GGUF file without
// its vocabulary.
inline constexpr std::size_t kMaxBodyBytes = 1 << 20;

class Explorer final {
 public:
  // Serves at once, with calls by `client`. `port` 0: any free one. UNAVAILABLE
  // if the port cannot be bound.
  static absl::StatusOr<std::unique_ptr<Explorer>> Start(int port,
                                                         Client client);

  // Waits for the calls that are under way.
  ~Explorer();
  Explorer(const Explorer&) = delete;
  Explorer& operator=(const Explorer&) = delete;

  // "127.0.0.1:40123".
  const std::string& address() const { return address_; }

 private:
  struct Callbacks;

  explicit Explorer(Client client) : client_(std::move(client)) {}

  const Client client_;
  const ExplorerPage page_ = MakeExplorerPage();
  std::string address_;
  MHD_Daemon* daemon_ = nullptr;
};

}  // namespace posenc::explorer
