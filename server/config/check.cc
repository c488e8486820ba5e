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

absl::Status CheckAdmin(const std::string& admin) {
  if (admin.empty() || ParseAddress(admin).ok()) return absl::OkStatus();
  return core::FieldInvalid("--admin",
                            absl::StrCat(admin,
                                         ": expected host:port, [ipv6]:port or "
                                         "unix:/path, port 0..65535"));
}

}  // namespace

absl::Status CheckConfig(const Config& config) {
  const absl::Status status = CheckOptions(config.server);
  return status.ok() ? CheckAdmin(config.admin) : status;
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
