#include "server/service/credentials.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/status_macros.h"

namespace posenc::server {
namespace {

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
    : options_(options), changes_(FilesOf(options)) {}

absl::StatusOr<std::unique_ptr<Credentials>> Credentials::Load(
    const ServerOptions& options) {
  std::unique_ptr<Credentials> credentials(new Credentials(options));
  if (!options.tls.cert.empty()) {
    ASSIGN_OR_RETURN(credentials->tls_, Tls::Load(options.tls));
  }
  if (!options.token_file.empty()) {
    RETURN_IF_ERROR(credentials->LoadTokens());
    // Tokens that had expired before the start are not reported here, because
    // the caller reports them.
    const absl::Time expiry = credentials->tokens_->last_expiry();
    if (absl::Now() >= expiry) credentials->warned_of_tokens_ = expiry;
  }
  return credentials;
}

absl::Status Credentials::LoadTokens() {
  ASSIGN_OR_RETURN(Tokens read,
                   Tokens::Load(options_.token_file, options_.public_methods,
                                options_.extra_service.descriptor));
  auto fresh = std::make_shared<const Tokens>(std::move(read));
  const std::lock_guard<std::mutex> lock(tokens_mutex_);
  tokens_.swap(fresh);
  return absl::OkStatus();
}

std::shared_ptr<const Tokens> Credentials::tokens() const {
  const std::lock_guard<std::mutex> lock(tokens_mutex_);
  return tokens_;
}

absl::StatusOr<Caller> Credentials::Check(
    absl::string_view method, absl::string_view authorization) const {
  if (options_.token_file.empty()) return Caller();
  return tokens()->Check(method, authorization, absl::Now());
}

void Credentials::Tell(Notice notice, absl::string_view line) {
  if (options_.notice != nullptr) options_.notice(notice, line);
}

bool Credentials::Reload() {
  bool all = true;
  const auto judge = [&](const absl::Status& read,
                         std::atomic<std::int64_t>* errors) {
    if (read.ok()) return;
    all = false;
    ++*errors;
    Tell(Notice::kWarning, absl::StrCat(read.message(),
                                        "; what was read before stays in "
                                        "force"));
  };
  if (tls_ != nullptr) judge(tls_->Reload(), &tls_errors_);
  if (!options_.token_file.empty()) judge(LoadTokens(), &token_errors_);
  return all;
}

void Credentials::LookAtFiles() {
  if (changes_.Check() && Reload()) {
    Tell(Notice::kInfo, "certificates and tokens were read again");
  }
  WarnOfExpiry();
}

void Credentials::WarnOfExpiry() {
  const auto warn = [this](absl::Time expiry, absl::Time* warned,
                           absl::string_view line) {
    if (absl::Now() < expiry || *warned == expiry) return;
    *warned = expiry;
    Tell(Notice::kWarning, line);
  };
  if (!options_.token_file.empty()) {
    warn(tokens()->last_expiry(), &warned_of_tokens_,
         "--token-file: all tokens have expired; calls that need one are "
         "refused");
  }
  if (tls_ == nullptr) return;
  const absl::Time expiry = tls_->not_after();
  warn(expiry, &warned_of_,
       absl::StrCat(
           "--tls-cert: has expired on ",
           absl::FormatTime(absl::RFC3339_sec, expiry, absl::UTCTimeZone()),
           "; clients refuse it"));
}

void Credentials::FillIn(ServerStatus* status) const {
  if (tls_ != nullptr) status->tls_not_after = tls_->not_after();
  status->tls_reload_errors = tls_errors_.load();
  status->token_reload_errors = token_errors_.load();
}

}  // namespace posenc::server
