#include <arpa/inet.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <vector>

#include "tests/bench/bench_clients.h"
#include "tests/bench/socket_io.h"

namespace posenc::bench {
namespace {

int Connect(const std::string& address) {
  if (address.rfind("unix:", 0) == 0) {
    const sockaddr_un file = UnixAddress(address.substr(5));
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&file), sizeof(file)) ==
        0) {
      return fd;
    }
    return -1;
  }
  sockaddr_in local = {};
  local.sin_family = AF_INET;
  local.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  local.sin_port = htons(std::stoi(address.substr(address.rfind(':') + 1)));
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  SetNoDelay(fd);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&local), sizeof(local)) ==
      0) {
    return fd;
  }
  return -1;
}

class Plain final : public Client {
 public:
  Plain(const std::string& address, std::int64_t bytes)
      : fd_(Connect(address)), request_(bytes, 1), response_(bytes) {}
  ~Plain() override { close(fd_); }

  std::string Check() override { return Call() ? "" : "the connection broke"; }

  Sample Run(double seconds, int at_least) override {
    Sample sample;
    const auto start = std::chrono::steady_clock::now();
    auto before = start;
    while (sample.seconds < seconds ||
           static_cast<int>(sample.latencies.size()) < at_least) {
      if (!Call()) break;
      const auto now = std::chrono::steady_clock::now();
      const std::chrono::duration<double> call = now - before,
                                          all = now - start;
      sample.latencies.push_back(call.count());
      sample.seconds = all.count();
      before = now;
    }
    return sample;
  }

 private:
  bool Call() {
    const std::uint64_t size = request_.size();
    return SendAll(fd_, &size, sizeof(size)) &&
           SendAll(fd_, request_.data(), size) &&
           ReceiveAll(fd_, response_.data(), size);
  }

  const int fd_;
  const std::vector<char> request_;
  std::vector<char> response_;
};

}  // namespace

std::unique_ptr<Client> PlainClient(const std::string& address,
                                    std::int64_t bytes) {
  return std::make_unique<Plain>(address, bytes);
}

}  // namespace posenc::bench
