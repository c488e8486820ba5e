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

// kRepaired: rotated and converted from half-split to interleaved pairs, so
// that the result cannot overwrite the request. kInferred: rotated, in KServe's
// protocol. kShared: rotated in place in shared memory, by a call of some
// hundred bytes.
enum class Answer { kEcho, kRotated, kRepaired, kInferred, kShared };

// Sends messages of `bytes`, which the server echoes or multiplies.
std::unique_ptr<Client> PlainClient(const std::string& address,
                                    std::int64_t bytes);

// Calls ApplyRope with `bytes` of float32, `in_flight` calls at a time, over
// `channels` connections.
std::unique_ptr<Client> UnaryClient(const std::string& address,
                                    std::int64_t bytes, int in_flight,
                                    int channels, Answer answer);

// Calls ApplyRopeStream with `bytes` in total, in chunks.
std::unique_ptr<Client> StreamClient(const std::string& address,
                                     std::int64_t bytes,
                                     std::int64_t chunk_bytes, Answer answer);

// Makes no calls: runs the kernel in this process and thread, in place over
// `bytes` of shared memory.
std::unique_ptr<Client> KernelClient(std::int64_t bytes);

// The prefix of file names in shared memory.
inline constexpr char kSharedPrefix[] = "/dev/shm/posenc_bench_";

}  // namespace posenc::bench
