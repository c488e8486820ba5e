#include "server/config/check.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/error.h"
#include "server/budget/machine.h"
#include "server/listen/address.h"

namespace posenc::server {
namespace {

absl::Status CheckAddresses(const Config& config) {
  const bool plaintext = config.server.tls.cert.empty();
  for (const std::string& text : config.server.listen) {
    const absl::StatusOr<Address> address = ParseAddress(text);
    if (!address.ok()) return address.status();
    if (plaintext && !config.server.allow_insecure && !address->host.empty() &&
        !IsLoopback(address->host)) {
      return BadAddress(text,
                        "plaintext off loopback; add --allow-insecure if that "
                        "is meant, or listen on 127.0.0.1 or unix:/path");
    }
  }
  if (config.admin.empty() || ParseAddress(config.admin).ok()) {
    return absl::OkStatus();
  }
  return core::FieldInvalid("--admin",
                            absl::StrCat(config.admin,
                                         ": expected host:port, [ipv6]:port or "
                                         "unix:/path, port 0..65535"));
}

absl::Status CheckFiles(const ServerOptions& server) {
  const TlsFiles& tls = server.tls;
  if (tls.cert.empty() != tls.key.empty()) {
    return core::FieldInvalid(
        tls.cert.empty() ? "--tls-key" : "--tls-cert",
        "is of no use alone; --tls-cert and --tls-key come together");
  }
  if (!tls.client_ca.empty() && tls.cert.empty()) {
    return core::FieldInvalid("--tls-client-ca",
                              "is of no use without --tls-cert");
  }
  // What is in the files of TLS and tokens is checked here.
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckConfig(const Config& config) {
  absl::Status status = CheckLimits(config.server.limits);
  if (status.ok()) status = CheckAddresses(config);
  if (status.ok()) status = CheckFiles(config.server);
  return status;
}

std::vector<std::string> Doubts(const Config& config) {
  std::vector<std::string> doubts;
  const std::int64_t memory = UsableMemory();
  const std::int64_t budget =
      WithDefaults(config.server.limits).in_flight_bytes;
  if (budget > memory) {
    doubts.push_back(absl::StrCat("--in-flight-bytes: ", budget,
                                  " bytes, but the memory limit is ", memory,
                                  "; a full server would be killed"));
  }
  const int cpus = UsableCpus();
  if (config.server.limits.threads > cpus) {
    doubts.push_back(absl::StrCat("--threads: ", config.server.limits.threads,
                                  ", but the CPU limit is ", cpus));
  }
  const absl::StatusOr<Address> admin = ParseAddress(config.admin);
  if (admin.ok() && !admin->host.empty() && !IsLoopback(admin->host)) {
    doubts.push_back(
        absl::StrCat("--admin: ", config.admin,
                     " is not loopback; whoever reaches it reads metrics and "
                     "configuration"));
  }
  return doubts;
}

}  // namespace posenc::server
