// The tokens of a running server, which replaces them while it runs.

#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/auth/tokens.h"

namespace posenc::server {

// Safe for any number of threads.
class TokenFile {
 public:
  // Loads the file. INVALID_ARGUMENT, field "--token-file" or
  // "--public-methods", if it cannot be read or parsed, or an RPC is unknown.
  // more: as in IsRpc().
  static absl::StatusOr<std::unique_ptr<TokenFile>> Load(
      const std::string& path, const std::vector<std::string>& public_methods,
      ServiceDescriptors more);

  // Reads the file again. Returns the same errors as Load(); then the last good
  // tokens stay in force.
  absl::Status Reload();

  absl::Time last_expiry() const { return tokens()->last_expiry(); }

  // See Tokens. A public method needs no token, and its caller has no name.
  absl::StatusOr<Caller> Check(absl::string_view method,
                               absl::string_view authorization) const;

 private:
  TokenFile(std::string path, ServiceDescriptors more)
      : path_(std::move(path)), more_(std::move(more)) {}

  std::shared_ptr<const Tokens> tokens() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return tokens_;
  }

  const std::string path_;
  const ServiceDescriptors more_;
  absl::flat_hash_set<std::string> public_methods_;
  mutable std::mutex mutex_;
  std::shared_ptr<const Tokens> tokens_;  // guarded by mutex_
};

}  // namespace posenc::server
