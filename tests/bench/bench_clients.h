// The benchmark's clients: one for plain sockets, one for gRPC, so that only
// servers differ. Requests are built once and never copied; answers are
// received, counted and dropped. Only the first answer is checked.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace posenc::bench {

// Calls of one client in a period of time.
struct Sample {
  double seconds = 0;
  std::vector<double> latencies;  // in seconds, one per call
};

class Client {
 public:
  virtual ~Client() = default;
  // Makes one call and checks its answer. Returns "" if it is correct, "not
  // served" if the server has no such RPC, else what is wrong.
  virtual std::string Check() = 0;
  // Calls for `seconds`, and at least `at_least` times.
  virtual Sample Run(double seconds, int at_least) = 0;
};

// kShared: rotated in place in shared memory, by a call of some hundred bytes.
enum class Answer { kEcho, kRotated, kShared };

// Sends messages of `bytes`, which the server echoes or multiplies.
std::unique_ptr<Client> PlainClient(const std::string& address,
                                    std::int64_t bytes);

// Calls ApplyRope with `bytes` of float32, `in_flight` calls at a time.
std::unique_ptr<Client> UnaryClient(const std::string& address,
                                    std::int64_t bytes, int in_flight,
                                    Answer answer);

// The prefix of file names in shared memory.
inline constexpr char kSharedPrefix[] = "/dev/shm/posenc_bench_";

}  // namespace posenc::bench
