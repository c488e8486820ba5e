#include "server/transport/tls.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/status_macros.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "posenc/compat.h"

namespace posenc::server {
namespace {

// Interval at which gRPC checks for new contents.
constexpr unsigned kLookSeconds = 1;

using grpc::experimental::FileWatcherCertificateProvider;

absl::Status Failed(const char* what) {
  return absl::UnavailableError(
      absl::StrCat("--tls-cert: ", what, ": ", std::strerror(errno)));
}

// Replaces the file behind the descriptor in one step. The descriptor keeps its
// number. gRPC reads key and certificate one after the other. gRPC detects a
// replacement between the two reads by the file's time of change, in seconds.
// So the file gets `generation` as this time.
absl::Status Replace(Descriptor* file, const std::string& text,
                     std::int64_t generation) {
  Descriptor fresh(memfd_create("posenc-tls", MFD_CLOEXEC));
  if (!fresh.valid()) return Failed("memfd_create");
  const ssize_t size = static_cast<ssize_t>(text.size());
  const timespec time = {.tv_sec = generation, .tv_nsec = 0};
  const timespec times[] = {time, time};
  if (write(fresh.get(), text.data(), text.size()) != size ||
      futimens(fresh.get(), times) != 0) {
    return Failed("memfd");
  }
  if (!file->valid()) {
    *file = std::move(fresh);
    return absl::OkStatus();
  }
  return dup3(fresh.get(), file->get(), O_CLOEXEC) < 0 ? Failed("dup3")
                                                       : absl::OkStatus();
}

std::string PathOf(const Descriptor& file) {
  return file.valid() ? absl::StrCat("/proc/self/fd/", file.get()) : "";
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tls>> Tls::Load(const TlsFiles& files) {
  std::unique_ptr<Tls> tls(new Tls(files));
  RETURN_IF_ERROR(tls->Reload());
  const std::string identity = PathOf(tls->identity_);
  const bool clients = !files.client_ca.empty();
  auto options = compat::TlsServerOptions(
      std::make_shared<FileWatcherCertificateProvider>(
          identity, identity, PathOf(tls->client_ca_), kLookSeconds),
      clients);
  if (clients) {
    options.set_cert_request_type(
        GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  tls->credentials_ = grpc::experimental::TlsServerCredentials(options);
  return tls;
}

absl::Status Tls::Reload() {
  ASSIGN_OR_RETURN(const auto certificates,
                   LoadCertificates(files_, absl::Now()));
  ++generation_;
  // Key and certificate are in one file, so that gRPC never uses a new key with
  // an old certificate.
  absl::Status status = Replace(&identity_, certificates.identity, generation_);
  if (status.ok() && !certificates.client_ca.empty()) {
    status = Replace(&client_ca_, certificates.client_ca, generation_);
  }
  if (status.ok()) not_after_ = absl::ToUnixSeconds(certificates.not_after);
  return status;
}

}  // namespace posenc::server
