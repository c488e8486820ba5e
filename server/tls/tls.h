// The certificates of a running server: kept valid, and replaced while it runs.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/security/server_credentials.h"
#include "server/base/descriptor.h"
#include "server/tls/certificates.h"
#include "server/tls/tls_files.h"

namespace posenc::server {

// Safe for any number of threads.
class Tls {
 public:
  // INVALID_ARGUMENT for files that cannot be used.
  static absl::StatusOr<std::unique_ptr<Tls>> Load(const TlsFiles& files);

  // What listeners take. TLS 1.2 and above; with a client CA, clients must show
  // a certificate of it. New certificates reach handshakes within a second.
  std::shared_ptr<grpc::ServerCredentials> credentials() const {
    return credentials_;
  }

  // Reads the files again. Fails as Load() does; then what was loaded last
  // stays in force. Connections that exist go on in any case.
  absl::Status Reload();

  // When the certificates in force expire.
  absl::Time not_after() const {
    return absl::FromUnixSeconds(not_after_.load());
  }

 private:
  explicit Tls(const TlsFiles& files) : files_(files) {}

  absl::Status Publish(const Certificates& certificates);

  const TlsFiles files_;
  std::mutex mutex_;  // of a reload
  // gRPC watches files; these are in memory, so that a key is never on a disk
  // and a broken file never in gRPC. Their numbers stay while their contents
  // are replaced.
  Descriptor identity_, client_ca_;
  std::int64_t generation_ = 0;
  std::atomic<std::int64_t> not_after_{0};
  std::shared_ptr<grpc::ServerCredentials> credentials_;
};

}  // namespace posenc::server
