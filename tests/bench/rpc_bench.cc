// posenc-rpc-bench: ApplyRope over sockets, compared with plain echo of the
// same bytes, an empty handler, and servers that people would write themselves.
//
// Every case has its own server process, pinned to one core; one client, pinned
// to another core, calls them all. Cases of a block alternate, round by round.
// The program prints the median of each case's rounds, and the median of their
// ratios to the rounds of another case. A ratio, unlike a time, can be compared
// between machines and noisy runs.

#include <malloc.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "tests/bench/bench_clients.h"
#include "tests/bench/bench_process.h"
#include "tests/bench/rpc_report.h"

namespace posenc::bench {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

struct Peer {
  std::string name;
  std::vector<std::string> command;
  bool plain = false;  // uses plain sockets, else gRPC
  Answer answer = Answer::kRotated;
};

struct Plan {
  int rounds = 7;
  double seconds = 0.25;  // time of a case in a round
  int at_least = 2;       // calls
  int server_core = -1;
};

// A server, its client and their results; a server that does not start, or
// answers wrongly, has no numbers.
class Case {
 public:
  Case(const Peer& peer, Result settings, const Plan& plan,
       const std::string& directory)
      : result_(std::move(settings)),
        server_(peer.command, directory, plan.server_core) {
    result_.name = peer.name;
    if (!server_.WaitReady()) {
      result_.absent = "did not start: " + server_.log();
      return;
    }
    const std::string& address =
        result_.transport == "tcp" && peer.answer != Answer::kShared
            ? server_.tcp()
            : server_.unix();
    client_ = peer.plain ? PlainClient(address, result_.bytes)
                         : UnaryClient(address, result_.bytes,
                                       result_.in_flight, peer.answer);
    result_.absent = client_->Check();
  }

  // Calls until allocators and windows have settled.
  void WarmUp() {
    if (result_.absent.empty()) client_->Run(0.1, 3);
  }

  void Round(const Plan& plan) {
    if (!result_.absent.empty()) return;
    const Usage before = server_.usage();
    Sample sample = client_->Run(plan.seconds, plan.at_least);
    const Usage after = server_.usage();
    if (sample.latencies.empty() || sample.seconds <= 0) {
      result_.absent = "a call failed";
      return;
    }
    const double calls = static_cast<double>(sample.latencies.size());
    result_.calls_per_second.push_back(calls / sample.seconds);
    result_.latencies.insert(result_.latencies.end(), sample.latencies.begin(),
                             sample.latencies.end());
    result_.calls += calls;
    result_.cpu_seconds += after.cpu_seconds - before.cpu_seconds;
    result_.faults += after.minor_faults - before.minor_faults;
  }

  Result Finish() {
    result_.peak_resident_bytes = server_.peak_resident_bytes();
    return result_;
  }

 private:
  Result result_;
  ServerProcess server_;
  std::unique_ptr<Client> client_;
};

// Cases that alternate.
struct Block {
  std::string transport;
  std::int64_t bytes;
  int in_flight = 1;
};

void Measure(const Block& block, const std::vector<Peer>& peers,
             const Plan& plan, const std::string& directory,
             std::vector<Result>* results) {
  std::vector<std::unique_ptr<Case>> cases;
  for (const Peer& peer : peers) {
    // Plain sockets carry one call at a time. In place, concurrent calls would
    // change the same bytes.
    if ((peer.plain || peer.answer == Answer::kShared) && block.in_flight > 1) {
      continue;
    }
    Result settings;
    settings.transport = block.transport;
    settings.bytes = block.bytes;
    settings.in_flight = block.in_flight;
    cases.push_back(std::make_unique<Case>(peer, settings, plan, directory));
  }
  for (const auto& c : cases) c->WarmUp();
  for (int round = 0; round < plan.rounds; ++round) {
    for (std::size_t i = 0; i < cases.size(); ++i) {
      // Alternates the order, so that no case always follows the same one.
      cases[round % 2 == 0 ? i : cases.size() - 1 - i]->Round(plan);
    }
  }
  for (const auto& c : cases) results->push_back(c->Finish());
  std::fprintf(stderr, ".");
}

std::vector<std::string> Words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::vector<Peer> Peers(const std::string& bin,
                        const std::vector<std::string>& others) {
  const auto own = [&](const char* name) {
    return std::vector<std::string>{bin + "/posenc-bench-" + name, "UNIX_PATH",
                                    "READY_FILE"};
  };
  std::vector<std::string> pass = own("plain");
  pass.push_back("pass");
  const std::vector<std::string> posencd = {
      bin + "/posencd", "--listen=127.0.0.1:0", "--listen=unix:UNIX_PATH",
      "--ready-file=READY_FILE",
      absl::StrCat("--shared-memory-prefix=", kSharedPrefix)};
  std::vector<Peer> peers = {
      {"base", own("plain"), true},
      {"base+pass", pass, true},
      {"empty", own("empty"), false, Answer::kEcho},
      {"posenc", posencd},
      {"posenc shared", posencd, false, Answer::kShared},
      {"generated sync", own("generated")},
  };
  for (const std::string& other : others) {
    const std::size_t equals = other.find('=');
    peers.push_back({other.substr(0, equals), Words(other.substr(equals + 1))});
  }
  return peers;
}

// Cores that this process may use.
std::vector<int> Cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

// Pins this process, before any thread starts, and returns the core for
// servers.
int Pin() {
  const std::vector<int> cores = Cores();
  if (cores.size() < 2) {
    std::printf("Server and client share the only core.\n");
    return -1;
  }
  cpu_set_t client;
  CPU_ZERO(&client);
  CPU_SET(cores[1], &client);
  sched_setaffinity(0, sizeof(client), &client);
  std::printf("Servers on core %d, client on core %d.\n", cores[0], cores[1]);
  return cores[0];
}

int Run(int argc, char** argv) {
  std::string json;
  bool quick = false;
  std::vector<std::string> others, only;
  std::vector<std::int64_t> sizes;
  CLI::App app("ApplyRope over sockets against plain echo and others",
               "posenc-rpc-bench");
  app.add_option("--json", json, "also write rows to this file");
  app.add_flag("--short", quick, "three short rounds; more noise");
  app.add_option("--peer", others,
                 "NAME=COMMAND of another server; UNIX_PATH and READY_FILE in "
                 "it are replaced");
  app.add_option("--only", only, "cases to measure, by name (default: all)")
      ->delimiter(',');
  app.add_option("--bytes", sizes,
                 "tensors to measure, by their bytes (default: all)")
      ->delimiter(',');
  CLI11_PARSE(app, argc, argv);

  Plan plan;
  if (quick) plan = {3, 0.08, 1};
  plan.server_core = Pin();
  double load = 0;
  getloadavg(&load, 1);
  std::printf(
      "Load of the machine before: %.2f. Median of %d interleaved rounds; "
      "+-: half of their range.\n",
      load, plan.rounds);
  if (load > 0.5) std::printf("Others use the cores: do not trust these.\n");
  std::fflush(stdout);

  const std::string bin =
      std::filesystem::read_symlink("/proc/self/exe").parent_path();
  std::vector<Peer> peers = Peers(bin, others);
  if (!only.empty()) {
    std::erase_if(peers, [&](const Peer& peer) {
      return std::find(only.begin(), only.end(), peer.name) == only.end();
    });
  }
  char directory[] = "/tmp/posenc-bench-XXXXXX";
  if (mkdtemp(directory) == nullptr) return 1;
  std::vector<Result> results;
  const auto measure = [&](const Block& block) {
    if (sizes.empty() ||
        std::find(sizes.begin(), sizes.end(), block.bytes) != sizes.end()) {
      Measure(block, peers, plan, directory, &results);
    }
  };
  for (const char* const transport : {"tcp", "unix"}) {
    for (const std::int64_t mebibytes : {1, 16, 64}) {
      measure({transport, mebibytes * kMiB});
    }
  }
  measure({"unix", 16 << 10});
  measure({"tcp", kMiB, 4});
  measure({"tcp", 4096, 64});
  std::fprintf(stderr, "\n");
  std::filesystem::remove_all(directory);
  PrintTable(results);
  if (json.empty() || WriteJson(results, json)) return 0;
  std::fprintf(stderr, "posenc-rpc-bench: cannot write %s\n", json.c_str());
  return 1;
}

}  // namespace
}  // namespace posenc::bench

int main(int argc, char** argv) {
  // Keeps the memory of answers, so that it is not faulted in again.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  mallopt(M_TOP_PAD, 64 << 20);
  mallopt(M_ARENA_MAX, 1);
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  return posenc::bench::Run(argc, argv);
}
