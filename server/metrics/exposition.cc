#include "server/metrics/exposition.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "grpcpp/grpcpp.h"
#include "prometheus/text_serializer.h"
#include "server/base/version.h"

namespace posenc::server {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

const absl::Time kStarted = absl::Now();

// Collects metric families of current values.
class Families {
 public:
  explicit Families(std::vector<MetricFamily>* all) : all_(all) {}

  template <typename Number>
  void Gauge(const char* name, const char* help, Number value) {
    Begin(name, help, MetricType::Gauge);
    Add({}, static_cast<double>(value));
  }
  template <typename Number>
  void Counter(const char* name, const char* help, Number value) {
    Begin(name, help, MetricType::Counter);
    Add({}, static_cast<double>(value));
  }

  // A family of several series needs Begin(), then Add() for each series.
  void Begin(const char* name, const char* help, MetricType type) {
    all_->push_back({name, help, type, {}});
  }
  void Add(std::vector<ClientMetric::Label> labels, double value) {
    ClientMetric metric;
    metric.label = std::move(labels);
    metric.gauge.value = value;
    metric.counter.value = value;
    all_->back().metric.push_back(std::move(metric));
  }

 private:
  std::vector<MetricFamily>* const all_;
};

void AddMemory(const ServerStatus& status, Families* all) {
  all->Gauge("posenc_budget_bytes",
             "Bytes that all calls together may hold (--in-flight-bytes).",
             status.budget_bytes);
  all->Gauge("posenc_claimed_bytes", "Bytes of the budget that calls claim.",
             status.claimed_bytes);
  all->Gauge("posenc_kept_bytes",
             "Bytes of free memory that is kept for responses.",
             status.kept_bytes);
}

void AddCalls(const ServerStatus& status, Families* all) {
  all->Gauge("posenc_calls_in_progress", "Accepted calls that are not over.",
             status.calls_in_progress);
  all->Gauge("posenc_calls_in_service", "Calls that have a place at work.",
             status.calls_in_service);
  all->Gauge("posenc_calls_waiting",
             "Calls that wait for a place or for memory.",
             status.calls_waiting);
  all->Gauge("posenc_calls_limit",
             "Limit for the calls that have a place at work.",
             status.calls_limit);
  all->Counter("posenc_cache_hits_total",
               "Encodings that were found in the cache.", status.cache_hits);
  all->Counter("posenc_cache_misses_total", "Encodings that were resolved.",
               status.cache_misses);
  all->Gauge("posenc_cache_bytes", "Bytes of encodings in the cache.",
             status.cache_bytes);
}

void AddConnections(const ServerStatus& status, Families* all) {
  all->Gauge("posenc_connections", "Open connections.", status.connections);
  all->Begin("posenc_connections_refused_total",
             "Connections that were refused or ended, by reason.",
             MetricType::Counter);
  for (const auto& [reason, count] : status.connections_refused) {
    all->Add({{"reason", reason}}, static_cast<double>(count));
  }
  // Without TLS this series is absent, so that no alert on it fires.
  if (status.tls_not_after.has_value()) {
    all->Gauge(
        "posenc_tls_not_after_seconds",
        "When the server's certificate expires, in seconds since 1970.",
        absl::ToDoubleSeconds(*status.tls_not_after - absl::UnixEpoch()));
  }
  all->Counter("posenc_tls_reload_errors_total",
               "Certificate files that were refused; the last good ones stay.",
               status.tls_reload_errors);
  all->Counter("posenc_token_reload_errors_total",
               "Token files that were refused; the last good one stays.",
               status.token_reload_errors);
}

std::int64_t CountEntries(const char* directory) {
  std::error_code none;
  const std::filesystem::directory_iterator first(directory, none);
  return none ? 0 : std::distance(begin(first), end(first));
}

// Adds metrics about this process, whose values come from the kernel, except
// the time of the start. A value that cannot be read is 0.
void AddProcess(Families* all) {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  all->Counter(
      "process_cpu_seconds_total", "User and system CPU time.",
      absl::ToDoubleSeconds(absl::DurationFromTimeval(usage.ru_utime) +
                            absl::DurationFromTimeval(usage.ru_stime)));
  std::int64_t virtual_pages = 0, resident_pages = 0;
  std::ifstream("/proc/self/statm") >> virtual_pages >> resident_pages;
  all->Gauge("process_resident_memory_bytes", "Resident memory.",
             resident_pages * sysconf(_SC_PAGESIZE));
  all->Gauge("process_virtual_memory_bytes", "Virtual memory.",
             virtual_pages * sysconf(_SC_PAGESIZE));
  // The descriptor of the directory itself is not counted.
  all->Gauge("process_open_fds", "Open file descriptors.",
             std::max<std::int64_t>(CountEntries("/proc/self/fd"), 1) - 1);
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  all->Gauge("process_max_fds", "Limit of open file descriptors.",
             limit.rlim_cur);
  all->Gauge("process_start_time_seconds",
             "When the process started, in seconds since 1970.",
             absl::ToDoubleSeconds(kStarted - absl::UnixEpoch()));
  all->Gauge("process_threads", "Threads.", CountEntries("/proc/self/task"));
}

}  // namespace

std::string MetricsText(const CallMetrics& calls, const ServerStatus& status,
                        const std::string& instruction_set) {
  std::vector<MetricFamily> families = calls.Collect();
  Families all(&families);
  AddMemory(status, &all);
  AddCalls(status, &all);
  AddConnections(status, &all);
  all.Gauge("posenc_draining", "1 while the server takes no new calls.",
            status.ready ? 0.0 : 1.0);
  all.Counter("posenc_log_lines_dropped_total", "Log lines that were dropped.",
              status.log_lines_dropped);
  AddProcess(&all);
  all.Begin("posenc_build_info", "Version and build; always 1.",
            MetricType::Gauge);
  all.Add({{"version", kVersion},
           {"isa", instruction_set},
           {"grpc", grpc::Version()}},
          1);
  std::ostringstream text;
  prometheus::TextSerializer().Serialize(text, families);
  return std::move(text).str();
}

}  // namespace posenc::server
