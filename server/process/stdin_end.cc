#include "server/process/stdin_end.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <thread>

namespace posenc::server {

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
