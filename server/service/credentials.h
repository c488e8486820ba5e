// Certificates and tokens of a running server. They are read again when their
// files change.

#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/base/small_file.h"
#include "server/service/server.h"
#include "server/transport/tls.h"
#include "server/transport/tokens.h"

namespace posenc::server {

// Reload() and LookAtFiles() must be called by one thread at a time. The other
// functions are thread-safe.
class Credentials {
 public:
  // Loads the files. Returns INVALID_ARGUMENT, with the flag as field, for a
  // file that cannot be used.
  static absl::StatusOr<std::unique_ptr<Credentials>> Load(
      const ServerOptions& options);

  // Returns null if there are no certificates.
  const Tls* tls() const { return tls_.get(); }

  // Returns the caller, as Tokens::Check() does. Without tokens, every caller
  // is accepted, and has no name.
  absl::StatusOr<Caller> Check(absl::string_view method,
                               absl::string_view authorization) const;

  // Reads the files again. Returns false if a file cannot be used. Then the
  // failure is reported and counted, and the file's last good contents stay in
  // use.
  bool Reload();

  // Reads the files again if they have changed, and reports that certificates
  // or tokens have expired. Must be called about once a second.
  void LookAtFiles();

  void FillIn(ServerStatus* status) const;

 private:
  explicit Credentials(const ServerOptions& options);

  absl::Status LoadTokens();
  std::shared_ptr<const Tokens> tokens() const;
  void Tell(Notice notice, absl::string_view line);
  void WarnOfExpiry();

  const ServerOptions options_;
  FileChanges changes_;
  std::unique_ptr<Tls> tls_;
  mutable std::mutex tokens_mutex_;
  std::shared_ptr<const Tokens> tokens_;  // guarded by tokens_mutex_
  std::atomic<std::int64_t> tls_errors_{0}, token_errors_{0};
  absl::Time warned_of_, warned_of_tokens_;  // expiry times that were reported
};

}  // namespace posenc::server
