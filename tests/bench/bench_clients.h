// The benchmark's clients: one for plain sockets, one for gRPC, so that only
// servers differ. Requests are built once and never copied; answers are
// received, counted and dropped, but for the first, which is checked.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace posenc::bench {

// Calls of one client in a stretch of time.
struct Sample {
  double seconds = 0;
  std::vector<double> latencies;  // in seconds, one per call
};

class Client {
 public:
  virtual ~Client() = default;
  // One call whose answer is checked. Empty: as expected; "not served": the
  // server has no such RPC; else what is wrong.
  virtual std::string Check() = 0;
  // Calls for so long, `at_least` of them.
  virtual Sample Run(double seconds, int at_least) = 0;
};

// kRepaired: rotated, and from halves to interleaved pairs, so that the result
// cannot replace the request in its memory. kInferred: rotated, in KServe's
// protocol. kShared: rotated in place, in shared memory, over a call of some
// hundred bytes.
enum class Answer { kEcho, kRotated, kRepaired, kInferred, kShared };

// Messages of `bytes`, echoed or multiplied.
std::unique_ptr<Client> PlainClient(const std::string& address,
                                    std::int64_t bytes);

// ApplyRope of `bytes` of float32, `in_flight` calls at a time, spread over
// `channels` connections.
std::unique_ptr<Client> UnaryClient(const std::string& address,
                                    std::int64_t bytes, int in_flight,
                                    int channels, Answer answer);

// ApplyRopeStream of `bytes` in all, in chunks.
std::unique_ptr<Client> StreamClient(const std::string& address,
                                     std::int64_t bytes,
                                     std::int64_t chunk_bytes, Answer answer);

// No calls: the kernel alone, in this process and thread, in place over `bytes`
// of shared memory.
std::unique_ptr<Client> KernelClient(std::int64_t bytes);

// What names of files in shared memory begin with.
inline constexpr char kSharedPrefix[] = "/dev/shm/posenc_bench_";

}  // namespace posenc::bench
