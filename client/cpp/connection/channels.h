// The connections of a client: one for small calls, and a few for bulk calls. A
// single connection is a bottleneck: four concurrent calls of 1 MiB ran 1.5
// times as fast over four connections (loopback).

#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/connection/credentials.h"
#include "grpcpp/channel.h"
#include "grpcpp/support/channel_arguments.h"
#include "posenc/client.h"

namespace posenc {

// Returns the arguments of a channel. With `own_connection` the channel shares
// no connection with other channels.
grpc::ChannelArguments ChannelArguments(const ClientOptions& options,
                                        bool own_connection, bool retries);

// Safe for any number of threads.
class Channels {
 public:
  struct Connection {
    std::shared_ptr<grpc::Channel> channel;
  };
  // A reference to a connection, which a call holds until its end. So the
  // owners of a connection are this object and the calls under way.
  using Lease = std::shared_ptr<const Connection>;

  // Makes no connection yet.
  explicit Channels(const ClientOptions& options);
  // Makes all calls go over the caller's channel.
  explicit Channels(std::shared_ptr<grpc::Channel> channel);

  // Returns an error if no channel can be made. After this error the caller
  // must make no call.
  const absl::Status& status() const { return security_.status(); }

  // The server's address; empty for the caller's own channel.
  const std::string& target() const { return options_.target; }
  Lease Small() const { return small_; }

  // Returns the bulk connection with the fewest calls under way; makes a new
  // connection if every connection has calls. So a caller that makes one call
  // at a time uses one connection only. This saves memory, because gRPC keeps
  // many MiB for every connection that has received a large message.
  // Connections with the same number of calls are used in turn. Without turns,
  // a connection whose calls fail at once would get all calls, because it is
  // nearly always idle.
  Lease Bulk();

  // Returns a connection that does not retry calls. The first call of Once()
  // makes it. If the client has the caller's own channel, returns this channel
  // unchanged.
  Lease Once();

  // Removes a stuck connection of Bulk() or Once(), and ends the lease. A new
  // connection is made when it is needed. Calls on the old connection keep it
  // alive.
  void Drop(Lease lease);

 private:
  Lease Create(bool own_connection, bool retries) const;

  const ClientOptions options_;
  const absl::StatusOr<ChannelSecurity> security_;
  const Lease small_;
  std::mutex mutex_;
  // Guarded by mutex_. A null entry is a connection that is not made yet.
  // If bulk_ has no entries, small_ serves all calls. The connection that was
  // used last is the last entry.
  std::vector<Lease> bulk_;
  Lease once_;  // null: not made yet
};

}  // namespace posenc
