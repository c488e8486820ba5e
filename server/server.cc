#include "server/server.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/error.h"
#include "grpc/compression.h"
#include "grpc/grpc.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "server/listen/address.h"
#include "server/service.h"

namespace posenc::server {
namespace {

constexpr char kServiceName[] = "posenc.v1.PositionalEncodingService";
constexpr char kReadiness[] = "posenc.readiness";
constexpr char kLiveness[] = "posenc.liveness";

// gRPC refuses a message over its own limit before any code of ours runs, and
// without ErrorInfo. Its limit is a little above ours, so that a message that
// is just over ours gets the full error.
constexpr std::int64_t kReceiveSlack = std::int64_t{1} << 20;

// How long a peer may take for its TLS or HTTP/2 preface (gRPC's own limit is
// 120 s).
constexpr int kHandshakeTimeoutMs = 10000;
// How often a peer may ping. Common clients ping every 30 s, which gRPC's own
// limit of 5 min would punish by closing their connection.
constexpr int kMinPingIntervalMs = 10000;
// What a peer may send of a message before it is read.
constexpr int kUnreadBytes = 16 << 10;
// Once our calls have ended, only health watches and the like are open. They
// never end by themselves, and gRPC's shutdown would wait for them until its
// deadline.
constexpr absl::Duration kShutdownGrace = absl::Seconds(1);

// Sets process-wide switches of gRPC, which are not thread-safe themselves.
void InitPlugins() {
  static std::once_flag once;
  std::call_once(once, [] {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  });
}

// Reflection is in every server of a process that links it; this takes it out
// of one.
class WithoutReflection final : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments*) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>*
                         plugins) override {
    const std::string name =
        grpc::reflection::ProtoServerReflectionPlugin().name();
    std::erase_if(*plugins, [&name](const auto& plugin) {
      return plugin->name() == name;
    });
  }
};

int Milliseconds(absl::Duration duration) {
  return static_cast<int>(std::min<std::int64_t>(
      absl::ToInt64Milliseconds(duration), std::numeric_limits<int>::max()));
}

class RunningServer final : public Server {
 public:
  explicit RunningServer(const ServerOptions& options)
      : service_(WithDefaults(options.limits), options.observer),
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
    // The server's own limits hold; the channel adds none.
    arguments.SetMaxReceiveMessageSize(-1);
    arguments.SetMaxSendMessageSize(-1);
    return server_->InProcessChannel(arguments);
  }

  std::int64_t BytesInFlight() const override {
    return service_.admission().claimed();
  }

  void ReturnUnneededMemory() override { service_.ReturnUnneededMemory(); }

  ServerStatus Status() const override {
    ServerStatus status;
    service_.Tell(&status);
    status.ready = ready_.load();
    return status;
  }

  absl::Status Reload(const ServerOptions& options) override {
    const absl::Status status = CheckLimits(options.limits);
    if (status.ok()) service_.SetLimits(WithDefaults(options.limits));
    return status;
  }

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
    ready_.store(ready);
    grpc::HealthCheckServiceInterface* const health =
        server_->GetHealthCheckService();
    for (const char* name : {"", kServiceName, kReadiness}) {
      health->SetServingStatus(name, ready);
    }
  }

  RpcService service_;
  const absl::Duration lame_duck_;
  const absl::Duration drain_timeout_;
  std::atomic<bool> ready_{false};
  std::vector<std::string> addresses_;
  std::unique_ptr<grpc::Server> server_;
};

absl::Status RunningServer::Listen(const ServerOptions& options) {
  std::vector<Address> listen;
  for (const std::string& text : options.listen) {
    absl::StatusOr<Address> address = ParseAddress(text);
    if (!address.ok()) return address.status();
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
  if (!options.reflection) {
    builder.SetOption(std::make_unique<WithoutReflection>());
  }
  builder.SetMaxReceiveMessageSize(static_cast<int>(std::min(
      options.limits.max_request_bytes + kReceiveSlack, kMaxProtobufBytes)));
  builder.SetMaxSendMessageSize(
      static_cast<int>(options.limits.max_response_bytes));
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
  // A message is received when its call is let in, and not before: refused
  // payload costs what it was sent. So the window of a stream that nobody reads
  // is small, and does not grow by probes; it opens to the whole message as
  // soon as it is read.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES,
                             kUnreadBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                             options.connections.max_concurrent_streams);
  // Compressed messages are refused: gRPC 1.51 inflates a message first and
  // looks at its limit afterwards. Tensors do not compress anyway.
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
    // Addresses are bound in order, so the first one without a port failed.
    for (std::size_t i = 0; i < listen.size(); ++i) {
      if (ports[i] == 0)
        return CannotBind(listen[i].text, WhyNotBound(listen[i]));
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

absl::StatusOr<std::unique_ptr<Server>> Server::Start(
    const ServerOptions& options) {
  absl::Status status = CheckOptions(options);
  if (!status.ok()) return status;
  // No grpc_shutdown() matches this call. When gRPC's last user goes, gRPC 1.51
  // waits up to 10 s for a thread of its own that sleeps in epoll; the process
  // of a server ends soon anyway.
  grpc_init();
  auto server = std::make_unique<RunningServer>(options);
  status = server->Listen(options);
  if (!status.ok()) return status;
  return server;
}

}  // namespace posenc::server
