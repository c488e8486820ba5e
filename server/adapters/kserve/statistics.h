// A model's statistics for ModelStatistics: counts and times since the start.

#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "inference/inference.pb.h"

namespace posenc::server {

// The parts of a request's time, in their order.
struct InferTimes {
  absl::Duration queue;   // waiting for a place and memory
  absl::Duration input;   // parsing and checking
  absl::Duration infer;   // computing
  absl::Duration output;  // making the answer's message
};

// Thread-safe.
class ModelCounts {
 public:
  // Sets every sum to 0, because clients read all sums. They read even the sums
  // for response caches, which this server does not have.
  ModelCounts() {
    inference::InferStatistics& sums = *sums_.mutable_inference_stats();
    for (int i = 0; i < sums.GetDescriptor()->field_count(); ++i) {
      sums.GetReflection()->MutableMessage(&sums,
                                           sums.GetDescriptor()->field(i));
    }
  }
  // Adds a request that has ended. If the request has failed, `times` has only
  // the time until the failure.
  void Add(const InferTimes& times, bool succeeded) {
    const std::int64_t now = absl::ToUnixMillis(absl::Now());
    const absl::Duration all =
        times.queue + times.input + times.infer + times.output;
    const std::lock_guard<std::mutex> lock(mutex_);
    inference::InferStatistics& sums = *sums_.mutable_inference_stats();
    // perf_analyzer expects the queue's count to grow with every request.
    AddTo(times.queue, sums.mutable_queue());
    if (!succeeded) return AddTo(all, sums.mutable_fail());
    AddTo(all, sums.mutable_success());
    AddTo(times.input, sums.mutable_compute_input());
    AddTo(times.infer, sums.mutable_compute_infer());
    AddTo(times.output, sums.mutable_compute_output());
    sums_.set_last_inference(static_cast<std::uint64_t>(now));
    sums_.set_inference_count(sums.success().count());
    sums_.set_execution_count(sums.success().count());
  }
  // Returns all fields except name and version.
  inference::ModelStatistics Told() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return sums_;
  }

 private:
  static void AddTo(absl::Duration time, inference::StatisticDuration* sum) {
    const std::int64_t ns = absl::ToInt64Nanoseconds(time);
    sum->set_count(sum->count() + 1);
    sum->set_ns(sum->ns() +
                static_cast<std::uint64_t>(std::max<std::int64_t>(0, ns)));
  }

  mutable std::mutex mutex_;
  inference::ModelStatistics sums_;
};

}  // namespace posenc::server
