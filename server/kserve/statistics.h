// Statistics of a model for ModelStatistics: numbers and times since the start.

#pragma once

#include <mutex>

#include "absl/time/time.h"
#include "inference/inference.pb.h"

namespace posenc::server {

// The parts of a request's time, in their order.
struct InferTimes {
  absl::Duration queue;   // waiting for a place and memory
  absl::Duration input;   // parsing and checking
  absl::Duration infer;   // computing
  absl::Duration output;  // framing
};

// Safe for many threads.
class ModelCounts {
 public:
  ModelCounts();
  // If the request failed, its times are those until the failure.
  void Add(const InferTimes& times, bool succeeded);
  // Returns all fields except name and version.
  inference::ModelStatistics Told() const;

 private:
  mutable std::mutex mutex_;
  inference::ModelStatistics sums_;
};

}  // namespace posenc::server
