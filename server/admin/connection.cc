#include "server/admin/connection.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace posenc::server {
namespace {

constexpr char kContinue[] = "HTTP/1.1 100 Continue\r\n\r\n";
// A call ends within 10 s (call_workers.cc), or is cancelled and ends then.
constexpr absl::Duration kLongestCall = absl::Seconds(15);
constexpr std::size_t kBodyPiece = 64 << 10;

// Read and thrown away at one go, so that a peer that sends without end does
// not keep the thread.
constexpr int kMaxDiscards = 16;

// A call on a socket that is worth another try later.
bool WouldBlock() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

}  // namespace

AdminConnection::AdminConnection(int fd, absl::Time now, absl::Duration timeout)
    : fd_(fd), timeout_(timeout), deadline_(now + timeout) {}

AdminConnection::~AdminConnection() {
  if (call_ != nullptr) call_->Cancel();
  close(fd_);
}

short AdminConnection::events() const {
  return phase_ == Phase::kWriting ? POLLOUT : POLLIN;
}

void AdminConnection::Enter(Phase phase, absl::Time deadline) {
  phase_ = phase;
  deadline_ = deadline;
}

void AdminConnection::Reset() {
  const linger at_once = {.l_onoff = 1, .l_linger = 0};
  setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
}

bool AdminConnection::Advance(AdminAnswers* answers, absl::Time now) {
  bool more = true;
  while (more && !failed_) {
    switch (phase_) {
      case Phase::kReading:
        more = Read(answers, now);
        break;
      case Phase::kBody:
        more = ReadBody(answers, now);
        break;
      case Phase::kCalling:
        more = Await(now);
        break;
      case Phase::kWriting:
        more = Write(now);
        break;
      case Phase::kClosing:
        more = Discard();
        break;
    }
  }
  return !failed_;
}

bool AdminConnection::Received(ssize_t bytes) {
  if (bytes > 0) return true;
  failed_ = bytes == 0 || !WouldBlock();
  return false;
}

bool AdminConnection::Read(AdminAnswers* answers, absl::Time now) {
  // One byte more than a head may have tells that it is too long.
  std::array<char, kMaxHeadBytes + 1> buffer;
  const ssize_t bytes =
      recv(fd_, buffer.data(), buffer.size() - head_.size(), 0);
  if (!Received(bytes)) return false;
  head_.append(buffer.data(), static_cast<std::size_t>(bytes));
  switch (JudgeHead(head_)) {
    case Head::kIncomplete:
      return true;
    case Head::kComplete: {
      Reaction reaction = answers->React(head_);
      if (reaction.call) {
        asked_ = *std::move(reaction.call);
        body_bytes_ = reaction.body_bytes;
        body_ = head_.substr(head_.find("\r\n\r\n") + 4, body_bytes_);
        if (reaction.expects_continue && body_.size() < body_bytes_) {
          // It fits into the socket's empty buffer. If it is lost, the peer
          // sends its body a little later.
          (void)!send(fd_, kContinue, sizeof(kContinue) - 1, MSG_NOSIGNAL);
        }
        Enter(Phase::kBody, now + timeout_);
        return true;
      }
      response_ = std::move(reaction.response);
      break;
    }
    case Head::kNotHttp:
      response_ = BareResponse(400);
      break;
    case Head::kLineTooLong:
      response_ = BareResponse(414);
      break;
    case Head::kTooLong:
      response_ = BareResponse(431);
      break;
  }
  Enter(Phase::kWriting, now + timeout_);
  return true;
}

bool AdminConnection::ReadBody(AdminAnswers* answers, absl::Time now) {
  if (body_.size() < body_bytes_) {
    std::array<char, kBodyPiece> buffer;
    const ssize_t bytes =
        recv(fd_, buffer.data(),
             std::min(buffer.size(), body_bytes_ - body_.size()), 0);
    if (!Received(bytes)) return false;
    body_.append(buffer.data(), static_cast<std::size_t>(bytes));
    return true;
  }
  call_ = answers->Start(std::move(asked_), std::move(body_));
  Enter(Phase::kCalling, now + kLongestCall);
  return true;
}

bool AdminConnection::Await(absl::Time now) {
  JsonAnswer answer;
  if (call_->Take(&answer)) {
    call_ = nullptr;
    response_ = JsonResponse(answer);
    Enter(Phase::kWriting, now + timeout_);
    return true;
  }
  // Whoever closes no longer wants the answer, and the call is cancelled.
  return Discard();
}

bool AdminConnection::Write(absl::Time now) {
  const ssize_t bytes = send(fd_, response_.data() + written_,
                             response_.size() - written_, MSG_NOSIGNAL);
  if (bytes < 0) {
    failed_ = !WouldBlock();
    return false;
  }
  written_ += static_cast<std::size_t>(bytes);
  if (written_ < response_.size()) return true;
  shutdown(fd_, SHUT_WR);
  // The kernel may still be sending meanwhile.
  Enter(Phase::kClosing, now + timeout_);
  return true;
}

bool AdminConnection::Discard() {
  std::array<char, 4096> buffer;
  for (int i = 0; i < kMaxDiscards; ++i) {
    const ssize_t bytes = recv(fd_, buffer.data(), buffer.size(), 0);
    if (bytes > 0) continue;
    failed_ = bytes == 0 || !WouldBlock();
    break;
  }
  return false;
}

}  // namespace posenc::server
