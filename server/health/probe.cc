#include "server/health/probe.h"

#include <memory>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "grpc/health/v1/health.pb.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/channel_arguments.h"
#include "server/base/small_file.h"

namespace posenc::server {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

constexpr char kMethod[] = "/grpc.health.v1.Health/Check";

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> CredentialsFor(
    const std::string& address, const ProbeTls& tls) {
  if (tls.ca.empty() && !tls.server_name.empty()) {
    return core::FieldInvalid("--tls-server-name",
                              "is of no use without --tls-ca");
  }
  if (tls.ca.empty() || absl::StartsWith(address, "unix:")) {
    return grpc::InsecureChannelCredentials();
  }
  grpc::SslCredentialsOptions options;
  for (const auto& [flag, path, text] :
       {std::tuple{"--tls-ca", &tls.ca, &options.pem_root_certs},
        {"--tls-cert", &tls.cert, &options.pem_cert_chain},
        {"--tls-key", &tls.key, &options.pem_private_key}}) {
    if (path->empty()) continue;
    ASSIGN_OR_RETURN(*text, ReadSmallFile(flag, *path));
  }
  return grpc::SslCredentials(options);
}

// Returns the advice for a server that does not answer.
absl::string_view Remedy(const std::string& address, const ProbeTls& tls) {
  if (absl::StartsWith(address, "unix:")) return "; is the server there?";
  return tls.ca.empty()
             ? "; is the server there, and is it TLS? then give --tls-ca"
             : "; is the server there, is it TLS, and do both trust the "
               "certificates?";
}

}  // namespace

absl::Status Probe(const std::string& address, const std::string& service,
                   const ProbeTls& tls, absl::Duration timeout) {
  ASSIGN_OR_RETURN(const auto credentials, CredentialsFor(address, tls));
  HealthCheckRequest asked;
  asked.set_service(service);
  const grpc::Slice request(asked.SerializeAsString());

  grpc::ChannelArguments arguments;
  if (!tls.server_name.empty()) {
    arguments.SetSslTargetNameOverride(tls.server_name);
  }
  grpc::GenericStub stub(
      grpc::CreateCustomChannel(address, credentials, arguments));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  const grpc::ByteBuffer message(&request, 1);
  grpc::ByteBuffer response;
  grpc::Status status;
  absl::Notification done;
  stub.UnaryCall(&context, kMethod, grpc::StubOptions(), &message, &response,
                 [&](grpc::Status end) {
                   status = std::move(end);
                   done.Notify();
                 });
  done.WaitForNotification();
  if (!status.ok()) {
    return absl::Status(
        static_cast<absl::StatusCode>(status.error_code()),
        absl::StrCat(address, ": ", status.error_message(),
                     status.error_code() == grpc::StatusCode::UNAVAILABLE
                         ? Remedy(address, tls)
                         : ""));
  }
  grpc::Slice bytes;
  HealthCheckResponse answer;
  if (!response.DumpToSingleSlice(&bytes).ok() ||
      !answer.ParseFromArray(bytes.begin(), static_cast<int>(bytes.size())) ||
      answer.status() != HealthCheckResponse::SERVING) {
    return absl::UnavailableError(
        absl::StrCat(address, ": ", service, " is not serving"));
  }
  return absl::OkStatus();
}

}  // namespace posenc::server
