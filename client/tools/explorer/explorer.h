// The explorer: a page in the browser that shows an encoding and each reader's
// interpretation of a configuration (docs/explorer.md).
//
// It serves HTTP on 127.0.0.1 with libmicrohttpd. Each connection has a thread,
// which waits for the call of its request. Only this machine's browser gets
// answers. Pages of other origins are refused by the headers Host (against DNS
// rebinding), Origin and Sec-Fetch-Site.

#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/tools/explorer/page.h"
#include "posenc/client.h"

struct MHD_Daemon;

namespace posenc::explorer {

// The longest body of a call: a config.json, or a GGUF file's keys without its
// vocabulary.
inline constexpr std::size_t kMaxBodyBytes = 1 << 20;

class Explorer final {
 public:
  // Starts serving, with calls by `client`. `port` 0: any free one. UNAVAILABLE
  // if the port cannot be bound.
  static absl::StatusOr<std::unique_ptr<Explorer>> Start(int port,
                                                         Client client);

  // Waits for the calls under way.
  ~Explorer();
  Explorer(const Explorer&) = delete;
  Explorer& operator=(const Explorer&) = delete;

  // Returns "127.0.0.1:40123".
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
