#include "server/serve.h"

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/admin/admin_server.h"
#include "server/config/check.h"
#include "server/config/print.h"
#include "server/forced_exit.h"
#include "server/log/call_log.h"
#include "server/log/grpc_log.h"
#include "server/log/log.h"
#include "server/metrics/exposition.h"
#include "server/ready_file.h"
#include "server/reload.h"
#include "server/rpc/observer_list.h"
#include "server/server.h"
#include "server/trace/traces.h"
#include "server/version.h"

namespace posenc::server {
namespace {

constexpr absl::Duration kLastFlush = absl::Milliseconds(500);

// A drain ends in time, but on a busy machine with clients that go on calling,
// destroying its calls may take many seconds. So the process flushes its log
// and ends this long after the drain, even if calls are left.
constexpr absl::Duration kAfterDrain = absl::Milliseconds(500);
constexpr absl::Duration kForcedFlush = absl::Milliseconds(100);

// Returns at SIGTERM or SIGINT, and calls `reload` at SIGHUP.
void AwaitStop(Server* server, const std::function<void()>& reload) {
  const sigset_t signals = ServeSignals();
  const timespec pause = {.tv_sec = 1, .tv_nsec = 0};
  while (true) {
    const int signal = sigtimedwait(&signals, nullptr, &pause);
    if (signal == SIGHUP) {
      reload();
    } else if (signal >= 0) {
      return;
    } else {
      server->ReturnUnneededMemory();
    }
  }
}

// The configuration in force, as the admin port shows it.
class ConfigPage {
 public:
  explicit ConfigPage(std::string text) : text_(std::move(text)) {}
  void Set(std::string text) {
    const std::lock_guard<std::mutex> lock(mutex_);
    text_ = std::move(text);
  }
  std::string text() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return text_;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;  // guarded by mutex_
};

// Silences gRPC's page-long bind errors, unless GRPC_VERBOSITY asks for its
// log: our own error is one line.
absl::StatusOr<std::unique_ptr<Server>> StartServer(
    const ServerOptions& options, const std::shared_ptr<Log>& log) {
  if (std::getenv("GRPC_VERBOSITY") == nullptr) {
    SilenceGrpcLog();
  } else {
    SendGrpcLogTo(log);
  }
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(options);
  if (server.ok()) SendGrpcLogTo(log);
  return server;
}

// Returns null if the configuration has no admin port.
absl::StatusOr<std::unique_ptr<AdminServer>> StartAdmin(const Config& config,
                                                        AdminPages pages) {
  if (config.admin.empty()) return nullptr;
  return AdminServer::Start(
      {.address = config.admin, .hosts = config.admin_hosts}, std::move(pages));
}

// admin: null if there is none.
void LogStart(const LoadedConfig& running,
              const std::vector<std::string>& addresses,
              const AdminServer* admin, const char* instruction_set, Log* log) {
  for (const std::string& warning : running.warnings) {
    log->Write(LogLevel::kWarning, warning);
  }
  for (const std::string& doubt : Doubts(running.config)) {
    log->Write(LogLevel::kWarning, doubt);
  }
  log->Write(LogLevel::kInfo,
             absl::StrCat("posencd ", kVersion, " listening on ",
                          absl::StrJoin(addresses, ", "), "; instruction set ",
                          instruction_set));
  if (admin == nullptr) return;
  log->Write(LogLevel::kInfo, absl::StrCat("admin port on ", admin->address()));
}

// From now on a signal ends the process at once, and so does a drain that takes
// too long.
void LimitDrain(const Config& config, const std::shared_ptr<Log>& log) {
  ExitAtSignal(config.ready_file);
  ExitAfter(config.server.lame_duck + config.server.drain_timeout + kAfterDrain,
            config.ready_file, [log] {
              log->Write(
                  LogLevel::kWarning,
                  "the drain is over, but the server has not ended: exiting");
              log->Flush(kForcedFlush);
            });
}

}  // namespace

sigset_t ServeSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    sigaddset(&signals, signal);
  }
  return signals;
}

absl::Status Serve(
    const LoadedConfig& loaded, const char* instruction_set,
    const std::function<absl::StatusOr<LoadedConfig>()>& load_again) {
  LoadedConfig running = loaded;
  Config& config = running.config;
  const auto log =
      std::make_shared<Log>(STDOUT_FILENO, *ParseLogLevel(config.log.level),
                            *ParseLogFormat(config.log.format));
  const absl::Cleanup flush = [&log] { log->Flush(kLastFlush); };
  CallLog calls(log, config.log.calls);
  CallMetrics metrics(ServedExtraServices(config.server));
  std::shared_ptr<CallObserver> traces;
  if (!config.otlp_endpoint.empty()) {
    auto started = StartTraces(config.otlp_endpoint);
    if (!started.ok()) return WithSource(started.status(), running);
    traces = *std::move(started);
  }
  ObserverList observers = traces == nullptr
                               ? ObserverList({&calls, &metrics})
                               : ObserverList({&calls, &metrics, traces.get()});
  config.server.observer = &observers;
  config.server.notice = [&log](Notice notice, absl::string_view line) {
    log->Write(notice == Notice::kInfo ? LogLevel::kInfo : LogLevel::kWarning,
               line);
  };

  absl::StatusOr<std::unique_ptr<Server>> server =
      StartServer(config.server, log);
  if (!server.ok()) return WithSource(server.status(), running);
  ConfigPage config_page(ConfigText(running));
  absl::StatusOr<std::unique_ptr<AdminServer>> admin = StartAdmin(
      config, {.metrics =
                   [&, instruction_set] {
                     ServerStatus status = (*server)->Status();
                     status.log_lines_dropped = log->dropped();
                     return MetricsText(metrics, status, instruction_set);
                   },
               .config = [&config_page] { return config_page.text(); },
               .ready = [&server] { return (*server)->Status().ready; }});
  if (!admin.ok()) return WithSource(admin.status(), running);
  LogStart(running, (*server)->addresses(), admin->get(), instruction_set,
           log.get());
  const ReadyFile ready_file(config.ready_file);
  const absl::Status ready = ready_file.Write((*server)->addresses());
  if (!ready.ok()) return ready;

  AwaitStop(server->get(), [&] {
    Reload(load_again(), &running, {server->get(), log.get(), &calls});
    config_page.Set(ConfigText(running));
  });
  LimitDrain(config, log);
  log->Write(LogLevel::kInfo, "draining");
  (*server)->Drain();
  admin->reset();  // its pages use the server
  server->reset();
  log->Write(LogLevel::kInfo, "drained");
  return absl::OkStatus();
}

}  // namespace posenc::server
