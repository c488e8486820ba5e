// posencd: the server.

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/simd/dispatch.h"
#include "google/protobuf/stubs/logging.h"
#include "grpc/support/log.h"
#include "server/budget/limits.h"
#include "server/budget/machine.h"
#include "server/flags.h"
#include "server/listen/connection_limits.h"
#include "server/memory/heap.h"
#include "server/probe.h"
#include "server/self_test.h"
#include "server/server.h"
#include "server/version.h"

namespace {

// Exit codes beside 0: kFailed while running, or for a probe that finds the
// server not healthy; kUsage for bad flags or environment.
constexpr int kFailed = 1;
constexpr int kUsage = 2;

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

// Writes the file under another name first, so that readers see the whole file
// or none.
bool WriteReadyFile(const std::string& path,
                    const std::vector<std::string>& addresses) {
  const std::string temporary = absl::StrCat(path, ".", getpid());
  std::FILE* const file = std::fopen(temporary.c_str(), "we");
  if (file == nullptr) return false;
  bool written = true;
  for (const std::string& address : addresses) {
    written = std::fprintf(file, "%s\n", address.c_str()) > 0 && written;
  }
  written = std::fclose(file) == 0 && written;
  if (written && std::rename(temporary.c_str(), path.c_str()) == 0) return true;
  std::remove(temporary.c_str());
  return false;
}

// Returns at the first signal.
void AwaitSignal(const sigset_t& signals, posenc::server::Server* server) {
  const timespec pause = {.tv_sec = 10, .tv_nsec = 0};
  while (sigtimedwait(&signals, nullptr, &pause) < 0) {
    server->ReturnUnneededMemory();
  }
}

int Serve(const posenc::server::Flags& flags, const sigset_t& stop_signals,
          const char* instruction_set) {
  // Silences gRPC's page-long bind errors, unless GRPC_VERBOSITY asks for its
  // log: our own error is one line.
  const bool quiet = std::getenv("GRPC_VERBOSITY") == nullptr;
  if (quiet) gpr_set_log_function([](gpr_log_func_args*) {});
  absl::StatusOr<std::unique_ptr<posenc::server::Server>> server =
      posenc::server::Server::Start(flags.options);
  if (quiet) gpr_set_log_function(nullptr);
  // A bad option, or an address that cannot be bound.
  if (!server.ok()) return Fail(kUsage, server.status().message());
  const std::string& ready_file = flags.ready_file;
  const std::vector<std::string>& addresses = (*server)->addresses();
  std::printf("posencd %s listening on %s; instruction set %s\n",
              posenc::server::kVersion, absl::StrJoin(addresses, ", ").c_str(),
              instruction_set);
  std::fflush(stdout);
  if (!ready_file.empty() && !WriteReadyFile(ready_file, addresses)) {
    return Fail(kFailed,
                absl::StrCat("--ready-file: cannot write ", ready_file));
  }

  AwaitSignal(stop_signals, server->get());
  std::thread([stop_signals, ready_file] {
    int again = 0;
    sigwait(&stop_signals, &again);
    if (!ready_file.empty()) unlink(ready_file.c_str());
    _exit(128 + again);  // as a shell reports death by signal
  }).detach();
  (*server)->Drain();
  server->reset();
  if (!ready_file.empty()) unlink(ready_file.c_str());
  return 0;
}

// Warns of limits that the machine, or the container, does not have: an
// operator should learn it now and not when the kernel ends the process.
void WarnOfLimits(const posenc::server::ServerOptions& options) {
  const std::int64_t memory = posenc::server::UsableMemory();
  const std::int64_t budget =
      posenc::server::WithDefaults(options.limits).in_flight_bytes;
  if (budget > memory) {
    Warn(absl::StrCat("--in-flight-bytes: ", budget,
                      " bytes, but the memory limit is ", memory,
                      "; a full server would be killed"));
  }
  const int cpus = posenc::server::UsableCpus();
  if (options.limits.threads > cpus) {
    Warn(absl::StrCat("--threads: ", options.limits.threads,
                      ", but the CPU limit is ", cpus));
  }
}

int Run(int argc, char** argv) {
  posenc::server::KeepFreedMemory();
  posenc::server::RaiseDescriptorLimit();
  // Debian builds abseil with its deadlock detector on. Every lock that gRPC
  // takes then goes through one graph, which costs a seventh of a small call's
  // time.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  // Protobuf would log whatever strings a peer sends.
  google::protobuf::SetLogHandler(nullptr);
  // Blocks the signals before any thread starts: all threads inherit the mask,
  // and one sigwait gets the signals.
  sigset_t stop_signals;
  sigemptyset(&stop_signals);
  sigaddset(&stop_signals, SIGTERM);
  sigaddset(&stop_signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &stop_signals, nullptr);
  signal(SIGPIPE, SIG_IGN);  // a log's reader may go away

  int exit_code = 0;
  std::string error;
  const std::optional<posenc::server::Flags> flags =
      posenc::server::ParseFlags(argc, argv, &exit_code, &error);
  if (!flags.has_value()) {
    return error.empty() ? exit_code : Fail(exit_code, error);
  }
  if (!flags->probe.empty()) {
    const absl::Status health = posenc::server::Probe(
        flags->probe, flags->probe_service, kProbeTimeout);
    return health.ok() ? 0 : Fail(kFailed, health.message());
  }

  const char* const forced = std::getenv("POSENC_FORCE_ISA");
  const absl::StatusOr<const posenc::simd::KernelTable*> kernels =
      posenc::simd::SelectKernels(forced == nullptr ? "" : forced);
  if (!kernels.ok()) return Fail(kUsage, kernels.status().message());
  const absl::Status right = posenc::server::SelfTest();
  if (!right.ok()) return Fail(kFailed, right.message());
  WarnOfLimits(flags->options);
  return Serve(*flags, stop_signals, (*kernels)->name);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return Run(argc, argv);
  } catch (const std::exception& error) {
    return Fail(kFailed, error.what());
  }
}
