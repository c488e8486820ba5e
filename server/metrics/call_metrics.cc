#include "server/metrics/call_metrics.h"

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"
#include "posenc/v1/service.pb.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"

namespace posenc::server {
namespace {

constexpr char kUnknown[] = "unknown";

// Names of codes by number. Dashboards expect Go's spelling.
constexpr const char* kCodeNames[] = {"OK",
                                      "Canceled",
                                      "Unknown",
                                      "InvalidArgument",
                                      "DeadlineExceeded",
                                      "NotFound",
                                      "AlreadyExists",
                                      "PermissionDenied",
                                      "ResourceExhausted",
                                      "FailedPrecondition",
                                      "Aborted",
                                      "OutOfRange",
                                      "Unimplemented",
                                      "Internal",
                                      "Unavailable",
                                      "DataLoss",
                                      "Unauthenticated"};

// Reasons for refusals. kOther stands for all reasons that are not listed.
constexpr char kOther[] = "other";
constexpr const char* kReasons[] = {"overloaded",        "draining",
                                    "message_too_large", "unauthenticated",
                                    "permission_denied", kOther};

// Bounds of the histograms' buckets in seconds: the usual bounds of gRPC
// servers, and smaller bounds for calls under a millisecond.
const prometheus::Histogram::BucketBoundaries& Buckets() {
  static const auto* const buckets =
      new prometheus::Histogram::BucketBoundaries{
          0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
          0.05,   0.1,     0.25,   0.5,   1,      2.5,   5,    10};
  return *buckets;
}

const char* TypeOf(const google::protobuf::MethodDescriptor& method) {
  if (method.client_streaming()) {
    return method.server_streaming() ? "bidi_stream" : "client_stream";
  }
  return method.server_streaming() ? "server_stream" : "unary";
}

// Returns the reason of a refusal, or "" if the call was not refused.
std::string RefusedFor(const CallRecord& record) {
  switch (record.code) {
    case grpc::StatusCode::UNAUTHENTICATED:
      return "unauthenticated";
    case grpc::StatusCode::PERMISSION_DENIED:
      return "permission_denied";
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
    case grpc::StatusCode::UNAVAILABLE:
      return absl::AsciiStrToLower(
          absl::StripPrefix(record.reason, "ERROR_REASON_"));
    default:
      return "";
  }
}

using Counters = prometheus::Family<prometheus::Counter>;
using Histograms = prometheus::Family<prometheus::Histogram>;

Counters& MakeCounters(prometheus::Registry* registry, const char* name,
                       const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(*registry);
}

Histograms& MakeHistograms(prometheus::Registry* registry, const char* name,
                           const char* help) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(*registry);
}

}  // namespace

// Each call of this function gets the same families, because a registry makes
// one family for each name.
CallMetrics::Method CallMetrics::Add(const std::string& type,
                                     const std::string& service,
                                     const std::string& name) {
  const prometheus::Labels labels = {
      {"grpc_type", type}, {"grpc_service", service}, {"grpc_method", name}};
  prometheus::Registry* const registry = registry_.get();
  Method method;
  method.started = &MakeCounters(registry, "grpc_server_started_total",
                                 "Calls that were received.")
                        .Add(labels);
  Counters& handled = MakeCounters(registry, "grpc_server_handled_total",
                                   "Calls that are over, whatever their code.");
  for (std::size_t code = 0; code < kCodes; ++code) {
    prometheus::Labels with_code = labels;
    with_code.emplace("grpc_code", kCodeNames[code]);
    method.handled[code] = &handled.Add(with_code);
  }
  method.received = &MakeCounters(registry, "grpc_server_msg_received_total",
                                  "Messages received in calls that are over.")
                         .Add(labels);
  method.sent = &MakeCounters(registry, "grpc_server_msg_sent_total",
                              "Messages sent in calls that are over.")
                     .Add(labels);
  method.handling = &MakeHistograms(registry, "grpc_server_handling_seconds",
                                    "From a call's headers to its end.")
                         .Add(labels, Buckets());
  return method;
}

void CallMetrics::AddAll(const google::protobuf::ServiceDescriptor& service) {
  for (int i = 0; i < service.method_count(); ++i) {
    const google::protobuf::MethodDescriptor& method = *service.method(i);
    methods_.emplace(method.name(),
                     Add(TypeOf(method), std::string(service.full_name()),
                         std::string(method.name())));
  }
}

CallMetrics::CallMetrics(const google::protobuf::ServiceDescriptor* more)
    : registry_(std::make_unique<prometheus::Registry>()) {
  prometheus::Registry* const registry = registry_.get();
  const google::protobuf::ServiceDescriptor& contract =
      *v1::GetServerInfoRequest::descriptor()->file()->service(0);
  AddAll(contract);
  if (more != nullptr) AddAll(*more);
  unknown_ = Add("unary", std::string(contract.full_name()), kUnknown);

  waited_ =
      &MakeHistograms(registry, "posenc_waited_seconds",
                      "How long calls waited for their turn and for memory.")
           .Add({}, Buckets());
  computing_ =
      &MakeHistograms(registry, "posenc_compute_seconds",
                      "How long calls computed; for streams, all messages.")
           .Add({}, Buckets());
  Counters& bytes = MakeCounters(registry, "posenc_bytes_total",
                                 "Bytes of messages in calls that are over.");
  bytes_received_ = &bytes.Add({{"direction", "received"}});
  bytes_sent_ = &bytes.Add({{"direction", "sent"}});
  Counters& refused = MakeCounters(registry, "posenc_refused_total",
                                   "Calls that were refused.");
  for (const char* reason : kReasons) {
    refused_.emplace(reason, &refused.Add({{"reason", reason}}));
  }
}

CallMetrics::~CallMetrics() = default;

const CallMetrics::Method& CallMetrics::Find(absl::string_view name) const {
  const auto found = methods_.find(name);
  return found == methods_.end() ? unknown_ : found->second;
}

void CallMetrics::Started(absl::string_view method) {
  Find(method).started->Increment();
}

void CallMetrics::Finished(const CallRecord& record) {
  const Method& method = Find(record.method);
  // A code that gRPC does not define counts as UNKNOWN.
  std::size_t code = static_cast<std::size_t>(record.code);
  if (code >= kCodes) code = grpc::StatusCode::UNKNOWN;
  method.handled[code]->Increment();
  method.received->Increment(static_cast<double>(record.messages_received));
  method.sent->Increment(static_cast<double>(record.messages_sent));
  method.handling->Observe(absl::ToDoubleSeconds(record.handling));
  // A call that was refused before its message arrived has not waited or
  // computed. Its zeros would hide the times of other calls.
  if (record.messages_received > 0 || record.waited > absl::ZeroDuration()) {
    waited_->Observe(absl::ToDoubleSeconds(record.waited));
  }
  if (record.computing > absl::ZeroDuration()) {
    computing_->Observe(absl::ToDoubleSeconds(record.computing));
  }
  bytes_received_->Increment(static_cast<double>(record.bytes_received));
  bytes_sent_->Increment(static_cast<double>(record.bytes_sent));
  if (const std::string reason = RefusedFor(record); !reason.empty()) {
    const auto found = refused_.find(reason);
    (found == refused_.end() ? refused_.at(kOther) : found->second)
        ->Increment();
  }
}

std::vector<prometheus::MetricFamily> CallMetrics::Collect() const {
  return registry_->Collect();
}

}  // namespace posenc::server
