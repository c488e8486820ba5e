#include "server/server.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "core/error.h"
#include "grpc/compression.h"
#include "grpc/grpc.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "server/machine.h"
#include "server/wire/call_service.h"

namespace posenc::server {
namespace {

constexpr char kServiceName[] = "posenc.v1.PositionalEncodingService";
constexpr char kReadiness[] = "posenc.readiness";
constexpr char kLiveness[] = "posenc.liveness";

// gRPC refuses what is over its own limit before any code of ours runs, and
// without ErrorInfo. Its limit is a little above ours, so that a message that
// is not far over gets the full error.
constexpr std::int64_t kReceiveSlack = std::int64_t{1} << 20;
constexpr std::int64_t kMaxMessage = std::numeric_limits<std::int32_t>::max();

// A peer has this long for its TLS or HTTP/2 preface (gRPC's own: 120 s).
constexpr int kHandshakeTimeoutMs = 10000;
// Common clients ping every 30 s; gRPC's own 5 min would cut them off.
constexpr int kMinPingIntervalMs = 10000;
// Once our calls have ended only health watches and the like are open. They
// never end by themselves and would hold gRPC's shutdown to its deadline.
constexpr absl::Duration kShutdownGrace = absl::Seconds(1);

// Process-wide switches of gRPC, not thread-safe themselves.
void InitPlugins() {
  static std::once_flag once;
  std::call_once(once, [] {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  });
}

struct Address {
  std::string text;  // as given
  std::string host;  // empty for unix sockets
  std::string path;  // unix sockets only
};

absl::Status BadAddress(absl::string_view address, absl::string_view fact) {
  return core::FieldInvalid("--listen", absl::StrCat(address, ": ", fact));
}

absl::Status CannotBind(absl::string_view address, absl::string_view why) {
  return absl::UnavailableError(
      absl::StrCat("--listen: cannot listen on ", address, ": ", why));
}

absl::StatusOr<Address> ParseAddress(const std::string& text) {
  Address address;
  address.text = text;
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, "unix:")) {
    address.path = std::string(rest);
    const std::size_t longest = sizeof(sockaddr_un::sun_path) - 1;
    if (rest.empty()) return BadAddress(text, "no path; expected unix:/path");
    if (rest.size() > longest) {
      return BadAddress(text, absl::StrCat("a path of ", rest.size(),
                                           " bytes; at most ", longest));
    }
    return address;
  }
  const std::size_t colon = rest.rfind(':');
  const absl::string_view host = rest.substr(0, colon);
  const bool bracketed = absl::StartsWith(host, "[") &&
                         absl::EndsWith(host, "]") && host.size() > 2;
  int port = 0;
  if (colon == absl::string_view::npos || host.empty() ||
      (!bracketed && absl::StrContains(host, ":")) ||
      !absl::SimpleAtoi(rest.substr(colon + 1), &port) || port < 0 ||
      port > 65535) {
    return BadAddress(
        text, "expected host:port, [ipv6]:port or unix:/path, port 0..65535");
  }
  address.host =
      std::string(bracketed ? host.substr(1, host.size() - 2) : host);
  return address;
}

bool IsLoopback(const std::string& host) {
  if (host == "localhost") return true;
  in_addr v4;
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) {
    return (ntohl(v4.s_addr) >> 24) == 127;
  }
  in6_addr v6;
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 &&
         IN6_IS_ADDR_LOOPBACK(&v6);
}

// gRPC would unlink whatever socket stands at the path, in use or not.
absl::Status CheckUnixPath(const Address& address) {
  struct stat info;
  if (lstat(address.path.c_str(), &info) != 0) {
    return errno == ENOENT ? absl::OkStatus()
                           : CannotBind(address.text, std::strerror(errno));
  }
  if (!S_ISSOCK(info.st_mode)) {
    return CannotBind(address.text, "the file exists and is not a socket");
  }
  sockaddr_un peer = {};
  peer.sun_family = AF_UNIX;
  std::copy(address.path.begin(), address.path.end(), peer.sun_path);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return CannotBind(address.text, std::strerror(errno));
  const bool in_use =
      connect(fd, reinterpret_cast<sockaddr*>(&peer), sizeof(peer)) == 0;
  close(fd);
  // Nobody answers: left behind by a process that was killed.
  return in_use ? CannotBind(address.text, "a running process listens there")
                : absl::OkStatus();
}

// Why an address cannot be bound; gRPC tells its log only.
std::string WhyNot(const Address& address) {
  std::string reason = "see gRPC's log";
  if (!address.path.empty()) {
    const std::string directory =
        address.path.substr(0, address.path.rfind('/') + 1);
    if (access(directory.empty() ? "." : directory.c_str(), W_OK) != 0) {
      reason = absl::StrCat(directory, ": ", std::strerror(errno));
    }
    return reason;
  }
  addrinfo hints = {};
  hints.ai_flags = AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string port = address.text.substr(address.text.rfind(':') + 1);
  const int error =
      getaddrinfo(address.host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) return gai_strerror(error);
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || bind(fd, found->ai_addr, found->ai_addrlen) != 0) {
    reason = std::strerror(errno);
  }
  if (fd >= 0) close(fd);
  freeaddrinfo(found);
  return reason;
}

absl::Status CheckLimit(absl::string_view flag, std::int64_t bytes) {
  if (bytes >= 1 && bytes <= kMaxMessage) return absl::OkStatus();
  return core::FieldInvalid(
      flag, absl::StrCat(bytes, " bytes; must be 1 to ", kMaxMessage,
                         ", the most that protobuf can frame"));
}

CallOptions ReadCallOptions(const ServerOptions& options) {
  CallOptions calls;
  calls.max_request_bytes = options.max_request_bytes;
  calls.max_response_bytes = options.max_response_bytes;
  calls.in_flight_bytes = InFlightBytes(options);
  calls.max_waiting = static_cast<std::size_t>(options.max_waiting);
  calls.default_deadline = options.default_deadline;
  calls.threads = options.threads > 0 ? options.threads : UsableCpus();
  return calls;
}

int Milliseconds(absl::Duration duration) {
  return static_cast<int>(std::min<std::int64_t>(
      absl::ToInt64Milliseconds(duration), std::numeric_limits<int>::max()));
}

class RunningServer final : public Server {
 public:
  explicit RunningServer(const ServerOptions& options)
      : service_(ReadCallOptions(options)),
        lame_duck_(options.lame_duck),
        drain_timeout_(options.drain_timeout) {}

  ~RunningServer() override {
    if (server_ == nullptr) return;
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
  }

  absl::Status Listen(const ServerOptions& options);

  const std::vector<std::string>& addresses() const override {
    return addresses_;
  }

  std::shared_ptr<grpc::Channel> InProcessChannel() override {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);  // the server's limit is enough
    arguments.SetMaxSendMessageSize(-1);
    return server_->InProcessChannel(arguments);
  }

  std::int64_t BytesInFlight() const override {
    return service_.admission().claimed();
  }

  std::int64_t BytesServed() const override {
    return service_.TakeClaimedBytes();
  }

  void ReturnKeptMemory() override { service_.ReturnKeptMemory(); }

  void Drain() override {
    SetReady(false);
    absl::SleepFor(lame_duck_);
    const absl::Time deadline = absl::Now() + drain_timeout_;
    service_.StartDraining();
    const bool idle = service_.AwaitNoCalls(drain_timeout_);
    server_->Shutdown(idle ? absl::ToChronoTime(std::min(
                                 deadline, absl::Now() + kShutdownGrace))
                           : std::chrono::system_clock::now());
    server_->Wait();
  }

 private:
  void SetReady(bool ready) {
    grpc::HealthCheckServiceInterface* const health =
        server_->GetHealthCheckService();
    for (const char* name : {"", kServiceName, kReadiness}) {
      health->SetServingStatus(name, ready);
    }
  }

  CallService service_;
  const absl::Duration lame_duck_;
  const absl::Duration drain_timeout_;
  std::vector<std::string> addresses_;
  std::unique_ptr<grpc::Server> server_;
};

absl::Status RunningServer::Listen(const ServerOptions& options) {
  std::vector<Address> listen;
  for (const std::string& text : options.listen) {
    absl::StatusOr<Address> address = ParseAddress(text);
    if (!address.ok()) return address.status();
    if (!address->host.empty() && !IsLoopback(address->host) &&
        !options.allow_insecure) {
      return BadAddress(text,
                        "plaintext off loopback; add --allow-insecure if that "
                        "is meant, or listen on 127.0.0.1 or unix:/path");
    }
    if (!address->path.empty()) {
      const absl::Status free = CheckUnixPath(*address);
      if (!free.ok()) return free;
    }
    listen.push_back(*std::move(address));
  }

  InitPlugins();
  grpc::ServerBuilder builder;
  builder.RegisterService(service_.registered());
  builder.RegisterCallbackGenericService(&service_);
  builder.SetMaxReceiveMessageSize(static_cast<int>(
      std::min(options.max_request_bytes + kReceiveSlack, kMaxMessage)));
  builder.SetMaxSendMessageSize(static_cast<int>(options.max_response_bytes));
  // A second server on the same port must fail, not share it.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             kHandshakeTimeoutMs);
  builder.AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
      kMinPingIntervalMs);
  if (options.max_connection_age > absl::ZeroDuration()) {
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS,
                               Milliseconds(options.max_connection_age));
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS,
                               Milliseconds(options.max_connection_age_grace));
  }
  // gRPC 1.51 inflates first and looks at its limit after. Tensors do not
  // compress anyway.
  for (const grpc_compression_algorithm algorithm :
       {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP}) {
    builder.SetCompressionAlgorithmSupportStatus(algorithm, false);
  }

  std::vector<int> ports(listen.size(), 0);
  for (std::size_t i = 0; i < listen.size(); ++i) {
    builder.AddListeningPort(listen[i].text, grpc::InsecureServerCredentials(),
                             &ports[i]);
  }
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) {
    // They are bound in order; the first without a port is the one.
    for (std::size_t i = 0; i < listen.size(); ++i) {
      if (ports[i] == 0) return CannotBind(listen[i].text, WhyNot(listen[i]));
    }
    return absl::UnavailableError("gRPC could not start a server");
  }
  for (std::size_t i = 0; i < listen.size(); ++i) {
    const std::string& text = listen[i].text;
    addresses_.push_back(
        listen[i].path.empty()
            ? absl::StrCat(text.substr(0, text.rfind(':') + 1), ports[i])
            : text);
  }
  server_->GetHealthCheckService()->SetServingStatus(kLiveness, true);
  SetReady(true);
  return absl::OkStatus();
}

}  // namespace

std::int64_t InFlightBytes(const ServerOptions& options) {
  if (options.in_flight_bytes != 0) return options.in_flight_bytes;
  return std::max(UsableMemory() / 2,
                  options.max_request_bytes + options.max_response_bytes);
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(
    const ServerOptions& options) {
  absl::Status status =
      CheckLimit("--max-request-bytes", options.max_request_bytes);
  if (status.ok()) {
    status = CheckLimit("--max-response-bytes", options.max_response_bytes);
  }
  if (status.ok() && options.in_flight_bytes != 0 &&
      options.in_flight_bytes < options.max_request_bytes) {
    status = core::FieldInvalid(
        "--in-flight-bytes",
        absl::StrCat(options.in_flight_bytes,
                     "; must hold a request of --max-request-bytes, ",
                     options.max_request_bytes));
  }
  if (status.ok() && options.max_waiting < 0) {
    status = core::FieldInvalid(
        "--max-waiting",
        absl::StrCat(options.max_waiting, "; must not be negative"));
  }
  if (status.ok() && options.threads < 0) {
    status = core::FieldInvalid(
        "--threads", absl::StrCat(options.threads, "; must not be negative"));
  }
  if (status.ok() && options.default_deadline <= absl::ZeroDuration()) {
    status = core::FieldInvalid(
        "--default-deadline",
        absl::StrCat(absl::FormatDuration(options.default_deadline),
                     "; must be positive"));
  }
  if (status.ok() && options.drain_timeout < absl::ZeroDuration()) {
    status = core::FieldInvalid(
        "--drain-timeout",
        absl::StrCat(absl::FormatDuration(options.drain_timeout),
                     "; must not be negative"));
  }
  if (!status.ok()) return status;
  // Never paired: when its last user goes, gRPC 1.51 waits up to 10 s for a
  // thread of its own that sleeps in epoll; a server's process ends soon
  // anyway.
  grpc_init();
  auto server = std::make_unique<RunningServer>(options);
  status = server->Listen(options);
  if (!status.ok()) return status;
  return server;
}

}  // namespace posenc::server
