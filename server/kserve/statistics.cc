#include "server/kserve/statistics.h"

#include <algorithm>
#include <cstdint>

#include "absl/time/clock.h"

namespace posenc::server {
namespace {

void Add(absl::Duration time, inference::StatisticDuration* sum) {
  const std::int64_t ns = absl::ToInt64Nanoseconds(time);
  sum->set_count(sum->count() + 1);
  sum->set_ns(sum->ns() +
              static_cast<std::uint64_t>(std::max<std::int64_t>(0, ns)));
}

}  // namespace

// Clients read all sums, also those of caches, so all fields are set.
ModelCounts::ModelCounts() {
  inference::InferStatistics& sums = *sums_.mutable_inference_stats();
  for (int i = 0; i < sums.GetDescriptor()->field_count(); ++i) {
    sums.GetReflection()->MutableMessage(&sums, sums.GetDescriptor()->field(i));
  }
}

void ModelCounts::Add(const InferTimes& times, bool succeeded) {
  const std::int64_t now = absl::ToUnixMillis(absl::Now());
  const absl::Duration all =
      times.queue + times.input + times.infer + times.output;
  const std::lock_guard<std::mutex> lock(mutex_);
  inference::InferStatistics& sums = *sums_.mutable_inference_stats();
  // perf_analyzer expects the queue's count to grow with every request.
  server::Add(times.queue, sums.mutable_queue());
  if (!succeeded) return server::Add(all, sums.mutable_fail());
  server::Add(all, sums.mutable_success());
  server::Add(times.input, sums.mutable_compute_input());
  server::Add(times.infer, sums.mutable_compute_infer());
  server::Add(times.output, sums.mutable_compute_output());
  sums_.set_last_inference(static_cast<std::uint64_t>(now));
  sums_.set_inference_count(sums.success().count());
  sums_.set_execution_count(sums.success().count());
}

inference::ModelStatistics ModelCounts::Told() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return sums_;
}

}  // namespace posenc::server
