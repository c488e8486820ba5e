// A server under measurement: starts and pins it, reads /proc, stops it.

#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace posenc::bench {

// Resources that a process has used since its start.
struct Usage {
  double cpu_seconds = 0;
  double minor_faults = 0;
};

class ServerProcess {
 public:
  // `command` is a program and its arguments, where UNIX_PATH and READY_FILE
  // stand for two new paths in `directory`. core < 0: any.
  ServerProcess(std::vector<std::string> command, const std::string& directory,
                int core);
  // Asks the process to end, and kills it after five seconds.
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  // Waits until it serves. Returns false if it did not start; see log().
  bool WaitReady();

  // Addresses from the ready file: "127.0.0.1:port", "unix:path".
  const std::string& tcp() const { return tcp_; }
  const std::string& unix() const { return unix_; }

  Usage usage() const;
  double peak_resident_bytes() const;
  // Everything that the process has printed.
  std::string log() const;

 private:
  bool Exited();

  const std::string stem_;
  pid_t pid_ = -1;
  std::string tcp_, unix_;
};

}  // namespace posenc::bench
