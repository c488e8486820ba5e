#include "server/process/stdin_end.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <thread>

namespace posenc::server {

absl::Status CheckStdin() {
  // If standard input was closed, its descriptor is now a file for writing
  // (OpenStandardStreams()), or gRPC's descriptor for events, which has no file
  // type.
  struct stat input = {};
  const int flags = fcntl(STDIN_FILENO, F_GETFL);
  if (flags >= 0 && (flags & O_ACCMODE) != O_WRONLY &&
      fstat(STDIN_FILENO, &input) == 0 && (input.st_mode & S_IFMT) != 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "exit-with-stdin: standard input is closed; start posencd with a pipe, "
      "and let the parent keep the other end");
}

void StopAtEndOfStdin() {
  std::thread([] {
    ssize_t got = 0;
    do {
      // Waits with poll(), because the parent may have set O_NONBLOCK on the
      // file description, which both processes share.
      pollfd input = {STDIN_FILENO, POLLIN, 0};
      poll(&input, 1, -1);
      char ignored[256];
      got = read(STDIN_FILENO, ignored, sizeof(ignored));
    } while (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR)));
    kill(getpid(), SIGTERM);
  }).detach();
}

}  // namespace posenc::server
