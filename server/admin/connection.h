// One connection of the admin server: reads a request's head, and its body if
// it is a call, writes the response, closes. Every phase has its end in time,
// whatever the peer does.

#pragma once

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/admin/call_workers.h"
#include "server/admin/http.h"

namespace posenc::server {

// Who answers what connections have read.
class AdminAnswers {
 public:
  virtual ~AdminAnswers() = default;
  virtual Reaction React(absl::string_view head) = 0;
  virtual std::shared_ptr<WaitingCall> Start(JsonCall call,
                                             std::string body) = 0;
};

// For one thread.
class AdminConnection {
 public:
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
  bool has_request() const {
    return phase_ != Phase::kReading && !reading_body();
  }
  bool reading_body() const { return phase_ == Phase::kBody; }
  // Its call is under way.
  bool calling() const { return phase_ == Phase::kCalling; }

  // Goes as far as it can without blocking. False: it is to be destroyed.
  bool Advance(AdminAnswers* answers, absl::Time now);

  // The peer took too long: what it has not read is thrown away.
  void Reset();

  // Others need its place: it is reset when it is next looked at.
  void GiveUp() { deadline_ = absl::InfinitePast(); }

 private:
  // kCalling: the call has a deadline of its own; the phase's is behind it.
  // kClosing: the response is sent, and what the peer still sends is read and
  // thrown away. If it were left, close() would reset the connection, and the
  // peer might lose the response.
  enum class Phase { kReading, kBody, kCalling, kWriting, kClosing };

  // These tell whether there is more to do at once (true), or the socket would
  // block. They set failed_ if the peer is gone.
  bool Read(AdminAnswers* answers, absl::Time now);
  bool ReadBody(AdminAnswers* answers, absl::Time now);
  bool Await(absl::Time now);
  bool Write(absl::Time now);
  bool Discard();
  // Whether recv() gave something; sets failed_ if nothing more will come.
  bool Received(ssize_t bytes);
  void Enter(Phase phase, absl::Time deadline);

  const int fd_;
  const absl::Duration timeout_;
  Phase phase_ = Phase::kReading;
  absl::Time deadline_;
  bool failed_ = false;
  std::string head_;
  JsonCall asked_;
  std::string body_;
  std::size_t body_bytes_ = 0;         // of the whole body
  std::shared_ptr<WaitingCall> call_;  // while it is under way
  std::string response_;
  std::size_t written_ = 0;
};

}  // namespace posenc::server
