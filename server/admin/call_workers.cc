#include "server/admin/call_workers.h"

#include <pthread.h>

#include <chrono>
#include <utility>

namespace posenc::server {
namespace {

// The end of a call in time, whatever the server's own deadline is.
constexpr std::chrono::seconds kTimeout(10);

JsonAnswer Draining() {
  return JsonError(503, grpc::StatusCode::UNAVAILABLE,
                   "the server is draining");
}

}  // namespace

WaitingCall::WaitingCall(JsonCall call, std::string body,
                         std::function<void()> done)
    : call_(std::move(call)), tell_(std::move(done)), body_(std::move(body)) {
  context_.set_deadline(std::chrono::system_clock::now() + kTimeout);
}

void WaitingCall::End(JsonAnswer answer) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    answer_ = std::move(answer);
    body_.clear();
    done_ = true;
  }
  tell_();
}

bool WaitingCall::Take(JsonAnswer* answer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!done_) return false;
  *answer = std::move(answer_);
  return true;
}

CallWorkers::CallWorkers(const std::shared_ptr<grpc::Channel>& channel,
                         int threads)
    : stub_(v1::PositionalEncodingService::NewStub(channel)),
      taken_(static_cast<std::size_t>(threads)) {
  for (std::size_t i = 0; i < taken_.size(); ++i) {
    threads_.emplace_back([this, i] { Run(i); });
  }
}

CallWorkers::~CallWorkers() { Stop(); }

void CallWorkers::Stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
    for (const std::shared_ptr<WaitingCall>& call : taken_) {
      if (call != nullptr) call->Cancel();
    }
    for (const std::shared_ptr<WaitingCall>& call : queue_) {
      call->End(Draining());
    }
    queue_.clear();
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

std::shared_ptr<WaitingCall> CallWorkers::Start(JsonCall call, std::string body,
                                                std::function<void()> done) {
  auto waiting = std::make_shared<WaitingCall>(std::move(call), std::move(body),
                                               std::move(done));
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!stop_) {
      queue_.push_back(waiting);
      changed_.notify_one();
      return waiting;
    }
  }
  waiting->End(Draining());
  return waiting;
}

void CallWorkers::Run(std::size_t worker) {
  pthread_setname_np(pthread_self(), "admin-call");
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (stop_) return;
    const std::shared_ptr<WaitingCall> call = std::move(queue_.front());
    queue_.pop_front();
    taken_[worker] = call;
    lock.unlock();
    JsonAnswer answer;
    try {
      answer =
          MakeJsonCall(stub_.get(), call->call_, call->body_, &call->context_);
    } catch (...) {
      // No memory, most likely.
      answer = {500, ""};
    }
    call->End(std::move(answer));
    lock.lock();
    taken_[worker] = nullptr;
  }
}

}  // namespace posenc::server
