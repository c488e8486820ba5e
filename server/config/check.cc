#include "server/config/check.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/error.h"
#include "server/adapters/kserve/kserve_service.h"
#include "server/base/machine.h"
#include "server/base/ready_file.h"
#include "server/trace/traces.h"
#include "server/transport/address.h"
#include "server/transport/tokens.h"

namespace posenc::server {
namespace {

absl::Status CheckKserve(bool kserve) {
  if (!kserve || KserveService().make) return absl::OkStatus();
  return core::FieldInvalid("--kserve",
                            "this posencd was built without KServe's protocol "
                            "(POSENC_KSERVE)");
}

// Returns a warning if all tokens have expired, because then no call with a
// token can succeed. Otherwise returns "".
std::string TokensDoubt(const ServerOptions& server) {
  if (server.token_file.empty()) return "";
  const auto tokens =
      Tokens::Load(server.token_file, {}, server.extra_service.descriptor);
  if (!tokens.ok() || absl::Now() < tokens->last_expiry()) return "";
  return absl::StrCat("--token-file: ", server.token_file,
                      ": all tokens have expired, the last one on ",
                      absl::FormatTime(absl::RFC3339_sec, tokens->last_expiry(),
                                       absl::UTCTimeZone()),
                      "; calls that need one are refused");
}

}  // namespace

absl::Status CheckConfig(const Config& config) {
  absl::Status status = CheckOptions(config.server);
  if (status.ok()) status = CheckKserve(config.kserve);
  if (status.ok() && !config.admin.empty()) {
    status = ParseAddress(config.admin, "--admin").status();
  }
  if (status.ok() && !config.otlp_endpoint.empty()) {
    status = CheckTraces(config.otlp_endpoint);
  }
  if (status.ok()) status = ReadyFile::Check(config.ready_file);
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
    doubts.push_back(absl::StrCat(
        "--admin: ", config.admin,
        " is not loopback; others can read metrics and configuration"));
  }
  if (const std::string doubt = TokensDoubt(config.server); !doubt.empty()) {
    doubts.push_back(doubt);
  }
  if (!config.probe_tls.ca.empty() && config.server.tls.client_ca.empty()) {
    doubts.push_back(
        "--tls-ca: is for --probe alone; clients are asked for certificates "
        "by --tls-client-ca");
  }
  return doubts;
}

}  // namespace posenc::server
