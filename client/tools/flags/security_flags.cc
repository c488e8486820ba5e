#include "client/tools/flags/security_flags.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace posenc::flags {
namespace {

// Names of options in the errors of the client library, and the flags for these
// options.
constexpr std::pair<absl::string_view, absl::string_view> kNames[] = {
    {"tls.ca_file", "--tls-ca"},
    {"tls.cert_file", "--tls-cert"},
    {"tls.key_file", "--tls-key"},
    {"token_file", "--token-file"},
};

}  // namespace

void AddSecurityFlags(CLI::App* app, SecurityFlags* flags) {
  const auto add = [&](const char* name, Target target, const char* type,
                       const char* help) {
    AddFlag(app, name, target, type, help, {.group = "TLS and tokens"});
  };
  add("--tls", &flags->tls, "",
      "Use TLS, and trust the system's authorities; other TLS flags imply it");
  TlsOptions* const tls = &flags->tls_options;
  add("--tls-ca", &tls->ca_file, "FILE",
      "Trust these authorities instead (PEM certificates)");
  add("--tls-cert", &tls->cert_file, "FILE",
      "Send this certificate to servers that want one (PEM)");
  add("--tls-key", &tls->key_file, "FILE",
      "Key of --tls-cert (PEM, no passphrase)");
  add("--tls-server-name", &tls->server_name, "NAME",
      "Name expected in the server's certificate, if not the address's");
  add("--token-file", &flags->token_file, "FILE",
      "Send the bearer token of this file, only over TLS or to this machine");
}

absl::Status ApplySecurityFlags(const SecurityFlags& flags,
                                ClientOptions* options) {
  if (flags.UseTls()) options->tls = flags.tls_options;
  options->token_file = flags.token_file;
  const absl::Status status = Client::CheckCredentials(*options);
  if (status.ok()) return status;
  for (const auto& [option, flag] : kNames) {
    absl::string_view rest = status.message();
    if (absl::ConsumePrefix(&rest, option)) {
      return absl::InvalidArgumentError(absl::StrCat(flag, rest));
    }
  }
  return status;
}

}  // namespace posenc::flags
