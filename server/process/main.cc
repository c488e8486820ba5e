// posencd: the server.

#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/simd/dispatch.h"
#include "server/adapters/kserve/kserve_service.h"
#include "server/config/check.h"
#include "server/config/load.h"
#include "server/health/probe.h"
#include "server/log/grpc_log.h"
#include "server/memory/heap.h"
#include "server/process/self_test.h"
#include "server/process/serve.h"
#include "server/process/stdin_end.h"
#include "server/process/threads.h"

namespace posenc::server {
namespace {

// The default timeout of Kubernetes' probes.
constexpr absl::Duration kProbeTimeout = absl::Seconds(1);

int Fail(int code, absl::string_view message) {
  std::fprintf(stderr, "posencd: %.*s\n", static_cast<int>(message.size()),
               message.data());
  return code;
}

void Warn(absl::string_view message) {
  Fail(0, absl::StrCat("warning: ", message));
}

int Show(absl::string_view text) {
  const bool shown =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
      std::fflush(stdout) == 0;
  return shown ? 0 : kFailed;
}

absl::StatusOr<const simd::KernelTable*> Kernels() {
  const char* const forced = std::getenv("POSENC_FORCE_ISA");
  return simd::SelectKernels(forced == nullptr ? "" : forced);
}

int CheckAndSay(const LoadedConfig& loaded) {
  absl::Status valid = WithSource(CheckConfig(loaded.config), loaded);
  if (valid.ok()) valid = Kernels().status();
  if (!valid.ok()) return Fail(kUsage, valid.message());
  for (const std::string& warning : loaded.warnings) Warn(warning);
  for (const std::string& doubt : Doubts(loaded.config)) Warn(doubt);
  return Show("configuration is valid\n");
}

int ServeAndSay(const LoadedConfig& loaded, int argc, char** argv) {
  const absl::Status valid = WithSource(CheckConfig(loaded.config), loaded);
  if (!valid.ok()) return Fail(kUsage, valid.message());
  const absl::StatusOr<const simd::KernelTable*> kernels = Kernels();
  if (!kernels.ok()) return Fail(kUsage, kernels.status().message());
  const absl::Status threads = CheckThreads(
      ThreadsOf(WithDefaults(loaded.config.server.limits).threads));
  if (!threads.ok()) return Fail(kFailed, threads.message());
  if (loaded.config.exit_with_stdin) {
    const absl::Status input = CheckStdin();
    if (!input.ok()) return Fail(kUsage, input.message());
  }
  const absl::Status right = SelfTest();
  if (!right.ok()) return Fail(kFailed, right.message());
  const absl::Status served = Serve(loaded, (*kernels)->name, [argc, argv] {
    return LoadConfig(argc, argv, environ);
  });
  if (served.ok()) return 0;
  return Fail(absl::IsInternal(served) ? kFailed : kUsage, served.message());
}

// Opens the standard streams that are closed. Otherwise a socket could get the
// descriptor of standard output, and the log would be written into the socket.
// CheckStdin() recognises that standard input was closed, because this
// /dev/null is open only for writing.
void OpenStandardStreams() {
  int fd = open("/dev/null", O_WRONLY);
  while (fd >= 0 && fd <= STDERR_FILENO) fd = open("/dev/null", O_WRONLY);
  if (fd > STDERR_FILENO) close(fd);
}

// Raises the limit of open descriptors. The soft limit of a new process (1024)
// is meant for programs that call select().
void RaiseDescriptorLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

void PrepareProcess() {
  OpenStandardStreams();
  KeepFreedMemory();
  RaiseDescriptorLimit();
  // Debian builds abseil with its deadlock detector enabled. The detector
  // records every lock of gRPC in one graph, which takes a seventh of a small
  // call's time.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  // Blocks the signals before any thread starts. All threads inherit the mask,
  // so only the thread in sigwait gets the signals.
  const sigset_t signals = ServeSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);  // the reader of the log may end
}

int Run(int argc, char** argv) {
  PrepareProcess();
  absl::StatusOr<LoadedConfig> loaded = LoadConfig(argc, argv, environ);
  if (!loaded.ok()) return Fail(kUsage, loaded.status().message());
  Config& config = loaded->config;
  config.server.extra_service = KserveService();
  // Keeps the service's descriptor even if the service is switched off, because
  // tokens may still name its RPCs.
  if (!config.kserve) config.server.extra_service.make = nullptr;
  switch (loaded->task) {
    case Task::kShow:
      return Show(loaded->text);
    case Task::kCheckConfig:
      return CheckAndSay(*loaded);
    case Task::kServe:
      break;
  }
  if (config.probe.empty()) return ServeAndSay(*loaded, argc, argv);
  // The probe prints an error as one line, without the log of gRPC.
  if (std::getenv("GRPC_VERBOSITY") == nullptr) SilenceGrpcLog();
  ProbeTls tls = config.probe_tls;
  tls.cert = config.server.tls.cert;
  tls.key = config.server.tls.key;
  const absl::Status health =
      Probe(config.probe, config.probe_service, tls, kProbeTimeout);
  if (health.ok()) return 0;
  return Fail(absl::IsInvalidArgument(health) ? kUsage : kFailed,
              WithSource(health, *loaded).message());
}

}  // namespace
}  // namespace posenc::server

int main(int argc, char** argv) {
  try {
    return posenc::server::Run(argc, argv);
  } catch (const std::exception& error) {
    return posenc::server::Fail(posenc::server::kFailed, error.what());
  }
}
