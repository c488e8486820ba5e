// A client of the admin server: a socket that sends and reads bytes.

#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "gtest/gtest.h"

namespace posenc::server {

inline constexpr int kPatienceMs = 30000;

// A client's socket.
class Peer {
 public:
  explicit Peer(bool unix_socket = false)
      : fd_(socket(unix_socket ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC,
                   0)) {
    // A small window, which some KiB fill.
    const int bytes = 1024;
    setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
  }
  Peer(Peer&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Peer() {
    if (fd_ >= 0) close(fd_);
  }

  // Connects from this address of the loopback.
  void BindTo(const char* address) {
    sockaddr_in name = {};
    name.sin_family = AF_INET;
    inet_pton(AF_INET, address, &name.sin_addr);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&name), sizeof(name)), 0);
  }
  void ConnectTo(const std::string& address) {
    if (address.starts_with("unix:")) {
      sockaddr_un name = {};
      name.sun_family = AF_UNIX;
      address.copy(name.sun_path, sizeof(name.sun_path) - 1, 5);
      EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&name), sizeof(name)),
                0);
      return;
    }
    int port = 0;
    EXPECT_TRUE(
        absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port));
    sockaddr_in name = {};
    name.sin_family = AF_INET;
    name.sin_port = htons(static_cast<std::uint16_t>(port));
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&name), sizeof(name)),
              0);
  }

  void Send(const std::string& text) {
    // The server may have closed: only its answer matters.
    (void)send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
  }
  // Reads until the server closes.
  std::string ReadAll() {
    std::string all;
    char buffer[4096];
    pollfd waiting = {fd_, POLLIN, 0};
    while (poll(&waiting, 1, kPatienceMs) == 1) {
      const ssize_t bytes = recv(fd_, buffer, sizeof(buffer), 0);
      if (bytes <= 0) return all;
      all.append(buffer, static_cast<std::size_t>(bytes));
    }
    ADD_FAILURE() << "the server neither answers nor closes";
    return all;
  }
  // Reads up to and including `end`.
  std::string ReadUntil(const std::string& end) {
    std::string all;
    char next = 0;
    pollfd waiting = {fd_, POLLIN, 0};
    while (!all.ends_with(end)) {
      if (poll(&waiting, 1, kPatienceMs) != 1 || recv(fd_, &next, 1, 0) != 1) {
        ADD_FAILURE() << "only " << all;
        break;
      }
      all += next;
    }
    return all;
  }
  // Returns whether the server sends or closes within this time.
  bool Hears(int wait_ms) {
    pollfd waiting = {fd_, POLLIN, 0};
    return poll(&waiting, 1, wait_ms) == 1;
  }
  std::string Ask(const std::string& text) {
    Send(text);
    return ReadAll();
  }

 private:
  int fd_ = -1;
};

}  // namespace posenc::server
