#include "server/config/keys.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace posenc::server {
namespace {

constexpr std::int64_t kMaxInt = std::numeric_limits<int>::max();
constexpr std::int64_t kYear = std::int64_t{365} * 24 * 3600 * 1000;
constexpr std::int64_t kMostTexts = 64;
constexpr bool kReloads = true;
constexpr bool kRestart = false;
constexpr bool kNoEmpty = true;

// Makes a function that returns the address of a field of Config.
#define POSENC_FIELD(path) \
  [](Config& config) -> KeyField { return &config.path; }

using enum KeyKind;

constexpr Key kKeys[] = {
    {"config", kText, 0, 0, kRestart, POSENC_FIELD(file),
     "TOML file with any of the other keys; flags and the environment win over "
     "it.",
     "FILE", ""},
    {"listen", kList, 1, kMostTexts, kRestart, POSENC_FIELD(server.listen),
     "Addresses to listen on: `host:port` (port 0: any free port), "
     "`[ipv6]:port` or `unix:/path`.",
     "ADDRESS", ""},
    {"allow-insecure", kSwitch, 0, 0, kRestart,
     POSENC_FIELD(server.allow_insecure),
     "Lets the server speak plaintext on addresses other than loopback and "
     "unix sockets.",
     "", ""},
    {"tls-cert", kText, 0, 0, kRestart, POSENC_FIELD(server.tls.cert),
     "PEM file of the server's certificate and its intermediates; with it all "
     "addresses speak TLS.",
     "FILE", "", kNoEmpty},
    {"tls-key", kText, 0, 0, kRestart, POSENC_FIELD(server.tls.key),
     "PEM file of the certificate's private key, without a passphrase.", "FILE",
     "", kNoEmpty},
    {"tls-client-ca", kText, 0, 0, kRestart, POSENC_FIELD(server.tls.client_ca),
     "PEM file of CAs; clients must then show a certificate that one of them "
     "issued.",
     "FILE", "", kNoEmpty},
    {"token-file", kText, 0, 0, kRestart, POSENC_FIELD(server.token_file),
     "File of bearer tokens; callers must send one of them.", "FILE", "",
     kNoEmpty},
    {"public-methods", kList, 0, kMostTexts, kRestart,
     POSENC_FIELD(server.public_methods),
     "RPCs that need no token (`GetServerInfo`); health never needs one.",
     "RPC", ""},
    {"reflection", kSwitch, 0, 0, kRestart, POSENC_FIELD(server.reflection),
     "Lets tools read the API through gRPC reflection.", "", ""},
    {"kserve", kSwitch, 0, 0, kRestart, POSENC_FIELD(kserve),
     "Serves KServe's protocol too, `inference.GRPCInferenceService`.", "", ""},

    {"shared-memory-prefix", kText, 0, 0, kRestart,
     POSENC_FIELD(server.shared_memory.prefix),
     "Path prefix of the shared-memory files that calls may name instead of "
     "sending tensors: `/dev/shm/posenc_`, or `/shm/` for all files there.",
     "PATH", "off"},
    {"shared-memory-from", kChoice, 0, 0, kRestart,
     POSENC_FIELD(server.shared_memory.from),
     "Callers that may share memory: unix sockets, or also 127.0.0.0/8 and "
     "::1, the source of all calls that a sidecar forwards.",
     "unix|loopback", ""},
    {"shared-memory-uid", kList, 0, kMostTexts, kRestart,
     POSENC_FIELD(server.shared_memory.uids),
     "User ids of the files that may be used, besides the server's own.", "UID",
     ""},
    {"shared-memory-bytes", kBytes, 0, kUnbounded, kRestart,
     POSENC_FIELD(server.shared_memory.bytes),
     "Most bytes of shared-memory files that are mapped at once.", "SIZE",
     "a quarter of the memory"},

    {"max-request-bytes", kBytes, 1, kMaxProtobufBytes, kRestart,
     POSENC_FIELD(server.limits.max_request_bytes),
     "Largest request that is accepted.", "SIZE", ""},
    {"max-response-bytes", kBytes, 1, kMaxProtobufBytes, kRestart,
     POSENC_FIELD(server.limits.max_response_bytes),
     "Largest response that is sent.", "SIZE", ""},
    {"in-flight-bytes", kBytes, 0, kUnbounded, kReloads,
     POSENC_FIELD(server.limits.in_flight_bytes),
     "Bytes that the messages of all calls together may take. A call waits for "
     "memory before its payload is read, and again if its response cannot be "
     "written over the request.",
     "SIZE", "half of the memory"},
    {"in-flight-bytes-per-token", kBytes, 0, kUnbounded, kReloads,
     POSENC_FIELD(server.limits.in_flight_bytes_per_token),
     "Bytes that the messages of all calls with one token may take; a token's "
     "only call may take more.",
     "SIZE", "no limit of its own"},
    {"max-waiting", kInteger, 0, kUnbounded, kReloads,
     POSENC_FIELD(server.limits.max_waiting),
     "Number of calls that may wait for a place, and of calls that may wait "
     "for "
     "memory; others are refused with `RESOURCE_EXHAUSTED` and a retry delay.",
     "COUNT", ""},
    {"default-deadline", kDuration, 1, kYear, kReloads,
     POSENC_FIELD(server.limits.default_deadline),
     "Deadline that the server imposes on a call if its client sets none.",
     "TIME", ""},
    {"threads", kInteger, 0, 4096, kRestart,
     POSENC_FIELD(server.limits.threads), "Number of threads for computations.",
     "COUNT", "cores, or the control group's quota"},

    {"max-connections", kInteger, 0, 1000000, kReloads,
     POSENC_FIELD(server.connections.max_connections),
     "Most connections at a time; further ones are closed.", "COUNT",
     "4096, or (limit of file descriptors - 64) / 2 if that is fewer"},
    {"max-connections-per-peer", kInteger, 1, 1000000, kReloads,
     POSENC_FIELD(server.connections.max_connections_per_peer),
     "Most connections from one address; connections over unix sockets are "
     "not counted.",
     "COUNT", ""},
    {"max-concurrent-streams", kInteger, 1, kMaxInt, kRestart,
     POSENC_FIELD(server.connections.max_concurrent_streams),
     "Most calls at a time on a connection; half of them may be health "
     "watches.",
     "COUNT", ""},
    {"max-metadata-bytes", kBytes, kLeastMetadata, kMostMetadata, kRestart,
     POSENC_FIELD(server.connections.max_metadata_bytes),
     "Most metadata of a call: names, values, and 32 bytes for each pair.",
     "SIZE", ""},
    {"handshake-timeout", kDuration, 1, kYear, kRestart,
     POSENC_FIELD(server.connections.handshake_timeout),
     "Time that a connection has for its TLS handshake and HTTP/2 settings.",
     "TIME", ""},
    {"max-connection-idle", kDuration, 1, kYear, kRestart,
     POSENC_FIELD(server.connections.max_connection_idle),
     "Time without a call after which a connection is closed; its client "
     "reconnects for the next call.",
     "TIME", ""},
    {"keepalive-time", kDuration, 1, kYear, kRestart,
     POSENC_FIELD(server.connections.keepalive_time),
     "Time without traffic after which a connection is pinged.", "TIME", ""},
    {"keepalive-timeout", kDuration, 1, kYear, kRestart,
     POSENC_FIELD(server.connections.keepalive_timeout),
     "Time for the peer to answer a ping, and to receive some of the sent "
     "bytes; else the connection is closed.",
     "TIME", ""},
    {"keepalive-min-interval", kDuration, 0, kYear, kRestart,
     POSENC_FIELD(server.connections.keepalive_min_interval),
     "Shortest time between two pings of a client; at the third ping that "
     "comes sooner its connection is closed (`too_many_pings`). `0s`: any.",
     "TIME", ""},
    {"max-connection-age", kDuration, 0, kYear, kRestart,
     POSENC_FIELD(server.max_connection_age),
     "Age at which a connection's client is told to connect again, and so to "
     "look the name up again; `0s`: never.",
     "TIME", ""},
    {"max-connection-age-grace", kDuration, 0, kYear, kRestart,
     POSENC_FIELD(server.max_connection_age_grace),
     "Time for running calls to finish on a connection of that age.", "TIME",
     ""},

    {"lame-duck", kDuration, 0, kYear, kRestart, POSENC_FIELD(server.lame_duck),
     "Time after SIGTERM in which new calls are still taken, for clients that "
     "do not watch the readiness service, which already says NOT_SERVING.",
     "TIME", ""},
    {"drain-timeout", kDuration, 0, kYear, kRestart,
     POSENC_FIELD(server.drain_timeout),
     "Time for running calls to finish after `--lame-duck`; others are "
     "cancelled.",
     "TIME", ""},
    {"ready-file", kText, 0, 0, kRestart, POSENC_FIELD(ready_file),
     "File with one bound address a line; written once the server serves, and "
     "removed at the end.",
     "FILE", ""},
    {"exit-with-stdin", kSwitch, 0, 0, kRestart, POSENC_FIELD(exit_with_stdin),
     "When standard input ends, the server ends as after SIGTERM. So it ends "
     "with the parent process that holds its pipe.",
     "", ""},
    {"probe", kText, 0, 0, kRestart, POSENC_FIELD(probe),
     "Asks the server at this address for its health instead of serving.",
     "ADDRESS", ""},
    {"probe-service", kText, 0, 0, kRestart, POSENC_FIELD(probe_service),
     "Health service that `--probe` asks for.", "NAME", ""},
    {"tls-ca", kText, 0, 0, kRestart, POSENC_FIELD(probe_tls.ca),
     "PEM file of authorities that `--probe` trusts; with it the probe speaks "
     "TLS, and shows `--tls-cert` if it is asked for a certificate.",
     "FILE", "", kNoEmpty},
    {"tls-server-name", kText, 0, 0, kRestart,
     POSENC_FIELD(probe_tls.server_name),
     "Name that `--probe` expects in the certificate, if not the address's.",
     "NAME", ""},

    {"admin", kText, 0, 0, kRestart, POSENC_FIELD(admin),
     "Address of the admin server, for metrics and health over HTTP.",
     "ADDRESS", "off"},
    {"admin-host", kList, 0, kMostTexts, kRestart, POSENC_FIELD(admin_hosts),
     "Host names that the admin server accepts, besides the host of `--admin`, "
     "localhost and IP addresses.",
     "NAME", ""},
    {"log-level", kChoice, 0, 0, kReloads, POSENC_FIELD(log.level),
     "Least severity that is logged.", "debug|info|warning|error", ""},
    {"log-format", kChoice, 0, 0, kRestart, POSENC_FIELD(log.format),
     "How a line of the log is written.", "json|text", ""},
    {"log-calls", kFraction, 0, 1, kReloads, POSENC_FIELD(log.calls),
     "Fraction of successful calls that are logged. The server's failures are "
     "always logged, clients' mistakes at level debug.",
     "FRACTION", ""},
    {"otlp-endpoint", kText, 0, 0, kRestart, POSENC_FIELD(otlp_endpoint),
     "OpenTelemetry collector for traces; needs a build with POSENC_OTLP.",
     "ADDRESS", "off"},
};

#undef POSENC_FIELD

// Kubernetes sets variables for Services in every container. For a Service
// named "posenc" it sets POSENC_PORT, POSENC_PORT_50051_TCP_ADDR,
// POSENC_SERVICE_HOST and more; for "posenc-x" it sets POSENC_X_PORT and
// POSENC_X_SERVICE_HOST. No key may have the name of one of these variables.
constexpr bool IsInjected(std::string_view name) {
  return name == "port" || name.starts_with("port-") ||
         name.starts_with("service-") || name.ends_with("-port") ||
         name.find("-port-") != name.npos ||
         name.find("-service-") != name.npos;
}
constexpr bool NoKeyIsInjected() {
  for (const Key& key : kKeys) {
    if (IsInjected(key.name)) return false;
  }
  return true;
}
static_assert(NoKeyIsInjected());

}  // namespace

absl::Span<const Key> Keys() { return kKeys; }

const Key* FindKey(absl::string_view name) {
  for (const Key& key : kKeys) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

std::string EnvironmentName(const Key& key) {
  return absl::StrCat(
      "POSENC_",
      absl::StrReplaceAll(absl::AsciiStrToUpper(key.name), {{"-", "_"}}));
}

}  // namespace posenc::server
