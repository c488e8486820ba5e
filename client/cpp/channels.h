// The connections of a client: one for small calls, and a few for bulk ones. A
// single connection is a bottleneck: four concurrent calls of 1 MiB run at 1.5
// times the speed over four (measured on loopback).

#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "credentials.h"
#include "grpcpp/channel.h"
#include "grpcpp/support/channel_arguments.h"
#include "posenc/client.h"

namespace posenc {

// What the channels of such a client have in common. `own_connection` says that
// a channel shares none with other channels.
grpc::ChannelArguments ChannelArguments(const ClientOptions& options,
                                        bool own_connection, bool retries);

// Safe for any number of threads.
class Channels {
  struct Connection {
    std::shared_ptr<grpc::Channel> channel;
    std::atomic<int> calls{0};  // under way
  };

 public:
  // What a call takes: its connection counts it until this is destroyed.
  class Lease {
   public:
    explicit Lease(std::shared_ptr<Connection> connection)
        : connection_(std::move(connection)) {
      ++connection_->calls;
    }
    Lease(Lease&&) = default;
    Lease& operator=(Lease&&) = delete;
    ~Lease() {
      if (connection_ != nullptr) --connection_->calls;
    }

    const std::shared_ptr<grpc::Channel>& channel() const {
      return connection_->channel;
    }

   private:
    friend class Channels;
    std::shared_ptr<Connection> connection_;  // null: moved from
  };

  // Connects nothing yet.
  explicit Channels(const ClientOptions& options);
  // All calls go over a channel of the caller's.
  explicit Channels(std::shared_ptr<grpc::Channel> channel);

  // Why no channel can be made; calls are not to be tried.
  const absl::Status& status() const { return security_.status(); }

  // Where the server is; empty for a channel of the caller's own.
  const std::string& target() const { return options_.target; }
  Lease Small() const { return Lease(small_); }

  // The bulk connection with the fewest calls under way; a new one if all that
  // there are have some. A caller that makes one call at a time so stays on one
  // connection: for each one that has received a large message, gRPC keeps many
  // MiB to read the next one into. Connections with equally many calls take
  // turns. If they did not, a connection whose calls fail at once would get all
  // of them, as it is nearly always idle.
  Lease Bulk();

  // A connection that does not retry calls. The first use makes it. A channel
  // that the caller gave is taken as it is.
  Lease Once();

  // Takes out a bulk connection, or that of Once(), which is stuck, and ends
  // the lease. Its place gets a new one when that is needed; calls that have it
  // keep it.
  void Drop(Lease lease);

 private:
  std::shared_ptr<Connection> Create(bool own_connection, bool retries) const;

  const ClientOptions options_;
  const absl::StatusOr<ChannelSecurity> security_;
  const std::shared_ptr<Connection> small_;
  std::mutex mutex_;
  // Guarded by mutex_. Null: not made yet. Empty: small_ serves all calls. The
  // one that was taken last stands last.
  std::vector<std::shared_ptr<Connection>> bulk_;
  std::shared_ptr<Connection> once_;  // null: not made yet
};

}  // namespace posenc
