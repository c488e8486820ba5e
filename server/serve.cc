#include "server/serve.h"

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

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

  // Silences gRPC's page-long bind errors, unless GRPC_VERBOSITY asks for its
  // log: our own error is one line.
  if (std::getenv("GRPC_VERBOSITY") == nullptr) {
    SilenceGrpcLog();
  } else {
    SendGrpcLogTo(log);
  }
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(config.server);
  if (!server.ok()) return WithSource(server.status(), running);
  SendGrpcLogTo(log);
  std::mutex config_mutex;
  std::string config_text = ConfigText(running);
  std::unique_ptr<AdminServer> admin;
  if (!config.admin.empty()) {
    auto started = AdminServer::Start(
        {.address = config.admin, .hosts = config.admin_hosts},
        {.metrics =
             [&, instruction_set] {
               ServerStatus status = (*server)->Status();
               status.log_lines_dropped = log->dropped();
               return MetricsText(metrics, status, instruction_set);
             },
         .config =
             [&] {
               const std::lock_guard<std::mutex> lock(config_mutex);
               return config_text;
             },
         .ready = [&server] { return (*server)->Status().ready; }});
    if (!started.ok()) return WithSource(started.status(), running);
    admin = *std::move(started);
  }

  for (const std::string& warning : running.warnings) {
    log->Write(LogLevel::kWarning, warning);
  }
  for (const std::string& doubt : Doubts(config)) {
    log->Write(LogLevel::kWarning, doubt);
  }
  log->Write(LogLevel::kInfo,
             absl::StrCat("posencd ", kVersion, " listening on ",
                          absl::StrJoin((*server)->addresses(), ", "),
                          "; instruction set ", instruction_set));
  if (admin != nullptr) {
    log->Write(LogLevel::kInfo,
               absl::StrCat("admin port on ", admin->address()));
  }
  const ReadyFile ready_file(config.ready_file);
  if (const absl::Status written = ready_file.Write((*server)->addresses());
      !written.ok()) {
    return written;
  }

  AwaitStop(server->get(), [&] {
    Reload(load_again(), &running, {server->get(), log.get(), &calls});
    std::string text = ConfigText(running);
    const std::lock_guard<std::mutex> lock(config_mutex);
    config_text.swap(text);
  });
  ExitAtSignal(config.ready_file);
  ExitAfter(config.server.lame_duck + config.server.drain_timeout + kAfterDrain,
            config.ready_file, [log] {
              log->Write(
                  LogLevel::kWarning,
                  "the drain is over, but the server has not ended: exiting");
              log->Flush(kForcedFlush);
            });
  log->Write(LogLevel::kInfo, "draining");
  (*server)->Drain();
  admin.reset();  // its pages use the server
  server->reset();
  log->Write(LogLevel::kInfo, "drained");
  return absl::OkStatus();
}

}  // namespace posenc::server
