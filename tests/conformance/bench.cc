// posenc-client-bench TARGET CASE: how long ApplyRope takes through the C++
// client library, for ./run bench clients. Prints one line of JSON.
//
// CASE: unary64, unary1 (MiB of float32 in one message), stream256, and token1.
// token1 rotates one token of 16 KiB, so its peak memory is that of the program
// without large tensors. Results go to memory that the program already has. The
// first call is reported separately. The calls in the first two seconds
// (kWarmUp), and one call over each connection, are not measured.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "posenc/client.h"

namespace {

using Clock = std::chrono::steady_clock;

// The same in all clients' benchmarks: enough for virtual machines to compile
// the code, and for connections to grow their windows.
constexpr std::chrono::seconds kWarmUp(2);
constexpr int kConnections = 4;

// Returns the peak resident memory of this process.
std::int64_t PeakBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != "VmHWM:") continue;
    std::int64_t kib = 0;
    status >> kib;
    return kib * 1024;
  }
  return 0;
}

struct Case {
  std::int64_t sequence;  // q is [1, sequence, 32, 128]: 16 KiB a token
  bool stream;
  int calls;
};

int Main(const std::string& target, const std::string& name) {
  const std::map<std::string, Case> cases = {{"unary64", {4096, false, 5}},
                                             {"unary1", {64, false, 5}},
                                             {"token1", {1, false, 5}},
                                             {"stream256", {16384, true, 2}}};
  const auto found = cases.find(name);
  if (found == cases.end()) {
    std::fprintf(stderr, "posenc-client-bench: no case %s\n", name.c_str());
    return 2;
  }
  const Case& chosen = found->second;
  const std::vector<std::int64_t> shape = {1, chosen.sequence, 32, 128};
  const std::vector<float> q(chosen.sequence * 32 * 128, 1.0f);
  std::vector<float> out(q.size(), 0.0f);

  posenc::ClientOptions options;
  options.target = target;
  const posenc::Client client = posenc::Client::Connect(options);
  posenc::ApplyRopeArgs args;
  args.rope.mutable_spec()->set_pairing(posenc::v1::PAIRING_HALF_SPLIT);
  args.positions = posenc::StartAt(0);
  args.layout = posenc::v1::LAYOUT_BSHD;
  args.q = posenc::ViewOf(q, shape);
  args.q_out = posenc::OutputTo(absl::MakeSpan(out));

  const Clock::time_point begin = Clock::now();
  double first = 0;
  int calls = 0;
  std::vector<double> seconds;
  while (seconds.size() < static_cast<std::size_t>(chosen.calls)) {
    const Clock::time_point start = Clock::now();
    const absl::StatusOr<posenc::ApplyRopeResult> result =
        chosen.stream ? client.ApplyRopeStream(args) : client.ApplyRope(args);
    const std::chrono::duration<double> took = Clock::now() - start;
    if (!result.ok()) {
      std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
      return 1;
    }
    if (calls == 0) first = took.count();
    const bool warm = start - begin >= kWarmUp && calls >= kConnections;
    if (warm) seconds.push_back(took.count());
    ++calls;
  }
  std::sort(seconds.begin(), seconds.end());
  const double median =
      (seconds[(seconds.size() - 1) / 2] + seconds[seconds.size() / 2]) / 2;
  std::printf(
      "{\"client\":\"c++\",\"case\":\"%s\",\"seconds\":%.6f,"
      "\"first_seconds\":%.6f,\"peak_bytes\":%lld,\"tensor_bytes\":%lld}\n",
      name.c_str(), median, first, static_cast<long long>(PeakBytes()),
      static_cast<long long>(q.size() * sizeof(float)));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: posenc-client-bench TARGET CASE\n");
    return 2;
  }
  return Main(argv[1], argv[2]);
}
