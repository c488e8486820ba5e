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
#include "server/flags.h"
#include "server/machine.h"
#include "server/memory.h"
#include "server/probe.h"
#include "server/self_test.h"
#include "server/server.h"

namespace {

// Exit codes, beside 0: failed while running, or not healthy; bad flags or
// environment.
constexpr int kFailed = 1;
constexpr int kUsage = 2;

constexpr int kIdleSeconds = 10;

// Of Kubernetes' probes.
constexpr absl::Duration kProbeTimeout = absl::Seconds(1);

int Fail(int code, absl::string_view message) {
  std::fprintf(stderr, "posencd: %.*s\n", static_cast<int>(message.size()),
               message.data());
  return code;
}

void Warn(absl::string_view message) {
  Fail(0, absl::StrCat("warning: ", message));
}

// Readers see the whole file or none.
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

// Returns at the first signal; gives memory back meanwhile, where no call came
// for some time: bursts should not pay for its page faults again and again.
void AwaitSignal(const sigset_t& signals, posenc::server::Server* server) {
  std::int64_t quiet = kIdleSeconds;  // nothing to give back yet
  while (true) {
    const timespec second = {.tv_sec = 1, .tv_nsec = 0};
    if (sigtimedwait(&signals, nullptr, &second) >= 0) return;
    quiet = server->BytesServed() != 0 ? 0 : quiet + 1;
    if (quiet != kIdleSeconds) continue;
    server->ReturnKeptMemory();
    posenc::server::ReturnFreedMemory();
  }
}

int Serve(const posenc::server::Flags& flags, const sigset_t& stop_signals,
          const char* instruction_set) {
  // Ours says in one line why an address cannot be had; gRPC's, before it, says
  // so in a page, which those may see who ask for it.
  const bool quiet = std::getenv("GRPC_VERBOSITY") == nullptr;
  if (quiet) gpr_set_log_function([](gpr_log_func_args*) {});
  absl::StatusOr<std::unique_ptr<posenc::server::Server>> server =
      posenc::server::Server::Start(flags.options);
  if (quiet) gpr_set_log_function(nullptr);
  // An option, or an address that cannot be had.
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

// What the machine, or the container, does not have is better known at the
// start than when the kernel ends the process.
void WarnOfLimits(const posenc::server::ServerOptions& options) {
  const std::int64_t memory = posenc::server::UsableMemory();
  const std::int64_t budget = posenc::server::InFlightBytes(options);
  if (budget > memory) {
    Warn(absl::StrCat("--in-flight-bytes: ", budget,
                      " bytes, but the memory limit is ", memory,
                      "; a full server would be killed"));
  }
  const int cpus = posenc::server::UsableCpus();
  if (options.threads > cpus) {
    Warn(absl::StrCat("--threads: ", options.threads, ", but the CPU limit is ",
                      cpus));
  }
}

int Run(int argc, char** argv) {
  posenc::server::KeepFreedMemory();
  // Debian builds abseil with its detector of deadlocks on: every lock that
  // gRPC takes then goes through one graph, a seventh of a small call's time.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  // It would log whatever strings a peer sends.
  google::protobuf::SetLogHandler(nullptr);
  // Before any thread starts, so that all inherit the mask and one sigwait
  // gets them.
  sigset_t stop_signals;
  sigemptyset(&stop_signals);
  sigaddset(&stop_signals, SIGTERM);
  sigaddset(&stop_signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &stop_signals, nullptr);
  signal(SIGPIPE, SIG_IGN);  // a log reader that went away

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
