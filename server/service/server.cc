#include "server/service/server.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <iterator>
#include <limits>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "core/base/status_macros.h"
#include "grpc/compression.h"
#include "grpc/grpc.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "posenc/compat.h"
#include "server/base/steady_time.h"
#include "server/call/call.h"
#include "server/call/loop.h"
#include "server/health/health.h"
#include "server/reflection/reflection.h"
#include "server/service/credentials.h"
#include "server/service/extra_service.h"
#include "server/service/service.h"
#include "server/transport/address.h"
#include "server/transport/listener.h"

namespace posenc::server {
namespace {

constexpr char kServiceName[] = "posenc.v1.PositionalEncodingService";
constexpr char kReadiness[] = "posenc.readiness";
constexpr char kLiveness[] = "posenc.liveness";

// gRPC refuses a message over its own limit before any code of ours runs, and
// without ErrorInfo. So gRPC's limit is a little above ours, and a message just
// over our limit gets the full error.
constexpr std::int64_t kReceiveSlack = std::int64_t{1} << 20;

// Number of bytes of a message that a peer may send before the message is read.
constexpr int kUnreadBytes = 16 << 10;
// Number of coroutines that wait for a call on each loop. gRPC queues calls
// that find no waiting coroutine.
constexpr int kWaitingCalls = 32;
// After Shutdown(), gRPC 1.51 drops new calls, without a status, until their
// clients have read that the server closes the connection. So even an idle
// server first refuses calls for this time. Meanwhile clients that watch the
// server's health choose another server.
constexpr absl::Duration kRefusing = absl::Milliseconds(250);
// After our calls have ended, exempt calls may still be open. Health watches do
// not end by themselves, and gRPC's shutdown would wait for them until its
// deadline.
constexpr absl::Duration kShutdownGrace = absl::Seconds(1);
// Connections must close within this time after kShutdownGrace.
constexpr absl::Duration kClosingGrace = absl::Milliseconds(300);

int Milliseconds(absl::Duration duration) {
  return static_cast<int>(std::min<std::int64_t>(
      absl::ToInt64Milliseconds(duration), std::numeric_limits<int>::max()));
}

// Returns the largest number of health watches on one connection: half of its
// streams, but at least 8. A proxy may use one connection for the watches of
// many clients. The other streams are left for other calls.
std::int64_t WatchesOfConnection(const ConnectionLimits& limits) {
  return std::max(limits.max_concurrent_streams / 2, 8);
}

class RunningServer final : public Server {
 public:
  // `options` has its defaults filled in. `shared_files` may be null.
  RunningServer(const ServerOptions& options,
                std::unique_ptr<Credentials> credentials,
                std::unique_ptr<SharedFiles> shared_files)
      : credentials_(std::move(credentials)),
        shared_files_(std::move(shared_files)),
        health_(options.connections.max_connections,
                WatchesOfConnection(options.connections)),
        reflection_(options.reflection ? std::make_unique<Reflection>(
                                             options.extra_service.served())
                                       : nullptr),
        extra_(options.extra_service.served()),
        extra_service_(options.extra_service.make
                           ? options.extra_service.make(shared_files_.get())
                           : nullptr),
        service_(options.limits, options.connections, options.observers,
                 credentials_.get(), shared_files_.get(), AllMethods()),
        lame_duck_(options.lame_duck),
        drain_timeout_(options.drain_timeout) {
    const int threads = Loop::CountFor(options.limits.threads);
    for (int i = 0; i < threads; ++i) {
      loops_.push_back(std::make_unique<Loop>());
    }
  }

  ~RunningServer() override {
    if (server_ == nullptr) return;
    Shutdown(absl::ZeroDuration());
    for (const auto& loop : loops_) loop->Stop();
  }

  absl::Status Listen(const ServerOptions& options);

  const std::vector<std::string>& addresses() const override {
    static const std::vector<std::string> kNone;
    return listener_ == nullptr ? kNone : listener_->addresses();
  }

  std::shared_ptr<grpc::Channel> InProcessChannel() override {
    grpc::ChannelArguments arguments;
    // The server enforces its own limits, so the channel needs no limits.
    arguments.SetMaxReceiveMessageSize(-1);
    arguments.SetMaxSendMessageSize(-1);
    return server_->InProcessChannel(arguments);
  }

  void EverySecond() override {
    credentials_->LookAtFiles();
    service_.ReturnUnneededMemory();
    if (shared_files_ != nullptr) shared_files_->Sweep(absl::Now());
  }

  ServerStatus Status() const override;
  absl::Status Reload(const ServerOptions& options) override;

  void Drain() override {
    SetReady(false);
    absl::SleepFor(lame_duck_);
    const absl::Time deadline = SteadyNow() + drain_timeout_;
    service_.StartDraining();
    const bool idle = service_.AwaitNoCalls(drain_timeout_);
    if (idle && listener_ != nullptr && listener_->counts().open > 0) {
      absl::SleepFor(std::min(deadline - SteadyNow(), kRefusing));
    }
    Shutdown(idle ? std::min(deadline - SteadyNow(), kShutdownGrace)
                  : absl::ZeroDuration());
  }

 private:
  std::vector<Method> AllMethods() {
    std::vector<Method> all(Methods().begin(), Methods().end());
    const auto add = [&all](std::vector<Method> more) {
      std::move(more.begin(), more.end(), std::back_inserter(all));
    };
    add(health_.Methods());
    if (reflection_ != nullptr) add(reflection_->Methods());
    if (extra_service_ != nullptr) add(extra_service_->Methods());
    return all;
  }

  // Cancels the calls that are left after `grace`. May be called again.
  //
  // gRPC closes a connection after the peer has read all written bytes. A peer
  // that does not read would delay this for ever. So another thread ends the
  // connections after the grace.
  void Shutdown(absl::Duration grace) {
    std::promise<void> closed;
    std::thread cut;
    if (listener_ != nullptr) {
      listener_->Stop();
      cut = std::thread([this, grace, future = closed.get_future()] {
        if (future.wait_for(absl::ToChronoNanoseconds(grace + kClosingGrace)) ==
            std::future_status::timeout) {
          listener_->EndConnections();
        }
      });
    }
    server_->Shutdown(absl::ToChronoTime(absl::Now() + grace));
    server_->Wait();
    closed.set_value();
    if (cut.joinable()) cut.join();
  }

  void SetReady(bool ready) {
    ready_.store(ready);
    for (const char* name : {"", kServiceName, kReadiness}) {
      health_.Set(name, ready);
    }
    if (extra_service_ == nullptr) return;
    health_.Set(std::string(extra_->full_name()), ready);
    extra_service_->SetReady(ready);
  }

  const std::unique_ptr<Credentials> credentials_;
  const std::unique_ptr<SharedFiles> shared_files_;  // null: none are shared
  Health health_;
  const std::unique_ptr<Reflection> reflection_;  // null: switched off
  // These are null if there is no extra service.
  const google::protobuf::ServiceDescriptor* const extra_;
  const std::unique_ptr<ExtraService> extra_service_;
  RpcService service_;
  std::vector<std::unique_ptr<Loop>> loops_;
  const absl::Duration lame_duck_;
  const absl::Duration drain_timeout_;
  std::atomic<bool> ready_{false};
  // Null if the server listens on no address.
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<grpc::Server> server_;
};

ServerStatus RunningServer::Status() const {
  ServerStatus status;
  service_.FillIn(&status);
  status.ready = ready_.load();
  const ConnectionCounts counts =
      listener_ == nullptr ? ConnectionCounts() : listener_->counts();
  status.connections = counts.open;
  for (int i = 0; i < kEndings; ++i) {
    status.connections_refused.emplace_back(kEndingNames[i], counts.ended[i]);
  }
  credentials_->FillIn(&status);
  return status;
}

absl::Status RunningServer::Reload(const ServerOptions& options) {
  absl::Status status = CheckLimits(options.limits);
  if (status.ok()) status = CheckConnectionLimits(options.connections);
  if (!status.ok()) return status;
  credentials_->Reload();
  service_.SetLimits(WithDefaults(options.limits));
  const ConnectionLimits connections = WithDefaults(options.connections);
  health_.SetMostWatches(connections.max_connections);
  if (listener_ != nullptr) {
    listener_->SetCaps(connections.max_connections,
                       connections.max_connections_per_peer);
  }
  return absl::OkStatus();
}

void AddMessageLimits(const Limits& limits, grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(static_cast<int>(
      std::min(limits.max_request_bytes + kReceiveSlack, kMaxProtobufBytes)));
  builder->SetMaxSendMessageSize(static_cast<int>(limits.max_response_bytes));
  // A message is received only after its call is admitted, so that the payload
  // of a refused call is not read. Therefore the flow-control window of a
  // stream is small, and bandwidth probes do not enlarge it. When the server
  // begins to read, the window grows to the whole message.
  builder->AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES,
                              kUnreadBytes);
  // Compressed messages are refused, because gRPC 1.51 inflates a message
  // before it checks the limit of the message's size. Compression would not
  // make tensors much smaller anyway.
  for (const grpc_compression_algorithm algorithm :
       {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP}) {
    builder->SetCompressionAlgorithmSupportStatus(algorithm, false);
  }
  // gRPC's filters for compression are switched off, because they take a
  // thirtieth of gRPC's time for a small call.
  builder->AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_COMPRESSION, 0);
  builder->AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
}

void AddConnectionLimits(const ServerOptions& options,
                         grpc::ServerBuilder* builder) {
  const ConnectionLimits& limits = options.connections;
  compat::SetMaxConcurrentStreams(limits.max_concurrent_streams, builder);
  compat::SetMaxMetadataBytes(static_cast<int>(limits.max_metadata_bytes),
                              builder);
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                              Milliseconds(limits.handshake_timeout));
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS,
                              Milliseconds(limits.max_connection_idle));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS,
                              Milliseconds(limits.keepalive_time));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                              Milliseconds(limits.keepalive_timeout));
  // The server pings peers with and without calls, as long as they answer.
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder->AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
      Milliseconds(limits.keepalive_min_interval));
  if (options.max_connection_age > absl::ZeroDuration()) {
    builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS,
                                Milliseconds(options.max_connection_age));
    builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS,
                                Milliseconds(options.max_connection_age_grace));
  }
}

absl::Status RunningServer::Listen(const ServerOptions& options) {
  std::vector<Address> addresses;
  for (const std::string& text : options.listen) {
    ASSIGN_OR_RETURN(Address address, ParseAddress(text));
    addresses.push_back(std::move(address));
  }
  constexpr auto kFromFd =
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD;
  grpc::ServerBuilder builder;
  builder.RegisterAsyncGenericService(&service_.resources()->generic);
  for (const auto& loop : loops_) loop->AddTo(&builder);
  AddMessageLimits(options.limits, &builder);
  AddConnectionLimits(options, &builder);
  Listener::Acceptor plaintext, tls;
  if (!addresses.empty()) {
    ASSIGN_OR_RETURN(listener_, Listener::Bind(addresses, options.connections));
    listener_->SetMemoryIsShort(
        [this] { return service_.admission().waiting() > 0; });
    service_.EndConnectionsBy(
        [listener = listener_.get()](absl::string_view peer) {
          listener->EndConnectionOf(peer);
        });
    plaintext = builder.experimental().AddExternalConnectionAcceptor(
        kFromFd, grpc::InsecureServerCredentials());
    if (credentials_->tls() != nullptr) {
      tls = builder.experimental().AddExternalConnectionAcceptor(
          kFromFd, credentials_->tls()->credentials());
    }
  }
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) {
    return absl::UnavailableError("gRPC could not start a server");
  }
  for (const auto& loop : loops_) {
    for (int i = 0; i < kWaitingCalls; ++i) ServeCalls(&service_, loop.get());
    loop->Start();
  }
  health_.Set(kLiveness, true);
  SetReady(true);
  if (listener_ != nullptr) {
    listener_->Start(std::move(plaintext), std::move(tls));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(
    const ServerOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  // This call has no matching grpc_shutdown(), because in gRPC 1.51 the last
  // grpc_shutdown() waits up to 10 s for a thread that sleeps in epoll. The
  // process ends soon after the server, so nothing is lost.
  grpc_init();
  ASSIGN_OR_RETURN(auto credentials, Credentials::Load(options));
  ASSIGN_OR_RETURN(auto shared_files, SharedFiles::Open(options.shared_memory));
  ServerOptions complete = options;
  complete.limits = WithDefaults(options.limits);
  complete.connections = WithDefaults(options.connections);
  auto server = std::make_unique<RunningServer>(
      complete, std::move(credentials), std::move(shared_files));
  RETURN_IF_ERROR(server->Listen(complete));
  return server;
}

}  // namespace posenc::server
