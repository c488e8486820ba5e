#include "server/kserve/statistics.h"

#include <algorithm>

#include "absl/time/clock.h"

namespace posenc::server {

void ModelCounts::Sum::Add(absl::Duration time) {
  ++count;
  ns += static_cast<std::uint64_t>(
      std::max<std::int64_t>(0, absl::ToInt64Nanoseconds(time)));
}

void ModelCounts::Succeeded(const InferTimes& times) {
  const absl::Time now = absl::Now();
  const std::lock_guard<std::mutex> lock(mutex_);
  success_.Add(times.queue + times.input + times.infer + times.output);
  queue_.Add(times.queue);
  input_.Add(times.input);
  infer_.Add(times.infer);
  output_.Add(times.output);
  last_ = now;
}

// perf_analyzer looks for a queue that has grown with every request.
void ModelCounts::Failed(const InferTimes& times) {
  const std::lock_guard<std::mutex> lock(mutex_);
  fail_.Add(times.queue + times.input + times.infer + times.output);
  queue_.Add(times.queue);
}

void ModelCounts::Tell(inference::ModelStatistics* statistics) const {
  const auto tell = [](const Sum& sum, inference::StatisticDuration* to) {
    to->set_count(sum.count);
    to->set_ns(sum.ns);
  };
  const std::lock_guard<std::mutex> lock(mutex_);
  statistics->set_last_inference(
      static_cast<std::uint64_t>(absl::ToUnixMillis(last_)));
  statistics->set_inference_count(success_.count);
  statistics->set_execution_count(success_.count);
  inference::InferStatistics* const times =
      statistics->mutable_inference_stats();
  tell(success_, times->mutable_success());
  tell(fail_, times->mutable_fail());
  tell(queue_, times->mutable_queue());
  tell(input_, times->mutable_compute_input());
  tell(infer_, times->mutable_compute_infer());
  tell(output_, times->mutable_compute_output());
  tell(Sum(), times->mutable_cache_hit());
  tell(Sum(), times->mutable_cache_miss());
}

}  // namespace posenc::server
