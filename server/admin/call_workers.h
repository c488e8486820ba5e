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
  WaitingCall(JsonCall call, std::string body);

  // The answer, once. False: it is not there yet.
  bool Take(JsonAnswer* answer);

  // Nobody wants the answer any more.
  void Cancel() { context_.TryCancel(); }

 private:
  friend class CallWorkers;

  void End(JsonAnswer answer);

  const JsonCall call_;
  std::string body_;
  grpc::ClientContext context_;
  std::mutex mutex_;
  bool done_ = false;  // guarded by mutex_
  JsonAnswer answer_;  // likewise
};

class CallWorkers {
 public:
  // `wake` is called in a worker's thread whenever an answer is there.
  CallWorkers(const std::shared_ptr<grpc::Channel>& channel, int threads,
              std::function<void()> wake);

  ~CallWorkers();  // stops
  CallWorkers(const CallWorkers&) = delete;
  CallWorkers& operator=(const CallWorkers&) = delete;

  std::shared_ptr<WaitingCall> Start(JsonCall call, std::string body);

  // Cancels what is on its way, and waits for its end. Calls that are started
  // afterwards end with UNAVAILABLE. To be called before the server behind the
  // channel shuts down: in gRPC 1.51, a call over an in-process channel to a
  // server that is gone crashes. One thread at a time.
  void Stop();

 private:
  void Run(std::size_t worker);

  const std::unique_ptr<v1::PositionalEncodingService::StubInterface> stub_;
  const std::function<void()> wake_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;                                // guarded by mutex_
  std::deque<std::shared_ptr<WaitingCall>> queue_;   // likewise
  std::vector<std::shared_ptr<WaitingCall>> taken_;  // likewise; by worker
  std::vector<std::thread> threads_;
};

}  // namespace posenc::server
