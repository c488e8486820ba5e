// Checks ServerOptions before anything is bound.

#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "server/service/server.h"
#include "server/transport/address.h"
#include "server/transport/certificates.h"
#include "server/transport/tokens.h"

namespace posenc::server {
namespace {

// Refuses plaintext on an address other than loopback, unless
// options.allow_insecure is set.
absl::Status CheckPlaintext(const Address& address,
                            const ServerOptions& options) {
  if (address.host.empty() || IsLoopback(address.host)) return absl::OkStatus();
  if (!options.allow_insecure) {
    return BadAddress(address,
                      "plaintext off loopback; add --tls-cert and --tls-key, "
                      "or --allow-insecure if that is meant, or listen on "
                      "127.0.0.1 or unix:/path");
  }
  if (!options.token_file.empty()) {
    return core::FieldInvalid("--token-file",
                              "tokens would be sent in the clear to ",
                              address.text, "; add --tls-cert and --tls-key");
  }
  return absl::OkStatus();
}

absl::Status CheckAddresses(const ServerOptions& options) {
  absl::flat_hash_set<std::string> seen;
  for (const std::string& text : options.listen) {
    ASSIGN_OR_RETURN(const Address address, ParseAddress(text));
    // Port 0 may be given several times, because it stands for a new port each
    // time.
    if (!seen.insert(text).second && !absl::EndsWith(text, ":0")) {
      return BadAddress(address, "was given more than once");
    }
    if (!options.tls.cert.empty()) continue;
    RETURN_IF_ERROR(CheckPlaintext(address, options));
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
  if (!tls.cert.empty()) {
    RETURN_IF_ERROR(LoadCertificates(tls, absl::Now()).status());
  }
  if (!options.token_file.empty()) {
    return Tokens::Load(options.token_file, options.public_methods,
                        options.extra_service.descriptor)
        .status();
  }
  return options.public_methods.empty()
             ? absl::OkStatus()
             : core::FieldInvalid(
                   "--public-methods",
                   "without --token-file all methods are public");
}

}  // namespace

absl::Status CheckOptions(const ServerOptions& options) {
  absl::Status status = CheckLimits(options.limits);
  if (status.ok()) status = CheckConnectionLimits(options.connections);
  if (status.ok()) status = CheckAddresses(options);
  if (status.ok()) status = CheckFiles(options);
  if (status.ok()) status = SharedFiles::Open(options.shared_memory).status();
  return status;
}

}  // namespace posenc::server
