#include "server/process/serve.h"

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "server/admin/admin_server.h"
#include "server/base/machine.h"
#include "server/base/ready_file.h"
#include "server/base/version.h"
#include "server/config/check.h"
#include "server/config/keys.h"
#include "server/config/print.h"
#include "server/log/call_log.h"
#include "server/log/grpc_log.h"
#include "server/log/log.h"
#include "server/metrics/exposition.h"
#include "server/process/forced_exit.h"
#include "server/process/stdin_end.h"
#include "server/scheduling/limits.h"
#include "server/service/server.h"
#include "server/trace/traces.h"

namespace posenc::server {
namespace {

constexpr absl::Duration kLastFlush = absl::Milliseconds(500);

// After a drain, the process flushes its log and ends within this time, even if
// calls are left. If clients keep calling a busy machine, the destruction of
// the calls may take many seconds.
constexpr absl::Duration kAfterDrain = absl::Milliseconds(500);
constexpr absl::Duration kForcedFlush = absl::Milliseconds(100);

// Returns at SIGTERM or SIGINT. Until then, calls `reload` at SIGHUP, and
// EverySecond() every second.
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
      server->EverySecond();
    }
  }
}

void WriteRefusal(const absl::Status& status, Log* log) {
  log->Write(LogLevel::kError,
             "configuration not reloaded; everything stays as it was",
             {{"error", status.message()}});
}

// Applies the keys of `fresh` that may change at run time, and stores them in
// `running`. Logs the changes in one line, and keys that need a restart in
// another line. If `fresh` is an error or inconsistent, nothing changes.
void Reload(const absl::StatusOr<LoadedConfig>& fresh, LoadedConfig* running,
            Server* server, Log* log, CallLog* calls) {
  if (!fresh.ok()) return WriteRefusal(fresh.status(), log);
  LoadedConfig next = *running;
  const ConfigChanges changes = TakeChanges(fresh->config, &next.config);
  // The new values are checked together with the old values of keys that need a
  // restart. Certificates and tokens are always read again, even if no key
  // changed. If their files have an error, other keys still change.
  const absl::Status status =
      WithSource(server->Reload(next.config.server), *fresh);
  if (!status.ok()) return WriteRefusal(status, log);
  for (std::size_t i = 0; i < Keys().size(); ++i) {
    if (Keys()[i].reloads) next.sources[i] = fresh->sources[i];
  }
  *running = next;
  const LogOptions& options = running->config.log;
  // The line about the changes is written if the old or the new level allows
  // it.
  const bool was = log->Writes(LogLevel::kInfo);
  if (!was) log->set_level(*ParseLogLevel(options.level));
  calls->set_fraction(options.calls);
  std::vector<LogField> fields;
  fields.reserve(changes.taken.size());
  for (const ConfigChange& change : changes.taken) {
    fields.push_back({change.key, absl::string_view(change.values)});
  }
  log->Write(LogLevel::kInfo, "configuration reloaded", fields);
  if (!changes.ignored.empty()) {
    const std::string keys = absl::StrJoin(changes.ignored, ", ");
    log->Write(LogLevel::kWarning,
               "some keys that changed need a restart; they keep their "
               "values",
               {{"keys", absl::string_view(keys)}});
  }
  log->set_level(*ParseLogLevel(options.level));
}

// Silences gRPC's log during the start, unless GRPC_VERBOSITY is set, because
// gRPC's bind errors are a page long. Our own error is one line.
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

std::function<void(Notice, absl::string_view)> NoticesTo(
    const std::shared_ptr<Log>& log) {
  return [log](Notice notice, absl::string_view line) {
    log->Write(notice == Notice::kInfo ? LogLevel::kInfo : LogLevel::kWarning,
               line);
  };
}

// Returns null if the configuration has no admin port.
absl::StatusOr<std::unique_ptr<AdminServer>> StartAdmin(const Config& config,
                                                        AdminPages pages) {
  if (config.admin.empty()) return nullptr;
  return AdminServer::Start(
      {.address = config.admin, .hosts = config.admin_hosts}, std::move(pages));
}

// `admin` is null if the configuration has no admin port.
void LogStart(const LoadedConfig& running,
              const std::vector<std::string>& addresses,
              const AdminServer* admin, const char* instruction_set, Log* log) {
  for (const std::string& warning : running.warnings) {
    log->Write(LogLevel::kWarning, warning);
  }
  for (const std::string& doubt : Doubts(running.config)) {
    log->Write(LogLevel::kWarning, doubt);
  }
  const ServerOptions& options = running.config.server;
  const std::string interval =
      absl::FormatDuration(options.connections.keepalive_min_interval);
  log->Write(LogLevel::kInfo,
             absl::StrCat("posencd ", kVersion, " listening on ",
                          absl::StrJoin(addresses, ", "), "; instruction set ",
                          instruction_set),
             {{"threads", std::int64_t{WithDefaults(options.limits).threads}},
              {"usable_cpus", std::int64_t{UsableCpus()}},
              {"keepalive_min_interval", absl::string_view(interval)}});
  if (admin == nullptr) return;
  log->Write(LogLevel::kInfo, absl::StrCat("admin port on ", admin->address()));
}

// Makes the process end immediately at a signal, or if the drain takes too
// long.
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
  CallMetrics metrics(config.server.extra_service.served());
  std::shared_ptr<CallObserver> traces;
  if (!config.otlp_endpoint.empty()) {
    auto started = StartTraces(config.otlp_endpoint);
    if (!started.ok()) return WithSource(started.status(), running);
    traces = *std::move(started);
  }
  config.server.observers = {&calls, &metrics};
  if (traces != nullptr) config.server.observers.push_back(traces.get());
  config.server.notice = NoticesTo(log);
  absl::StatusOr<std::unique_ptr<Server>> server =
      StartServer(config.server, log);
  if (!server.ok()) return WithSource(server.status(), running);
  std::mutex page_mutex;
  std::string page = ConfigText(running);  // guarded by page_mutex
  absl::StatusOr<std::unique_ptr<AdminServer>> admin = StartAdmin(
      config, {.metrics =
                   [&, instruction_set] {
                     ServerStatus status = (*server)->Status();
                     status.log_lines_dropped = log->dropped();
                     return MetricsText(metrics, status, instruction_set);
                   },
               .config =
                   [&page_mutex, &page] {
                     const std::lock_guard<std::mutex> lock(page_mutex);
                     return page;
                   },
               .ready = [&server] { return (*server)->Status().ready; }});
  if (!admin.ok()) return WithSource(admin.status(), running);
  LogStart(running, (*server)->addresses(), admin->get(), instruction_set,
           log.get());
  const ReadyFile ready_file(config.ready_file);
  RETURN_IF_ERROR(ready_file.Write((*server)->addresses()));

  if (config.exit_with_stdin) StopAtEndOfStdin();
  AwaitStop(server->get(), [&] {
    Reload(load_again(), &running, server->get(), log.get(), &calls);
    const std::lock_guard<std::mutex> lock(page_mutex);
    page = ConfigText(running);
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
