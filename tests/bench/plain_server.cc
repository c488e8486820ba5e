// posenc-bench-plain UNIX_PATH READY_FILE [pass]: echoes messages over plain
// blocking sockets; "pass" first multiplies their float32s once. Its speed is
// the upper bound for a server that moves the same bytes, or with "pass" also
// computes on them.
//
// A message is its size as 8 bytes, then the bytes; the answer is the bytes.
// The answer starts when all of the message has arrived, as in a unary call.

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/bench/ready_file.h"
#include "tests/bench/socket_io.h"

namespace posenc {
namespace {

void Multiply(std::vector<float>& values) {
  for (float& value : values) value *= 0.75F;
}

// Serves one connection after the other.
void Serve(int listener, bool pass) {
  std::vector<float> message;
  for (int fd; (fd = accept(listener, nullptr, nullptr)) >= 0; close(fd)) {
    SetNoDelay(fd);
    std::uint64_t size = 0;
    while (ReceiveAll(fd, &size, sizeof(size))) {
      message.resize(size / sizeof(float));
      if (!ReceiveAll(fd, message.data(), size)) break;
      if (pass) Multiply(message);
      if (!SendAll(fd, message.data(), size)) break;
    }
  }
}

int Run(const std::string& path, const std::string& ready, bool pass) {
  const int tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in local = {};
  local.sin_family = AF_INET;
  local.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(local);
  auto* const tcp_address = reinterpret_cast<sockaddr*>(&local);
  const int unix_socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un file = UnixAddress(path);
  if (bind(tcp, tcp_address, size) != 0 || listen(tcp, 8) != 0 ||
      getsockname(tcp, tcp_address, &size) != 0 ||
      bind(unix_socket, reinterpret_cast<sockaddr*>(&file), sizeof(file)) !=
          0 ||
      listen(unix_socket, 8) != 0 ||
      !WriteReadyFile(ready,
                      {"127.0.0.1:" + std::to_string(ntohs(local.sin_port)),
                       "unix:" + path})) {
    std::perror("posenc-bench-plain");
    return 1;
  }
  std::thread(Serve, unix_socket, pass).detach();
  Serve(tcp, pass);
  return 0;
}

}  // namespace
}  // namespace posenc

int main(int argc, char** argv) {
  const bool pass = argc == 4 && std::strcmp(argv[3], "pass") == 0;
  if (argc != 3 && !pass) {
    std::fprintf(stderr,
                 "usage: posenc-bench-plain UNIX_PATH READY_FILE [pass]\n");
    return 2;
  }
  return posenc::Run(argv[1], argv[2], pass);
}
