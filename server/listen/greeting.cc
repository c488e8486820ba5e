#include "server/listen/greeting.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>

#include "server/base/descriptor.h"

namespace posenc::server {
namespace {

// gRPC answers in microseconds, unless the machine is very busy.
constexpr int kPatienceMs = 10000;

// RFC 9113, section 4.1: length (3 bytes), type, flags, stream (4).
constexpr std::size_t kFrameHeader = 9;
constexpr char kSettings = 4;

// Reads until `bytes` has that many. False at the end, or after kPatienceMs
// without a byte.
bool ReadUntil(int fd, std::size_t size, std::string* bytes) {
  while (bytes->size() < size) {
    pollfd poller = {.fd = fd, .events = POLLIN, .revents = 0};
    if (poll(&poller, 1, kPatienceMs) != 1) return false;
    char piece[256];
    const ssize_t got =
        recv(fd, piece, std::min(sizeof(piece), size - bytes->size()), 0);
    if (got <= 0) return false;
    bytes->append(piece, static_cast<std::size_t>(got));
  }
  return true;
}

}  // namespace

absl::StatusOr<std::string> AskForSettings(
    grpc::experimental::ExternalConnectionAcceptor* acceptor) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
                 ends) != 0) {
    return absl::UnavailableError("--listen: no file descriptors left");
  }
  const Descriptor mine(ends[0]);
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters
      parameters;
  parameters.listener_fd = ends[1];
  parameters.fd = ends[1];
  acceptor->HandleNewConnection(&parameters);
  std::string frame;
  bool read = ReadUntil(mine.get(), kFrameHeader, &frame);
  if (read) {
    const auto byte = [&](std::size_t i) {
      return static_cast<std::uint8_t>(frame[i]);
    };
    const std::size_t length =
        std::size_t{byte(0)} << 16 | byte(1) << 8 | byte(2);
    read = frame[3] == kSettings &&
           ReadUntil(mine.get(), kFrameHeader + length, &frame);
  }
  if (!read) return absl::UnavailableError("gRPC does not greet");
  return frame;
}

}  // namespace posenc::server
