#include "client/flags/security_flags.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace posenc::flags {
namespace {

constexpr char kGroup[] = "TLS and tokens";

// Names of options in the library's errors, and their flags.
constexpr std::pair<absl::string_view, absl::string_view> kNames[] = {
    {"tls.ca_file", "--tls-ca"},
    {"tls.cert_file", "--tls-cert"},
    {"tls.key_file", "--tls-key"},
    {"token_file", "--token-file"},
};

}  // namespace

bool SecurityFlags::Given() const {
  return tls || !tls_ca.empty() || !tls_cert.empty() || !tls_key.empty() ||
         !tls_server_name.empty() || !token_file.empty();
}

void AddSecurityFlags(CLI::App* app, SecurityFlags* flags) {
  app->add_flag("--tls", flags->tls,
                "Use TLS, and trust the system's authorities; other TLS flags "
                "imply it")
      ->group(kGroup);
  const auto file = [&](const char* name, std::string* path,
                        const char* description) {
    app->add_option(name, *path, description)->type_name("FILE")->group(kGroup);
  };
  file("--tls-ca", &flags->tls_ca,
       "Trust these authorities instead (PEM certificates)");
  file("--tls-cert", &flags->tls_cert,
       "Send this certificate to servers that want one (PEM)");
  file("--tls-key", &flags->tls_key, "Key of --tls-cert (PEM, no passphrase)");
  app->add_option(
         "--tls-server-name", flags->tls_server_name,
         "Name expected in the server's certificate, if not the address's")
      ->type_name("NAME")
      ->group(kGroup);
  file("--token-file", &flags->token_file,
       "Send the bearer token of this file, only over TLS or to this machine");
}

absl::Status ApplySecurityFlags(const SecurityFlags& flags,
                                ClientOptions* options) {
  if (flags.tls || !flags.tls_ca.empty() || !flags.tls_cert.empty() ||
      !flags.tls_key.empty() || !flags.tls_server_name.empty()) {
    options->tls = TlsOptions{flags.tls_ca, flags.tls_cert, flags.tls_key,
                              flags.tls_server_name};
  }
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
