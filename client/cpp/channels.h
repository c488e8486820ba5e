// The connections of a client: one for small calls, and a few for bulk ones. A
// single connection is a bottleneck: four concurrent calls of 1 MiB run at 1.5
// times the speed over four (measured on loopback).

#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "credentials.h"
#include "grpcpp/channel.h"
#include "posenc/client.h"

namespace posenc {

// Safe for any number of threads.
class Channels {
 public:
  // Connects nothing yet.
  explicit Channels(const ClientOptions& options);
  // All calls go over a channel of the caller's.
  explicit Channels(std::shared_ptr<grpc::Channel> channel);

  // Why no channel can be made; calls are not to be tried.
  const absl::Status& status() const { return security_.status(); }

  // Where the server is; empty for a channel of the caller's own.
  const std::string& target() const { return options_.target; }
  const std::shared_ptr<grpc::Channel>& small() const { return small_; }

  // The bulk channel with the fewest calls under way; a new one if all that
  // there are have some. Every caller keeps the pointer until its call is over:
  // the pointer's owners are what is counted. A caller that makes one call at a
  // time so stays on one connection: for each one that has received a large
  // message, gRPC keeps many MiB to read the next one into.
  std::shared_ptr<grpc::Channel> Bulk();

  // A channel that does not retry calls. The first use makes it. A channel that
  // the caller gave is returned as it is.
  std::shared_ptr<grpc::Channel> Once();

  // Takes out a channel that is stuck. Its place gets a new one when that is
  // needed; calls that have it keep it.
  void Drop(const std::shared_ptr<grpc::Channel>& channel);

 private:
  std::shared_ptr<grpc::Channel> Create(bool own_connection,
                                        bool retries) const;

  const ClientOptions options_;
  const absl::StatusOr<ChannelSecurity> security_;
  const std::shared_ptr<grpc::Channel> small_;
  std::mutex mutex_;
  // Guarded by mutex_. Null: not made yet. Empty: small_ serves all calls.
  std::vector<std::shared_ptr<grpc::Channel>> bulk_;
  std::shared_ptr<grpc::Channel> once_;  // null: not made yet
};

}  // namespace posenc
