#include "server/admin/connection.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "server/admin/http.h"

namespace posenc::server {
namespace {

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

AdminConnection::~AdminConnection() { close(fd_); }

short AdminConnection::events() const {
  return phase_ == Phase::kWriting ? POLLOUT : POLLIN;
}

void AdminConnection::Reset() {
  const linger at_once = {.l_onoff = 1, .l_linger = 0};
  setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
}

bool AdminConnection::Advance(const Respond& respond, absl::Time now) {
  bool more = true;
  while (more && !failed_) {
    switch (phase_) {
      case Phase::kReading:
        more = Read(respond, now);
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

bool AdminConnection::Read(const Respond& respond, absl::Time now) {
  // One byte more than a head may have tells that it is too long.
  std::array<char, kMaxHeadBytes + 1> buffer;
  const ssize_t bytes =
      recv(fd_, buffer.data(), buffer.size() - head_.size(), 0);
  if (bytes <= 0) {
    failed_ = bytes == 0 || !WouldBlock();
    return false;
  }
  head_.append(buffer.data(), static_cast<std::size_t>(bytes));
  switch (JudgeHead(head_)) {
    case Head::kIncomplete:
      return true;
    case Head::kComplete:
      response_ = respond(head_);
      break;
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
  phase_ = Phase::kWriting;
  deadline_ = now + timeout_;
  return true;
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
  phase_ = Phase::kClosing;
  // The kernel may still be sending meanwhile.
  deadline_ = now + timeout_;
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
