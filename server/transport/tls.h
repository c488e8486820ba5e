// The certificates of a server. They can be replaced while the server runs.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/security/server_credentials.h"
#include "server/base/descriptor.h"
#include "server/transport/certificates.h"

namespace posenc::server {

// Reload() must be called by one thread at a time; other functions are safe for
// any number of threads.
class Tls {
 public:
  // Loads the files. Returns INVALID_ARGUMENT if a file cannot be used.
  static absl::StatusOr<std::unique_ptr<Tls>> Load(const TlsFiles& files);

  // Returns credentials with TLS 1.2 and above. With a client CA, clients must
  // send a certificate that this CA has issued. After a reload, handshakes use
  // the new certificates within a second.
  std::shared_ptr<grpc::ServerCredentials> credentials() const {
    return credentials_;
  }

  // Reads the files again. Returns the errors of Load(). After an error, the
  // last good certificates stay in use. Existing connections always continue.
  absl::Status Reload();

  // Returns the earliest expiry of the certificates in use.
  absl::Time not_after() const {
    return absl::FromUnixSeconds(not_after_.load());
  }

 private:
  explicit Tls(const TlsFiles& files) : files_(files) {}

  const TlsFiles files_;
  // gRPC watches files. These files are in memory, so that a key is never
  // written to a disk and gRPC never reads a broken file. A reload replaces the
  // files behind these descriptors, whose numbers stay the same.
  Descriptor identity_, client_ca_;
  std::int64_t generation_ = 0;
  std::atomic<std::int64_t> not_after_{0};
  std::shared_ptr<grpc::ServerCredentials> credentials_;
};

}  // namespace posenc::server
