// Threads that make the calls of the admin port, so that its own thread, which
// never waits, need not.

#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "server/admin/json_call.h"

namespace posenc::server {

// A call on its way. Any thread may use it.
class WaitingCall {
 public:
  WaitingCall(JsonCall call, std::string body, std::function<void()> done);

  // The answer, once. False: it is not there yet.
  bool Take(JsonAnswer* answer);

  // The answer is no longer wanted.
  void Cancel() { context_.TryCancel(); }

 private:
  friend class CallWorkers;

  void End(JsonAnswer answer);

  const JsonCall call_;
  const std::function<void()> tell_;
  std::string body_;
  grpc::ClientContext context_;
  std::mutex mutex_;
  bool done_ = false;  // guarded by mutex_
  JsonAnswer answer_;  // likewise
};

class CallWorkers {
 public:
  CallWorkers(const std::shared_ptr<grpc::Channel>& channel, int threads);

  ~CallWorkers();  // stops
  CallWorkers(const CallWorkers&) = delete;
  CallWorkers& operator=(const CallWorkers&) = delete;

  // `done` is called once the answer is there, on any thread, maybe before this
  // function returns.
  std::shared_ptr<WaitingCall> Start(JsonCall call, std::string body,
                                     std::function<void()> done);

  // Cancels what is on its way, and waits for its end. Calls that are started
  // afterwards end with UNAVAILABLE. To be called before the server behind the
  // channel shuts down: in gRPC 1.51, a call over an in-process channel to a
  // server that is gone crashes. One thread at a time.
  void Stop();

 private:
  void Run(std::size_t worker);

  const std::unique_ptr<v1::PositionalEncodingService::StubInterface> stub_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;                                // guarded by mutex_
  std::deque<std::shared_ptr<WaitingCall>> queue_;   // likewise
  std::vector<std::shared_ptr<WaitingCall>> taken_;  // likewise; by worker
  std::vector<std::thread> threads_;
};

}  // namespace posenc::server
