// A running posenc server: listeners, service, health, reflection, drain.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"

namespace posenc::server {

struct ServerOptions {
  // "host:port" (port 0: any free one), "[::1]:port", "unix:/path". Empty: no
  // listener, in-process channels only.
  std::vector<std::string> listen;

  // Plaintext is all that is served yet. Off loopback (and unix sockets) it
  // must be asked for by name.
  bool allow_insecure = false;

  // Largest message accepted, and sent. At most 2 GiB - 1.
  std::int64_t max_request_bytes = std::int64_t{512} << 20;
  std::int64_t max_response_bytes = std::int64_t{512} << 20;

  // Bytes of messages in flight at any time, requests and responses; calls wait
  // for room before they are read. 0: half of the memory that the process may
  // use, and no less than one message each way.
  std::int64_t in_flight_bytes = 0;

  // Calls that may wait for room; more are refused.
  std::int64_t max_waiting = 1024;

  // Time of a call whose client set no deadline.
  absl::Duration default_deadline = absl::Minutes(5);

  // Threads for computations. 0: as many as there are cores to use.
  int threads = 0;

  // After it clients are told to connect anew (GOAWAY), and so look the name up
  // again; calls in progress have the grace to finish. 0: never.
  absl::Duration max_connection_age = absl::Minutes(30);
  absl::Duration max_connection_age_grace = absl::Minutes(10);

  // How long new calls are still taken once readiness is off, so that clients
  // and load balancers that watch it have gone elsewhere before the door shuts:
  // gRPC ends a call that arrives in that moment with CANCELLED.
  absl::Duration lame_duck = absl::ZeroDuration();

  // How long calls in progress may take to finish after that.
  absl::Duration drain_timeout = absl::Seconds(30);
};

// options.in_flight_bytes, or what 0 means.
std::int64_t InFlightBytes(const ServerOptions& options);

// The version that GetServerInfo and --version say.
extern const char kVersion[];

class Server {
 public:
  // Listens at once. Errors: INVALID_ARGUMENT for options (field: the flag's
  // name, "--listen"), UNAVAILABLE where an address cannot be bound.
  static absl::StatusOr<std::unique_ptr<Server>> Start(
      const ServerOptions& options);

  // Stops at once, without drain.
  virtual ~Server() = default;

  // As bound: "127.0.0.1:40123", "unix:/run/posenc.sock".
  virtual const std::vector<std::string>& addresses() const = 0;

  // A channel into this process, without a socket.
  virtual std::shared_ptr<grpc::Channel> InProcessChannel() = 0;

  // Claimed of in_flight_bytes now.
  virtual std::int64_t BytesInFlight() const = 0;

  // Claimed since the last call of this.
  virtual std::int64_t BytesServed() const = 0;

  // Gives memory that is kept for responses back to the kernel.
  virtual void ReturnKeptMemory() = 0;

  // Readiness off; after lame_duck no new calls (they get UNAVAILABLE), waits
  // for those in progress until drain_timeout, cancels what is left. May be
  // called once.
  virtual void Drain() = 0;
};

}  // namespace posenc::server
