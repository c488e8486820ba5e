// The connections of a client: one for small calls, a few for bulk ones, which
// a single connection would hold back.

#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "grpcpp/channel.h"
#include "posenc/client.h"

namespace posenc {

class Channels {
 public:
  // Connects nothing yet.
  explicit Channels(const ClientOptions& options);
  // All calls over a channel of the caller's.
  explicit Channels(std::shared_ptr<grpc::Channel> channel);

  const std::shared_ptr<grpc::Channel>& small() const { return small_; }

  // The next in turn.
  std::shared_ptr<grpc::Channel> Bulk();

  // Takes this one out: another is made in its place when it is needed.
  void Drop(const std::shared_ptr<grpc::Channel>& channel);

 private:
  const ClientOptions options_;
  std::shared_ptr<grpc::Channel> small_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<grpc::Channel>> bulk_;  // null: not made yet
  std::size_t next_ = 0;
};

}  // namespace posenc
