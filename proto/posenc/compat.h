// Hides differences between versions of libraries: gRPC 1.51 to 1.83, protobuf
// 3.21 to 36, abseil 20220623 to 20260526. All code that depends on a version
// is here, except code for xsimd, which is in core/simd/kernels_convert.inl.

#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/config.h"
#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/util/json_util.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_credentials_options.h"
#include "grpcpp/server_builder.h"
#include "grpcpp/version_info.h"

#define POSENC_GRPC_BEFORE(minor) \
  (GRPC_CPP_VERSION_MAJOR == 1 && GRPC_CPP_VERSION_MINOR < (minor))

#if GOOGLE_PROTOBUF_VERSION < 4022000
#include "google/protobuf/stubs/logging.h"
#endif
#if POSENC_GRPC_BEFORE(66)
#include "absl/strings/match.h"
#include "grpc/support/log.h"
#else
#include "absl/base/log_severity.h"
#include "absl/log/globals.h"
#include "absl/log/initialize.h"
#include "absl/log/log.h"
#include "absl/log/log_entry.h"
#include "absl/log/log_sink.h"
#include "absl/log/log_sink_registry.h"
#endif

namespace posenc::compat {

// Prints fields without presence even if they have their default. Protobuf 26
// renamed the option.
inline void PrintDefaults(google::protobuf::util::JsonPrintOptions* options) {
#if GOOGLE_PROTOBUF_VERSION < 5026000
  options->always_print_primitive_fields = true;
#else
  options->always_print_fields_with_no_presence = true;
#endif
}

// Converts hexadecimal digits to bytes; returns "" for wrong digits. Abseil of
// 2022 has HexStringToBytes() only without an output argument, and abseil of
// 2024 deprecated this form.
inline std::string BytesOfHex(absl::string_view digits) {
#if ABSL_LTS_RELEASE_VERSION < 20240722
  return absl::HexStringToBytes(digits);
#else
  std::string bytes;
  return absl::HexStringToBytes(digits, &bytes) ? bytes : "";
#endif
}

// Limits the metadata that a peer may send with a call. Newer gRPC has two
// limits, and refuses at random some of the calls whose metadata is between the
// two. So both limits get the same value here.
inline void SetMaxMetadataBytes(int bytes, grpc::ServerBuilder* builder) {
  builder->AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, bytes);
#ifdef GRPC_ARG_ABSOLUTE_MAX_METADATA_SIZE
  builder->AddChannelArgument(GRPC_ARG_ABSOLUTE_MAX_METADATA_SIZE, bytes);
#endif
}

// Limits the open calls of a connection. Newer gRPC also counts calls that have
// ended but are not freed yet, and then refuses calls of clients that stay
// within the limit. This overload protection is switched off, because the
// caller of this function counts open calls itself. gRPC 1.83 still refuses
// some calls (docs/platforms.md).
inline void SetMaxConcurrentStreams(int streams, grpc::ServerBuilder* builder) {
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, streams);
#ifdef GRPC_ARG_MAX_CONCURRENT_STREAMS_OVERLOAD_PROTECTION
  builder->AddChannelArgument(
      GRPC_ARG_MAX_CONCURRENT_STREAMS_OVERLOAD_PROTECTION, 0);
#endif
}

// Returns TLS options of a server. `provider` provides the server's certificate
// and, if `clients` is true, the authorities that may sign clients'
// certificates. gRPC 1.83 deprecates the older API.
inline grpc::experimental::TlsServerCredentialsOptions TlsServerOptions(
    std::shared_ptr<grpc::experimental::CertificateProviderInterface> provider,
    bool clients) {
  using Options = grpc::experimental::TlsServerCredentialsOptions;
#if POSENC_GRPC_BEFORE(83)
  Options options(std::move(provider));
  options.watch_identity_key_cert_pairs();
  if (clients) options.watch_root_certs();
#else
  Options options = *Options::Create(provider);
  if (clients) options.set_root_certificate_provider(std::move(provider));
#endif
  return options;
}

// A line of gRPC's log, or of the log of protobuf 22 and newer.
struct LogLine {
  enum Level { kDebug, kInfo, kWarning, kError } level;
  absl::string_view file;
  int line;
  absl::string_view text;
  bool last;  // the process is about to abort
};

using LogFunction = void (*)(const LogLine&);

namespace internal {

inline std::atomic<LogFunction> log_function = nullptr;

inline void Log(const LogLine& line) {
  const LogFunction write = log_function.load();
  if (write != nullptr) write(line);
}

// gRPC 1.66 replaced its own hook with abseil's log.
#if POSENC_GRPC_BEFORE(66)
inline void Hook() {
  gpr_set_log_function([](gpr_log_func_args* line) {
    absl::string_view file = line->file;
    file.remove_prefix(file.rfind('/') + 1);
    const LogLine::Level level =
        line->severity == GPR_LOG_SEVERITY_DEBUG  ? LogLine::kDebug
        : line->severity == GPR_LOG_SEVERITY_INFO ? LogLine::kInfo
                                                  : LogLine::kError;
    Log({level, file, line->line, line->message,
         absl::StartsWith(line->message, "assertion failed")});
  });
}
#else
class Sink final : public absl::LogSink {
 public:
  void Send(const absl::LogEntry& entry) override {
    const LogLine::Level level =
        entry.verbosity() != absl::LogEntry::kNoVerbosityLevel ? LogLine::kDebug
        : entry.log_severity() == absl::LogSeverity::kInfo ? LogLine::kInfo
        : entry.log_severity() == absl::LogSeverity::kWarning
            ? LogLine::kWarning
            : LogLine::kError;
    Log({level, entry.source_basename(), entry.source_line(),
         entry.text_message(),
         entry.log_severity() == absl::LogSeverity::kFatal});
  }
};

inline void Hook() {
  static const bool hooked = [] {
    absl::InitializeLog();
    absl::SetStderrThreshold(absl::LogSeverityAtLeast::kInfinity);
    absl::AddLogSink(new Sink);  // lives as long as the process
    return true;
  }();
  static_cast<void>(hooked);
}
#endif

}  // namespace internal

// Sends the log lines of gRPC and protobuf only to `write`, which is called on
// any thread; null drops the lines. May be called several times.
inline void SetLog(LogFunction write) {
  internal::log_function.store(write);
#if GOOGLE_PROTOBUF_VERSION < 4022000
  // Protobuf would log strings that a peer sends.
  google::protobuf::SetLogHandler(nullptr);
#endif
  internal::Hook();
}

// Logs an error as gRPC itself does. For tests.
inline void LogError(const char* file, int line, const char* text) {
#if POSENC_GRPC_BEFORE(66)
  // Before grpc_init(), gRPC logs nothing by default.
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
  gpr_log(file, line, GPR_LOG_SEVERITY_ERROR, "%s", text);
#else
  LOG(ERROR).AtLocation(file, line) << text;
#endif
}

}  // namespace posenc::compat
