// What ModelStatistics tells of a model: numbers and times since the start.

#pragma once

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
  ModelCounts();
  // Of a request that failed, the times are those that it got through.
  void Add(const InferTimes& times, bool succeeded);
  // All but name and version.
  inference::ModelStatistics Told() const;

 private:
  mutable std::mutex mutex_;
  inference::ModelStatistics sums_;
};

}  // namespace posenc::server
