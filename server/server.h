// A running posenc server: listeners, service, health, reflection, drain.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "google/protobuf/descriptor.h"
#include "grpcpp/channel.h"
#include "server/budget/limits.h"
#include "server/listen/connection_limits.h"
#include "server/metrics/server_status.h"
#include "server/rpc/call_observer.h"
#include "server/shared/shared_files.h"
#include "server/tls/tls_files.h"

namespace posenc::server {

enum class Notice { kInfo, kWarning };

class ExtraService;  // server/extra_service.h

// A service beside the contract's on the same port, such as KServe's.
struct ExtraServiceFactory {
  const google::protobuf::ServiceDescriptor* descriptor;
  // shared_files outlives the service, and is null if no memory is shared.
  // Empty: the service is switched off. Tokens may name its RPCs all the same.
  std::function<std::unique_ptr<ExtraService>(SharedFiles* shared_files)> make;
};

struct ServerOptions {
  // "host:port" (port 0: any free one), "[::1]:port", "unix:/path". Empty: no
  // listener, in-process channels only.
  std::vector<std::string> listen;

  // Without TLS, other addresses than loopback and unix sockets must be asked
  // for by name.
  bool allow_insecure = false;

  // With certificates all TCP addresses speak TLS, loopback too. Unix sockets
  // are always plaintext: who may open one is the file system's to say.
  TlsFiles tls;

  // File of the bearer tokens that callers must show (server/auth/tokens.h);
  // empty: none needed. Needs TLS, or addresses that only this machine reaches.
  // Health and reflection need no token.
  std::string token_file;
  // RPCs that need none either, as "ResolveRope".
  std::vector<std::string> public_methods;

  // Whether tools may ask for the contract (grpc.reflection).
  bool reflection = true;

  // Services beside the contract's.
  std::vector<ExtraServiceFactory> extra_services;

  // Which files in shared memory calls may name; none by default.
  SharedMemoryOptions shared_memory;

  ConnectionLimits connections;
  Limits limits;

  // Learns of every call. Outlives the server; may be null.
  CallObserver* observer = nullptr;

  // Gets a line for whoever reads the log, whenever the files of certificates
  // or tokens were read again because they changed, or have expired. Called in
  // threads of the server's, one at a time.
  std::function<void(Notice, absl::string_view)> notice;

  // Age at which clients are told to connect anew (GOAWAY), and so to look the
  // name up again; calls in progress have the grace to finish. 0: never.
  absl::Duration max_connection_age = absl::Minutes(30);
  absl::Duration max_connection_age_grace = absl::Minutes(10);

  // How long new calls are still taken once readiness is off. Clients and load
  // balancers that watch readiness go elsewhere in that time, before gRPC
  // closes the listener: it ends a call that arrives in that moment with
  // CANCELLED.
  absl::Duration lame_duck = absl::ZeroDuration();

  // How long calls in progress may take to finish after that.
  absl::Duration drain_timeout = absl::Seconds(30);
};

// Descriptors of the extra services, or of those that are not switched off.
std::vector<const google::protobuf::ServiceDescriptor*> ExtraServices(
    const ServerOptions& options);
std::vector<const google::protobuf::ServiceDescriptor*> ServedExtraServices(
    const ServerOptions& options);

// INVALID_ARGUMENT if Server::Start() would refuse an option (field: the flag's
// name, "--listen"), or a file that an option names. Binds nothing.
absl::Status CheckOptions(const ServerOptions& options);

class Server {
 public:
  // Listens at once. Fails as CheckOptions(); UNAVAILABLE if an address cannot
  // be bound.
  static absl::StatusOr<std::unique_ptr<Server>> Start(
      const ServerOptions& options);

  // Stops at once, without drain.
  virtual ~Server() = default;

  // The addresses as bound: "127.0.0.1:40123", "unix:/run/posenc.sock".
  virtual const std::vector<std::string>& addresses() const = 0;

  // A channel to this server within the process, without a socket.
  virtual std::shared_ptr<grpc::Channel> InProcessChannel() = 0;

  // Bytes of the budget (Limits::in_flight_bytes) that are claimed now.
  virtual std::int64_t BytesInFlight() const = 0;

  // See RpcService.
  virtual void ReturnUnneededMemory() = 0;

  // Safe for many threads, and during Drain(). For metrics: some fields are
  // older than others by microseconds.
  virtual ServerStatus Status() const = 0;

  // Takes over what may change while the server runs: of the limits
  // in_flight_bytes, in_flight_bytes_per_token, max_waiting and
  // default_deadline; of the connections max_connections and
  // max_connections_per_peer; and the contents of the files of TLS and tokens,
  // which are read again (they also are within two seconds after they have
  // changed). Other options are ignored. INVALID_ARGUMENT for limits that are
  // wrong; then nothing changes. A file that cannot be used is no error: it is
  // told by `notice` and counted, and the last good one stays in force. One
  // thread at a time.
  virtual absl::Status Reload(const ServerOptions& options) = 0;

  // Turns readiness off; after lame_duck refuses new calls (UNAVAILABLE), waits
  // until drain_timeout for those in progress, and cancels what is left. May be
  // called once.
  virtual void Drain() = 0;
};

}  // namespace posenc::server
