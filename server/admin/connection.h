// One connection of the admin server: reads a request's head, writes the
// response, closes. Every phase has its end in time, whatever the peer does.

#pragma once

#include <functional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace posenc::server {

// For one thread.
class AdminConnection {
 public:
  // Makes the response to a complete head.
  using Respond = std::function<std::string(absl::string_view head)>;

  // Owns `fd`, a socket that does not block. No phase takes longer than
  // `timeout`.
  AdminConnection(int fd, absl::Time now, absl::Duration timeout);
  ~AdminConnection();
  AdminConnection(const AdminConnection&) = delete;
  AdminConnection& operator=(const AdminConnection&) = delete;

  int fd() const { return fd_; }
  // What to poll for.
  short events() const;
  // When the phase ends, and Expire() is due.
  absl::Time deadline() const { return deadline_; }
  bool has_request() const { return phase_ != Phase::kReading; }

  // Goes as far as it can without blocking. False: it is to be destroyed.
  bool Advance(const Respond& respond, absl::Time now);

  // The peer took too long: what it has not read is thrown away.
  void Reset();

 private:
  // kClosing: the response is sent, and what the peer still sends is read and
  // thrown away. If it were left, close() would reset the connection, and the
  // peer might lose the response.
  enum class Phase { kReading, kWriting, kClosing };

  // These tell whether there is more to do at once (true), or the socket would
  // block. They set failed_ if the peer is gone.
  bool Read(const Respond& respond, absl::Time now);
  bool Write(absl::Time now);
  bool Discard();

  const int fd_;
  const absl::Duration timeout_;
  Phase phase_ = Phase::kReading;
  absl::Time deadline_;
  bool failed_ = false;
  std::string head_;
  std::string response_;
  std::size_t written_ = 0;
};

}  // namespace posenc::server
