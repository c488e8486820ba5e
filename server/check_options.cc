// What can be wrong with ServerOptions before anything is bound.

#include <string>

#include "absl/strings/str_cat.h"
#include "core/error.h"
#include "server/listen/address.h"
#include "server/server.h"

namespace posenc::server {
namespace {

absl::Status CheckTimes(const ServerOptions& options) {
  if (options.drain_timeout >= absl::ZeroDuration()) return absl::OkStatus();
  return core::FieldInvalid(
      "--drain-timeout",
      absl::StrCat(absl::FormatDuration(options.drain_timeout),
                   "; must not be negative"));
}

absl::Status CheckAddresses(const ServerOptions& options) {
  const bool plaintext = options.tls.cert.empty();
  for (const std::string& text : options.listen) {
    const absl::StatusOr<Address> address = ParseAddress(text);
    if (!address.ok()) return address.status();
    if (plaintext && !options.allow_insecure && !address->host.empty() &&
        !IsLoopback(address->host)) {
      return BadAddress(text,
                        "plaintext off loopback; add --allow-insecure if that "
                        "is meant, or listen on 127.0.0.1 or unix:/path");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckFiles(const ServerOptions& options) {
  const TlsFiles& tls = options.tls;
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

absl::Status CheckOptions(const ServerOptions& options) {
  absl::Status status = CheckLimits(options.limits);
  if (status.ok()) status = CheckTimes(options);
  if (status.ok()) status = CheckAddresses(options);
  if (status.ok()) status = CheckFiles(options);
  return status;
}

}  // namespace posenc::server
