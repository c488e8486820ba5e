#include "server/credentials.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/error.h"

namespace posenc::server {
namespace {

// How often the files are looked at.
constexpr absl::Duration kLook = absl::Seconds(1);

std::vector<std::string> FilesOf(const ServerOptions& options) {
  std::vector<std::string> paths;
  for (const std::string& path : {options.tls.cert, options.tls.key,
                                  options.tls.client_ca, options.token_file}) {
    if (!path.empty()) paths.push_back(path);
  }
  return paths;
}

}  // namespace

Credentials::Credentials(const ServerOptions& options)
    : notice_(options.notice), watch_(FilesOf(options)) {}

absl::StatusOr<std::unique_ptr<Credentials>> Credentials::Load(
    const ServerOptions& options) {
  std::unique_ptr<Credentials> credentials(new Credentials(options));
  const TlsFiles& files = options.tls;
  if (files.cert.empty() != files.key.empty()) {
    return core::FieldInvalid(files.cert.empty() ? "--tls-cert" : "--tls-key",
                              "is missing; certificate and key come together");
  }
  if (files.cert.empty() && !files.client_ca.empty()) {
    return core::FieldInvalid("--tls-client-ca",
                              "needs --tls-cert and --tls-key");
  }
  if (!files.cert.empty()) {
    auto tls = Tls::Load(files);
    if (!tls.ok()) return tls.status();
    credentials->tls_ = *std::move(tls);
  }
  if (options.token_file.empty() && !options.public_methods.empty()) {
    return core::FieldInvalid("--public-methods",
                              "without --token-file all methods are");
  }
  if (!options.token_file.empty()) {
    auto tokens = TokenFile::Load(options.token_file, options.public_methods);
    if (!tokens.ok()) return tokens.status();
    credentials->tokens_ = *std::move(tokens);
  }
  if (credentials->tls_ != nullptr || credentials->tokens_ != nullptr) {
    Credentials* const loaded = credentials.get();
    credentials->watch_.Start(
        kLook, [loaded] { loaded->Reload(); },
        [loaded] { loaded->WarnOfExpiry(); });
  }
  return credentials;
}

void Credentials::Tell(Notice notice, absl::string_view line) {
  if (notice_ != nullptr) notice_(notice, line);
}

void Credentials::Reload() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (tls_ != nullptr) {
    Reloaded("certificates", tls_->Reload(), &tls_reloads_, &tls_errors_);
  }
  if (tokens_ != nullptr) {
    Reloaded("tokens", tokens_->Reload(), &token_reloads_, &token_errors_);
  }
}

void Credentials::Reloaded(absl::string_view what, const absl::Status& status,
                           std::atomic<std::int64_t>* reloads,
                           std::atomic<std::int64_t>* errors) {
  ++(status.ok() ? *reloads : *errors);
  if (status.ok()) {
    Tell(Notice::kInfo, absl::StrCat(what, " were read again"));
  } else {
    Tell(Notice::kWarning,
         absl::StrCat(status.message(), "; the ", what,
                      " that were read before stay in force"));
  }
}

void Credentials::WarnOfExpiry() {
  if (tls_ == nullptr) return;
  const absl::Time expiry = tls_->not_after();
  if (absl::Now() <= expiry || warned_of_ == expiry) return;
  warned_of_ = expiry;
  const std::lock_guard<std::mutex> lock(mutex_);
  Tell(Notice::kWarning,
       absl::StrCat(
           "--tls-cert: has expired on ",
           absl::FormatTime(absl::RFC3339_sec, expiry, absl::UTCTimeZone()),
           "; clients refuse it"));
}

CredentialsState Credentials::state() const {
  CredentialsState state;
  state.tls = tls_ != nullptr;
  if (state.tls) state.tls_not_after = tls_->not_after();
  state.tls_reloads = tls_reloads_.load();
  state.tls_reload_errors = tls_errors_.load();
  state.token_reloads = token_reloads_.load();
  state.token_reload_errors = token_errors_.load();
  return state;
}

}  // namespace posenc::server
