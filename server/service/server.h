// A server that listens, serves calls, reports its health, and drains.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "google/protobuf/descriptor.h"
#include "grpcpp/channel.h"
#include "server/call/call_observer.h"
#include "server/metrics/server_status.h"
#include "server/scheduling/limits.h"
#include "server/shared_memory/shared_files.h"
#include "server/transport/certificates.h"
#include "server/transport/connection_limits.h"

namespace posenc::server {

enum class Notice { kInfo, kWarning };

class ExtraService;  // server/service/extra_service.h

// Makes a service on the same port as the contract's service, such as KServe's.
struct ExtraServiceFactory {
  const google::protobuf::ServiceDescriptor* descriptor = nullptr;
  // `shared_files` outlives the service; it is null if no memory is shared. An
  // empty function switches the service off; tokens may still name its RPCs.
  std::function<std::unique_ptr<ExtraService>(SharedFiles* shared_files)> make;

  // Returns null if there is no service, or it is switched off.
  const google::protobuf::ServiceDescriptor* served() const {
    return make ? descriptor : nullptr;
  }
};

struct ServerOptions {
  // The addresses to listen on, such as "host:port" (port 0: any free port),
  // "[::1]:port" and "unix:/path". If the list is empty, there is no listener,
  // and only in-process channels reach the server.
  std::vector<std::string> listen;

  // Allows plaintext on addresses other than loopback and unix sockets.
  bool allow_insecure = false;

  // With certificates, all TCP addresses speak TLS, including loopback. Unix
  // sockets are always plaintext, because file permissions decide who may open
  // them.
  TlsFiles tls;

  // File of the bearer tokens that callers must send
  // (server/transport/tokens.h); empty if callers need no token. Requires TLS,
  // or addresses that only this machine can reach. Health and reflection need
  // no token.
  std::string token_file;
  // Further RPCs that need no token, for example "ResolveRope".
  std::vector<std::string> public_methods;

  // True if tools may read the contract (grpc.reflection).
  bool reflection = true;

  // Makes a second service on the same port; none by default.
  ExtraServiceFactory extra_service;

  // Selects the files in shared memory that calls may name; none by default.
  SharedMemoryOptions shared_memory;

  ConnectionLimits connections;
  Limits limits;

  // Objects that the server notifies of every call. They must outlive the
  // server.
  std::vector<CallObserver*> observers;

  // Gets a line for the log when certificates or tokens have expired, and when
  // their files have changed and were read again. Reload() and EverySecond()
  // call this function.
  std::function<void(Notice, absl::string_view)> notice;

  // Age of a connection at which its client gets GOAWAY, so that the client
  // resolves the name and connects again. Calls in progress may continue for
  // max_connection_age_grace. An age of 0 means no limit.
  absl::Duration max_connection_age = absl::Minutes(30);
  absl::Duration max_connection_age_grace = absl::Minutes(10);

  // Time for which new calls are still accepted after readiness is off. In this
  // time, clients and load balancers that watch readiness can choose another
  // server.
  absl::Duration lame_duck = absl::ZeroDuration();

  // Time after lame_duck in which calls in progress may finish.
  absl::Duration drain_timeout = absl::Seconds(30);
};

// Returns INVALID_ARGUMENT if Server::Start() would refuse an option, or a file
// that an option names. The field is the option's flag, for example "--listen".
// Binds nothing.
absl::Status CheckOptions(const ServerOptions& options);

class Server {
 public:
  // Returns a server that listens. Returns the errors of CheckOptions(), and
  // UNAVAILABLE if an address cannot be bound.
  static absl::StatusOr<std::unique_ptr<Server>> Start(
      const ServerOptions& options);

  // Stops immediately, without drain.
  virtual ~Server() = default;

  // Returns the bound addresses, such as "127.0.0.1:40123".
  virtual const std::vector<std::string>& addresses() const = 0;

  // Returns a channel to this server within the process, without a socket.
  virtual std::shared_ptr<grpc::Channel> InProcessChannel() = 0;

  // Must be called about once a second: reads the files of TLS and tokens again
  // if they have changed, unmaps unused shared memory, and returns unneeded
  // memory to the kernel.
  virtual void EverySecond() = 0;

  // Thread-safe, also during Drain(). The fields are read one after another, so
  // their times differ by microseconds.
  virtual ServerStatus Status() const = 0;

  // Applies the options that may change while the server runs:
  // - limits: in_flight_bytes, in_flight_bytes_per_token, max_waiting and
  //   default_deadline;
  // - connections: max_connections and max_connections_per_peer;
  // - the contents of the files of TLS and tokens.
  //
  // Other options are ignored. Returns INVALID_ARGUMENT for wrong limits, and
  // then changes nothing. A file that cannot be used is not an error: then
  // `notice` gets a line, the failure is counted, and the file's last good
  // contents stay in use. This function and EverySecond() must be called by one
  // thread at a time.
  virtual absl::Status Reload(const ServerOptions& options) = 0;

  // Turns readiness off. After lame_duck, refuses new calls (UNAVAILABLE),
  // waits up to drain_timeout for calls in progress, and cancels the remaining
  // calls. May be called only once.
  virtual void Drain() = 0;
};

}  // namespace posenc::server
