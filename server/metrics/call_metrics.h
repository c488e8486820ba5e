// Counts calls, under the names that dashboards of gRPC servers expect
// (grpc_server_handled_total and others), and under names of posenc.
//
// Every series exists from the start, with value 0. If a counter appeared only
// with its first event, the counter's rate would miss this event. Unknown
// methods are counted as "unknown". Peers cannot choose the value of any label,
// so they cannot create series.

#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "prometheus/metric_family.h"
#include "server/call/call_observer.h"

namespace prometheus {
class Counter;
class Histogram;
class Registry;
}  // namespace prometheus

namespace posenc::server {

// Thread-safe. The only locks are those of histograms, which are held for
// nanoseconds. The messages of a call are counted when the call is over.
class CallMetrics final : public CallObserver {
 public:
  // `more` is a second service next to the contract's service, or null.
  explicit CallMetrics(
      const google::protobuf::ServiceDescriptor* more = nullptr);
  ~CallMetrics() override;

  void Started(absl::string_view method) override;
  void Finished(const CallRecord& record) override;

  std::vector<prometheus::MetricFamily> Collect() const;

 private:
  static constexpr std::size_t kCodes = 17;  // OK to UNAUTHENTICATED

  // The series of one RPC, which the registry owns.
  struct Method {
    prometheus::Counter* started = nullptr;
    std::array<prometheus::Counter*, kCodes> handled = {};
    prometheus::Counter* received = nullptr;
    prometheus::Counter* sent = nullptr;
    prometheus::Histogram* handling = nullptr;
  };

  Method Add(const std::string& type, const std::string& service,
             const std::string& name);
  void AddAll(const google::protobuf::ServiceDescriptor& service);
  const Method& Find(absl::string_view name) const;

  const std::unique_ptr<prometheus::Registry> registry_;
  absl::flat_hash_map<absl::string_view, Method> methods_;
  Method unknown_;
  prometheus::Histogram* waited_ = nullptr;
  prometheus::Histogram* computing_ = nullptr;
  prometheus::Counter* bytes_received_ = nullptr;
  prometheus::Counter* bytes_sent_ = nullptr;
  absl::flat_hash_map<absl::string_view, prometheus::Counter*> refused_;
};

}  // namespace posenc::server
