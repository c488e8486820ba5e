// What ModelStatistics tells of a model: numbers and times since the start.

#pragma once

#include <cstdint>
#include <mutex>

#include "absl/time/time.h"
#include "inference/inference.pb.h"

namespace posenc::server {

// The parts of a request's time, one after the other.
struct InferTimes {
  absl::Duration queue;   // waiting for turns and memory
  absl::Duration input;   // parsing and checking
  absl::Duration infer;   // computing
  absl::Duration output;  // framing
};

// Safe for many threads.
class ModelCounts {
 public:
  void Succeeded(const InferTimes& times);
  // What the request had got through by then.
  void Failed(const InferTimes& times);

  // All but name and version.
  void Tell(inference::ModelStatistics* statistics) const;

 private:
  struct Sum {
    std::uint64_t count = 0, ns = 0;
    void Add(absl::Duration time);
  };

  mutable std::mutex mutex_;
  Sum success_, fail_, queue_, input_, infer_, output_;
  absl::Time last_ = absl::UnixEpoch();
};

}  // namespace posenc::server
