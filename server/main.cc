// posencd: the server.

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "core/simd/dispatch.h"
#include "google/protobuf/stubs/logging.h"
#include "server/memory.h"
#include "server/server.h"

namespace {

// Exit codes, beside 0: failed while running, bad flags or environment.
constexpr int kFailed = 1;
constexpr int kUsage = 2;

int Fail(int code, absl::string_view message) {
  std::fprintf(stderr, "posencd: %.*s\n", static_cast<int>(message.size()),
               message.data());
  return code;
}

// "64MiB", "1024". False for anything else, and for what int64 cannot hold.
bool ParseBytes(absl::string_view text, std::int64_t* bytes) {
  int shift = 0;
  if (absl::ConsumeSuffix(&text, "KiB")) {
    shift = 10;
  } else if (absl::ConsumeSuffix(&text, "MiB")) {
    shift = 20;
  } else if (absl::ConsumeSuffix(&text, "GiB")) {
    shift = 30;
  }
  std::int64_t count = 0;
  if (!absl::SimpleAtoi(text, &count) || count < 0 ||
      count > (INT64_MAX >> shift)) {
    return false;
  }
  *bytes = count << shift;
  return true;
}

std::string CheckBytes(const std::string& text) {
  std::int64_t bytes;
  return ParseBytes(text, &bytes)
             ? ""
             : absl::StrCat("'", text,
                            "' is not a size; expected bytes or KiB, MiB, GiB "
                            "as in 64MiB");
}

bool ParseTimeout(const std::string& text, absl::Duration* duration) {
  return absl::ParseDuration(text, duration) &&
         *duration >= absl::ZeroDuration() &&
         *duration < absl::InfiniteDuration();
}

std::string CheckTimeout(const std::string& text) {
  absl::Duration duration;
  return ParseTimeout(text, &duration)
             ? ""
             : absl::StrCat("'", text,
                            "' is not a duration; expected a number with ms, "
                            "s or m as in 30s");
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

// Returns at the first signal; gives memory back meanwhile, a second after the
// last call.
void AwaitSignal(const sigset_t& signals,
                 const posenc::server::Server& server) {
  bool busy = false;
  while (true) {
    const timespec second = {.tv_sec = 1, .tv_nsec = 0};
    if (sigtimedwait(&signals, nullptr, &second) >= 0) return;
    const bool was_busy = busy;
    busy = server.BytesServed() != 0;
    if (was_busy && !busy) posenc::server::ReturnFreedMemory();
  }
}

int Serve(const posenc::server::ServerOptions& options,
          const std::string& ready_file, const sigset_t& stop_signals,
          const char* instruction_set) {
  absl::StatusOr<std::unique_ptr<posenc::server::Server>> server =
      posenc::server::Server::Start(options);
  if (!server.ok()) {
    return Fail(absl::IsInvalidArgument(server.status()) ? kUsage : kFailed,
                server.status().message());
  }
  const std::vector<std::string>& addresses = (*server)->addresses();
  std::printf("posencd %s listening on %s; instruction set %s\n",
              posenc::server::kVersion, absl::StrJoin(addresses, ", ").c_str(),
              instruction_set);
  std::fflush(stdout);
  if (!ready_file.empty() && !WriteReadyFile(ready_file, addresses)) {
    return Fail(kFailed,
                absl::StrCat("--ready-file: cannot write ", ready_file));
  }

  AwaitSignal(stop_signals, **server);
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

int Run(int argc, char** argv) {
  posenc::server::KeepFreedMemory();
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

  posenc::server::ServerOptions options;
  options.listen = {"127.0.0.1:50051"};
  std::string max_request = "512MiB";
  std::string max_response = "512MiB";
  std::string in_flight;
  std::string default_deadline = "5m";
  std::string lame_duck = "0s";
  std::string drain_timeout = "30s";
  std::string ready_file;

  CLI::App app("Positional encodings over gRPC", "posencd");
  app.set_version_flag("--version",
                       absl::StrCat("posencd ", posenc::server::kVersion));
  app.add_option("--listen", options.listen,
                 "host:port (port 0: any free one), [ipv6]:port or unix:/path; "
                 "may be repeated")
      ->capture_default_str();
  app.add_flag("--allow-insecure", options.allow_insecure,
               "serve plaintext on other addresses than loopback");
  app.add_option("--max-request-bytes", max_request, "largest request")
      ->check(CheckBytes)
      ->capture_default_str();
  app.add_option("--max-response-bytes", max_response, "largest response")
      ->check(CheckBytes)
      ->capture_default_str();
  app.add_option("--in-flight-bytes", in_flight,
                 "messages in flight at any time; calls wait for room before "
                 "they are read (default: half of the machine's memory)")
      ->check(CheckBytes);
  app.add_option("--max-waiting", options.max_waiting,
                 "calls that may wait for room; more are refused")
      ->capture_default_str();
  app.add_option("--default-deadline", default_deadline,
                 "of a call whose client sets none")
      ->check(CheckTimeout)
      ->capture_default_str();
  app.add_option("--threads", options.threads,
                 "for computations (default: as many as there are cores)");
  app.add_option("--lame-duck", lame_duck,
                 "how long calls are still taken after SIGTERM or SIGINT, "
                 "while readiness is off already")
      ->check(CheckTimeout)
      ->capture_default_str();
  app.add_option("--drain-timeout", drain_timeout,
                 "how long calls may take to finish after that")
      ->check(CheckTimeout)
      ->capture_default_str();
  app.add_option("--ready-file", ready_file,
                 "written once serving: one bound address a line");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    return Fail(kUsage, absl::StrCat(error.what(), "; see --help"));
  }
  ParseBytes(max_request, &options.max_request_bytes);
  ParseBytes(max_response, &options.max_response_bytes);
  if (!in_flight.empty()) ParseBytes(in_flight, &options.in_flight_bytes);
  ParseTimeout(default_deadline, &options.default_deadline);
  ParseTimeout(lame_duck, &options.lame_duck);
  ParseTimeout(drain_timeout, &options.drain_timeout);

  const char* const forced = std::getenv("POSENC_FORCE_ISA");
  const absl::StatusOr<const posenc::simd::KernelTable*> kernels =
      posenc::simd::SelectKernels(forced == nullptr ? "" : forced);
  if (!kernels.ok()) return Fail(kUsage, kernels.status().message());
  return Serve(options, ready_file, stop_signals, (*kernels)->name);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return Run(argc, argv);
  } catch (const std::exception& error) {
    return Fail(kFailed, error.what());
  }
}
