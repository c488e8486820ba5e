#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "opentelemetry/exporters/otlp/otlp_grpc_exporter_factory.h"
#include "opentelemetry/exporters/otlp/otlp_grpc_exporter_options.h"
#include "opentelemetry/sdk/common/global_log_handler.h"
#include "opentelemetry/sdk/instrumentationscope/instrumentation_scope.h"
#include "opentelemetry/sdk/resource/resource.h"
#include "opentelemetry/sdk/trace/batch_span_processor.h"
#include "opentelemetry/sdk/trace/batch_span_processor_options.h"
#include "opentelemetry/sdk/trace/exporter.h"
#include "opentelemetry/sdk/trace/random_id_generator.h"
#include "opentelemetry/sdk/trace/recordable.h"
#include "opentelemetry/trace/span_context.h"
#include "server/base/version.h"
#include "server/trace/traceparent.h"
#include "server/trace/traces.h"

namespace posenc::server {
namespace {

namespace otel = opentelemetry;

constexpr char kService[] = "posenc.v1.PositionalEncodingService";
// Time limit for one batch of spans, also at the end of the process.
constexpr std::chrono::seconds kExportTimeout{1};
constexpr std::chrono::milliseconds kFlushTimeout{500};

// Returns whether the code means a failure of the server, not of the caller.
bool IsFault(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::UNKNOWN:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::UNIMPLEMENTED:
    case grpc::StatusCode::INTERNAL:
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DATA_LOSS:
      return true;
    default:
      return false;
  }
}

otel::nostd::string_view View(absl::string_view text) {
  return {text.data(), text.size()};
}

// Uses the SDK's processor and exporter, but not its tracers. The tracers would
// read clocks and look up contexts for data that the record already has.
class OtlpTraces final : public CallObserver {
 public:
  OtlpTraces(std::unique_ptr<otel::sdk::trace::SpanExporter> exporter)
      : resource_(otel::sdk::resource::Resource::Create(
            {{"service.name", "posenc"}, {"service.version", kVersion}})),
        scope_(otel::sdk::instrumentationscope::InstrumentationScope::Create(
            "posenc", kVersion)),
        exporter_(exporter.get()),
        processor_(std::move(exporter),
                   otel::sdk::trace::BatchSpanProcessorOptions()) {}

  ~OtlpTraces() override {
    processor_.ForceFlush(kFlushTimeout);
    // After Shutdown(), the exporter refuses the remaining batches. Otherwise
    // it would try to reach an unreachable collector for each batch.
    exporter_->Shutdown(std::chrono::microseconds(0));
  }

  void Finished(const CallRecord& record) override {
    const std::optional<Traceparent> parent =
        ParseTraceparent(record.traceparent);
    if (!parent.has_value() || !parent->sampled) return;
    auto span = processor_.MakeRecordable();
    if (span == nullptr) return;
    SetIdentity(*parent, span.get());
    SetTimes(record, span.get());
    SetAttributes(record, span.get());
    processor_.OnEnd(std::move(span));
  }

 private:
  void SetIdentity(const Traceparent& parent,
                   otel::sdk::trace::Recordable* span) {
    const otel::trace::SpanContext context(
        otel::trace::TraceId(parent.trace_id), ids_.GenerateSpanId(),
        otel::trace::TraceFlags(otel::trace::TraceFlags::kIsSampled),
        /*is_remote=*/false);
    span->SetIdentity(context, otel::trace::SpanId(parent.parent_id));
    span->SetSpanKind(otel::trace::SpanKind::kServer);
    span->SetResource(resource_);
    span->SetInstrumentationScope(*scope_);
  }

  static void SetTimes(const CallRecord& record,
                       otel::sdk::trace::Recordable* span) {
    span->SetStartTime(
        otel::common::SystemTimestamp(absl::ToChronoTime(record.started)));
    span->SetDuration(absl::ToChronoNanoseconds(record.handling));
    span->SetAttribute("posenc.waited_seconds",
                       absl::ToDoubleSeconds(record.waited));
    span->SetAttribute("posenc.compute_seconds",
                       absl::ToDoubleSeconds(record.computing));
  }

  // Records nothing from messages, and no names that a peer invents. The
  // record's `method` is empty for unknown methods.
  static void SetAttributes(const CallRecord& record,
                            otel::sdk::trace::Recordable* span) {
    const absl::string_view service =
        record.method.empty() ? kService : record.service;
    const absl::string_view method =
        record.method.empty() ? "unknown" : record.method;
    const std::string name = absl::StrCat(service, "/", method);
    span->SetName(name);
    span->SetAttribute("rpc.system", "grpc");
    span->SetAttribute("rpc.service", View(service));
    span->SetAttribute("rpc.method", View(method));
    span->SetAttribute("rpc.grpc.status_code", static_cast<int>(record.code));
    span->SetAttribute("posenc.bytes_received", record.bytes_received);
    span->SetAttribute("posenc.bytes_sent", record.bytes_sent);
    if (!record.reason.empty()) {
      span->SetAttribute("error.type", View(record.reason));
    }
    if (IsFault(record.code)) {
      span->SetStatus(otel::trace::StatusCode::kError, "");
    }
  }

  otel::sdk::trace::RandomIdGenerator ids_;
  // Spans point to these two members.
  const otel::sdk::resource::Resource resource_;
  const std::unique_ptr<otel::sdk::instrumentationscope::InstrumentationScope>
      scope_;
  otel::sdk::trace::SpanExporter* const exporter_;  // the processor owns it
  otel::sdk::trace::BatchSpanProcessor processor_;
};

}  // namespace

absl::Status CheckTraces(const std::string& endpoint) {
  if (absl::StartsWith(endpoint, "https://") ||
      absl::StartsWith(endpoint, "http://")) {
    return absl::OkStatus();
  }
  return core::FieldInvalid("--otlp-endpoint", "'", endpoint,
                            "'; expected http://host:port or https://");
}

absl::StatusOr<std::unique_ptr<CallObserver>> StartTraces(
    const std::string& endpoint) {
  RETURN_IF_ERROR(CheckTraces(endpoint));
  // Switches off the SDK's log, which would get a line for every failed batch.
  otel::sdk::common::internal_log::GlobalLogHandler::SetLogHandler(
      otel::nostd::shared_ptr<otel::sdk::common::internal_log::LogHandler>(
          new otel::sdk::common::internal_log::NoopLogHandler));
  otel::exporter::otlp::OtlpGrpcExporterOptions options;
  options.endpoint = endpoint;
  options.use_ssl_credentials = absl::StartsWith(endpoint, "https://");
  options.timeout = kExportTimeout;
  return std::make_unique<OtlpTraces>(
      otel::exporter::otlp::OtlpGrpcExporterFactory::Create(options));
}

}  // namespace posenc::server
