// TLS and tokens of a channel.

#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "grpcpp/channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/channel_arguments.h"
#include "posenc/client.h"

namespace posenc {

class ChannelSecurity {
 public:
  // Reads the files that `options` name. INVALID_ARGUMENT for an option that
  // cannot be used, for options that exclude each other, and for a token that
  // would be sent unencrypted to another machine. The message begins with the
  // option ("tls.ca_file: ...").
  static absl::StatusOr<ChannelSecurity> Of(const ClientOptions& options);

  std::shared_ptr<grpc::Channel> CreateChannel(
      const std::string& target, grpc::ChannelArguments arguments) const;

 private:
  std::shared_ptr<grpc::ChannelCredentials> credentials_;
  std::string server_name_;
};

}  // namespace posenc
